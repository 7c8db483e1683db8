package condor

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// readSlots reads one answer with all attributes for both questions of Slots.
func readSlots(text string) ([]Slot, error) {
	slots, err := parseSlots(text)
	addWords(slots, text, nil)
	return slots, err
}

// Recorded from condor_status -direct "" -json under 25.14.1: two jobs of alice on a GPU
// of 7 shares, the second with line breaks in AccountingGroup.
func TestParseRecordedSlots(t *testing.T) {
	text, err := os.ReadFile("testdata/slots-25.14.1.json")
	if err != nil {
		t.Fatal(err)
	}
	got, err := readSlots(string(text))
	if err != nil {
		t.Fatal(err)
	}
	const device, plan, config = "5a1e0c11-7d02-4b6a-9c31-0e84a2d1f001", "96752d744b6228a4", "95a8d3fe35a47ecc"
	const gpu = "GPU-" + device
	job := Slot{
		Type: "Dynamic", State: "Claimed", RemoteOwner: "alice@gpuslot.test", Schedd: "wn1.test",
		AssignedGPUs: []string{gpu}, VRAM: number64(4096), GPUs: 1, Cpus: 1, Memory: 128, DeviceUUID: device, Plan: plan, Config: config,
	}
	first, second := job, job
	first.Name, first.JobID, first.StarterPID = "slot1_1@wn1.test", "4.0", 722
	second.Name, second.JobID, second.StarterPID = "slot1_2@wn1.test", "5.0", 796
	want := []Slot{{
		Name: "slot1@wn1.test", Type: "Partitionable", State: "Unclaimed",
		AssignedGPUs: slices.Repeat([]string{gpu}, 7), VRAM: number64(24064), GPUs: 5, Cpus: 56, Memory: 353639, DeviceUUID: device, Plan: plan, Config: config,
		Layout: slotLayout(101, 58, 353895, 7, 32256),
	}, first, second, {
		Name: "slot2@wn1.test", Type: "Partitionable", State: "Unclaimed",
		AssignedGPUs: []string{}, VRAM: number64(0), Cpus: 6, Memory: 39321,
		Plan: plan, Config: config, Layout: slotLayout(502, 6, 39321, 0, 0),
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseSlots(t *testing.T) {
	if got, err := readSlots("\n\n"); err != nil || got != nil {
		t.Errorf("no slots are %v, %v", got, err)
	}
	got, err := readSlots(`[{"Name": "slot1_1@h", "JobId": "1.0", "AcctGroup": "cms", "x509UserProxyVOName": "atlas"}]`)
	if err != nil || got[0].Group != "cms" || got[0].VO != "atlas" {
		t.Errorf("group and VO: %+v, %v", got, err)
	}
	got, err = readSlots(`[{"Name": "slot1_1@h", "JobId": "1.0", "GlobalJobId": "ap.test#40.0#1795257600", "Memory": 4096,
		"Cmd": "/home/a/train.py", "AccountingGroup": "cms.a@d", "RemoteUser": "a@d", "WantDocker": true,
		"RequestCpus": 2, "RequestMemory": "\/Expr(ifThenElse(true, 1, 2))\/"}]`)
	if s := got[0]; err != nil || s.Schedd != "ap.test" || s.Memory != 4096 || s.Program != "train.py" ||
		*s.RequestCPUs != 2 || s.RequestMemory != nil || s.RequestGPUs != nil || s.AccountingGroup != "cms" || !s.Docker {
		t.Errorf("of its job: %+v, %v", s, err)
	}
	got, err = readSlots(`[{"Name": "slot1@h", "AssignedGPUs": "", "VRAM": null}]`)
	if err != nil || got[0].VRAM != nil || len(got[0].AssignedGPUs) > 0 || got[0].Unreadable != "" {
		t.Errorf("VRAM that the ad does not say is %v, %v", got, err)
	}
	for text, want := range map[string]string{
		`[{"VRAM": 1}]`:               "no Name",
		`[{"Name": ["slot1@h"]}]`:     "no Name",
		"Error: no such daemon":       "byte 0",
		`[{"Name": "a"}, {"Name": "b`: "a string that ends",
	} {
		if _, err := readSlots(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q in it", text, err, want)
		}
	}
}

// A user's odd text costs its own attribute, not the startd's whole answer.
func TestParseSlotsOddText(t *testing.T) {
	for _, odd := range []string{
		`"Cmd": "/home/a/x\ry"`, `"AccountingGroup": "grp\nVRAM = 1\n\nName = 1"`,
		"\"AccountingGroup\": \"raw\n\nVRAM = 1\"", `"AcctGroup": ""`,
		`"AcctGroup": ` + strings.Repeat("[", 11000) + strings.Repeat("]", 11000),
		`"JobBatchName": {"Name": "x", "VRAM": [1]}`,
		`"RequestGPUs": "\/Expr(\"no end)\/"`, `"RemoteUser": "a\u0000b"`, `"Cmd": "a", "cmd": "b"`,
	} {
		got, err := readSlots(`[{"Name": "slot1_1@h", "JobId": "1.0", ` + odd + `, "VRAM": 2048}, {"Name": "slot1_2@h", "VRAM": 1}]`)
		if err != nil || len(got) != 2 || *got[0].VRAM != 2048 || got[0].Unreadable != "" ||
			got[1].Name != "slot1_2@h" || *got[1].VRAM != 1 {
			t.Errorf("%.200s: %+v, %v", odd, got, err)
		}
	}
}

// What a slot has and cannot be read makes that slot unreadable, and no other.
func TestUnreadableSlot(t *testing.T) {
	for text, want := range map[string]string{
		`"vram": [1]`:                             "VRAM",
		`"AssignedGPUs": {}, "VRAM": nonsense`:    "AssignedGPUs, VRAM",
		`"JobId": "1.0", "JobID": "2.0"`:          "JobId",
		`"StarterPid": "\/Expr(\"no end)\/"`:      "StarterPid",
		`"State": "\/Expr(undefined)\/", "X": []`: "",
	} {
		got, err := readSlots(`[{"Name": "slot1_1@h", ` + text + `}, {"Name": "slot1_2@h", "VRAM": 1}]`)
		if err != nil || len(got) != 2 || got[0].Unreadable != want || got[1].Unreadable != "" {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

// Every slot that is accepted has a name, and no id is empty.
func FuzzParseSlots(f *testing.F) {
	recorded, err := os.ReadFile("testdata/slots-25.14.1.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(recorded))
	f.Add(`[{"Name": "slot1@h", "VRAM": null}, {"Name": "x", "AssignedGPUs": ", ,GPU-a"}]`)
	f.Add(`[{"Name": "slot1@h", "AccountingGroup": "grp\nVRAM = 1\n\nName = 1", "VRAM": [[1]]}]`)
	f.Add("[{\"Name\": \"slot1@\xff\x1f" + strings.Repeat("h", 300) + "\"}]")
	f.Fuzz(func(t *testing.T, text string) {
		slots, err := readSlots(text)
		if err != nil {
			return
		}
		if len(slots) > strings.Count(text, "{") {
			t.Fatalf("%q holds %d slots", text, len(slots))
		}
		for _, s := range slots {
			if s.Name == "" || foreign.Word(s.Name) != s.Name {
				t.Fatalf("%q: name %q", text, s.Name)
			}
			for _, id := range s.AssignedGPUs {
				if id == "" || strings.ContainsAny(id, ", \t") {
					t.Fatalf("%q: id %q", text, id)
				}
			}
		}
	})
}

// tool puts a program of that name into PATH.
func tool(t *testing.T, name, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
}

func TestSlotsAsksTheLocalStartd(t *testing.T) {
	tool(t, "condor_status", `[ "$1" = -direct ] && [ "$2" = "" ] && [ "$3" = -json ] && echo '[{"Name": "slot1@h"}]'`)
	got, err := Slots(t.Context(), "")
	if err != nil || len(got) != 1 || got[0].Name != "slot1@h" {
		t.Errorf("%v, %v", got, err)
	}
}

// However much users write, the slots and what they have are known. What their jobs say
// is not, and says so.
func TestSlotsOfUsersWhoWriteALot(t *testing.T) {
	const both = `[{"Name": "slot1_1@h", "JobId": "1.0", "VRAM": 2048}, {"Name": "slot1_2@h", "JobId": "2.0", "VRAM": 1}, {"Name": "slot1@h"}]`
	for name, c := range map[string]struct {
		answer string // to whoever asks for what users write
		unsaid [2]string
	}{
		"too much for a whole answer": {`head -c 70000000 /dev/zero`, [2]string{"more than 64 MiB", "more than 64 MiB"}},
		"one is left out": {`echo '[{"Name": "slot1_2@h", "JobId": "2.0", "AcctGroup": "cms"}]'`,
			[2]string{"more than 8192 bytes", ""}},
		"another job by now": {`echo '[{"Name": "slot1_1@h", "JobId": "3.0"}, {"Name": "slot1_2@h", "JobId": "2.0", "AcctGroup": "cms"}]'`,
			[2]string{"has just changed", ""}},
		"a name that would be cut": {`echo '[{"Name": "slot1_1@h", "JobId": "1.0", "AcctGroup": "` + strings.Repeat("g", 257) +
			`"}, {"Name": "slot1_2@h", "JobId": "2.0", "AcctGroup": "cms"}]'`, [2]string{"AcctGroup has more than 256 bytes", ""}},
		"no answer": {`echo why >&2; exit 1`, [2]string{"why", "why"}},
		"no JSON":   {`echo Error`, [2]string{"byte 0", "byte 0"}},
		"nothing":   {`:`, [2]string{"just changed", "just changed"}},
	} {
		t.Run(name, func(t *testing.T) {
			tool(t, "condor_status", `case "$*" in *AcctGroup*|*Cmd*) `+c.answer+" ;; *) echo '"+both+"' ;; esac")
			slots, err := Slots(t.Context(), "")
			if err != nil || len(slots) != 3 || *slots[0].VRAM != 2048 || slots[2].Unsaid != "" {
				t.Fatalf("%+v, %v", slots, err)
			}
			for i, want := range c.unsaid {
				if got := slots[i].Unsaid; want == "" && got != "" || !strings.Contains(got, want) {
					t.Errorf("slot %d: %q, want %q in it", i, got, want)
				}
			}
			if slots[1].Unsaid == "" && slots[1].Group != "cms" {
				t.Errorf("the group is %q", slots[1].Group)
			}
		})
	}
}

// TestSlotsInOneAnswer: an answer counts alone if it has every slot of the startd.
func TestSlotsInOneAnswer(t *testing.T) {
	const job = `{"Name": "slot1_1@h", "JobId": "1.0", "VRAM": 2048, "AcctGroup": "cms", "TotalSlots": 2}`
	for name, c := range map[string]struct {
		all   string
		slots int
		group string
	}{
		"all":              {`[{"Name": "slot1@h", "TotalSlots": 2}, ` + job + `]`, 2, "cms"},
		"one is left out":  {`[` + job + `]`, 1, ""},
		"one does not say": {`[{"Name": "slot1@h"}, ` + job + `]`, 1, ""},
		"none":             {`[]`, 1, ""},
		"cut short":        {`[`, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tool(t, "condor_status", `case "$*" in *TotalSlots*) echo '`+c.all+`' ;; *AcctGroup*) exit 1 ;;`+
				` *) echo '[{"Name": "slot1@h"}]' ;; esac`)
			slots, err := Slots(t.Context(), "")
			if err != nil || len(slots) != c.slots {
				t.Fatalf("%+v, %v", slots, err)
			}
			if last := slots[len(slots)-1]; last.Group != c.group || last.Unsaid != "" {
				t.Errorf("%+v", last)
			}
		})
	}
}

// No attribute that users write is asked for beside what a slot has.
func TestSlotAttributes(t *testing.T) {
	for _, name := range jobWords {
		if slices.Contains(slotAttributes, name) {
			t.Errorf("%s can be as long as a user likes", name)
		}
	}
}

func TestCommandErrors(t *testing.T) {
	for name, c := range map[string]struct{ program, script, want string }{
		"fails":         {"condor_version", "echo 'Error: no config' >&2; exit 1", "exit status 1: Error: no config"},
		"not installed": {"other", "", "install HTCondor 24.0.1 or later"},
		"says nothing":  {"condor_version", "", "no $CondorVersion"},
		"hangs":         {"condor_version", "exec sleep 60", "did not end in time"},
	} {
		t.Run(name, func(t *testing.T) {
			tool(t, c.program, c.script)
			ctx, cancel := context.WithCancel(t.Context())
			if name == "hangs" {
				ctx, cancel = context.WithTimeout(ctx, 50*time.Millisecond)
			}
			defer cancel()
			_, err := InstalledVersion(ctx)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q in it", err, c.want)
			}
		})
	}
}

// TestBoundedOutput: what users chose to stand in ads cannot take the agent's memory.
func TestBoundedOutput(t *testing.T) {
	out, err := output(t.Context(), nil, "sh", "-c", "echo begin; head -c 70000000 /dev/zero")
	if err == nil || !strings.Contains(err.Error(), "more than 64 MiB") {
		t.Errorf("%d bytes, %v", len(out), err)
	}
	if out, err = output(t.Context(), nil, "sh", "-c", "echo out; echo err >&2"); err != nil || out != "out\n" {
		t.Errorf("%q, %v", out, err)
	}
	if _, err = output(t.Context(), nil, "sh", "-c", "echo why >&2; exit 3"); err == nil || !strings.HasSuffix(err.Error(), "exit status 3: why") {
		t.Error(err)
	}
}
