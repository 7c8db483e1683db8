package condor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/condor/classad"
)

// TestJobUsages: the queue's word on a job is later than the history's. Where one of the two
// cannot be asked the other will do, but what is printed must be read.
func TestJobUsages(t *testing.T) {
	const none, broken, fails = "echo '[]'", "echo '[{'", "echo no schedd >&2; exit 1"
	const history = `echo '[{"ClusterId": 12, "ProcId": 10, "JobStatus": 4}, {"ClusterId": 12, "ProcId": 9, "JobStatus": 3}]'`
	const queue = `echo '[{"ClusterId": 12, "ProcId": 9, "JobStatus": 2}]'`
	for name, c := range map[string]struct {
		history, queue string // empty for a program that is not there
		want           []string
		says           string
	}{
		"both":                    {history, queue, []string{"12.9 running", "12.10 completed"}, ""},
		"no such job":             {none, none, []string{}, ""},
		"the history alone":       {history, fails, []string{"12.9 removed", "12.10 completed"}, ""},
		"neither":                 {none, fails, nil, "no schedd"},
		"no history":              {fails, queue, nil, "no schedd"},
		"no access point":         {"", "", nil, "run this on the access point"},
		"no queue":                {history, "", nil, "condor_q is not in PATH"},
		"a history that is cut":   {broken, queue, nil, "read what condor_history prints"},
		"a queue that is cut":     {none, broken, nil, "read what condor_q prints"},
		"the last of many is cut": {history, broken, nil, "read what condor_q prints"},
	} {
		dir := t.TempDir()
		for program, script := range map[string]string{"condor_history": c.history, "condor_q": c.queue} {
			if script == "" {
				continue
			}
			text := `#!/bin/sh
case "$*" in *"12 -json -attributes ClusterId,ProcId,"*) ;; *) exit 2; esac
` + script + "\n"
			if err := os.WriteFile(filepath.Join(dir, program), []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv("PATH", dir)
		jobs, err := JobUsages(t.Context(), "12")
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
		var got []string
		if err == nil {
			got = []string{}
		}
		for _, j := range jobs {
			got = append(got, j.ID+" "+j.State)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// TestJobUsageOfAd: users can edit the ads of their jobs. What makes no sense is not known.
func TestJobUsageOfAd(t *testing.T) {
	number := func(n int64) *int64 { return &n }
	measured := func(f float64) *float64 { return &f }
	for text, want := range map[string]JobUsage{
		`"JobStatus": 0`:            {},
		`"JobStatus": 1`:            {State: "idle"},
		`"JobStatus": 7`:            {State: "suspended"},
		`"JobStatus": 8`:            {},
		`"JobStatus": -1`:           {},
		`"GPUTimeUsage": 0.0`:       {GPUSeconds: measured(0)},
		`"GPUTimeUsage": -1.0`:      {},
		`"VRAMUsage": 0`:            {PeakMiB: number(0)},
		`"VRAMUsage": -1`:           {PeakMiB: number(-1)},
		`"VRAMUsage": 1`:            {PeakMiB: number(1), NextMiB: number(512)},
		`"VRAMUsage": 426`:          {PeakMiB: number(426), NextMiB: number(512)},
		`"VRAMUsage": 428`:          {PeakMiB: number(428), NextMiB: number(1024)},
		`"VRAMUsage": 10000`:        {PeakMiB: number(10000), NextMiB: number(12288)},
		`"VRAMUsage": 999999999999`: {PeakMiB: number(999_999_999_999), NextMiB: number(1_200_000_000_000)},
		// 2^40 is more than any GPU has.
		`"VRAMUsage": 1099511627775`: {PeakMiB: number(1<<40 - 1), NextMiB: number(1_319_413_953_536)},
		`"VRAMUsage": 1099511627776`: {PeakMiB: number(1 << 40)},
		`"RequestVRAM": 2048, "RequestGPUs": 1, "VRAMProvisioned": 4096, "NumShadowStarts": 2`: {
			RequestedMiB: number(2048), GPUs: number(1), BudgetMiB: number(4096), Starts: number(2)},
		`"Owner": "ada", "HoldReason": "too\nmuch"`: {Owner: "ada", HoldReason: "too much"},
	} {
		ads, err := classad.ParseJSON(`[{"ClusterId": 12, "ProcId": 3, ` + text + `}]`)
		if err != nil {
			t.Fatal(err)
		}
		want.ID = "12.3"
		if d := cmp.Diff(want, jobUsage(ads[0])); d != "" {
			t.Errorf("%s (-want +got):\n%s", text, d)
		}
	}
}
