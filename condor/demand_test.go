package condor

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/condor/classad"
	"github.com/gpuslot/gpuslot/gpu"
)

var counted = time.Unix(1795274500, 0)

// Recorded from condor_q -af with idleColumns under 25.14.1, but for the times.
const idleLines = `ann 1 2048 1 128 1795274496 
ann 1 2048 8 1000 1795274400 
ann 1 2048 8 1024 1795274401 
ann 1 2048 -8 undefined 1795274400 
ann 1 15000 undefined undefined 1795274497 
ann 1 2048 1 128 1795274497 MIGProfile == "3g.20gb"
ann 2 undefined 1 128 1795274497 Capability >= 8.000000000000000E+00 && DeviceName == "a\"b"
ann 1 undefined 1 128 1795274497 
ann 1 -2048 1 128 1795274400 
ann error error error error error 
ann undefined 4096 1 128 1795274400 
All queues are empty
`

func TestSumIdle(t *testing.T) {
	got := sumIdle(idleLines, counted)
	want := []Waiting{
		{GPUs: 1, VRAM: 2048, CPUs: 8, Memory: 1024, Jobs: 2, Waits: 100},
		{GPUs: 1, CPUs: 1, Memory: 128, Jobs: 1, Waits: 3},
		{GPUs: 1, VRAM: 2048, Jobs: 1, Waits: 100},
		{GPUs: 1, VRAM: 2048, CPUs: 1, Memory: 128, Jobs: 1, Waits: 4},
		{GPUs: 1, VRAM: 2048, CPUs: 1, Memory: 128, Require: `MIGProfile == "3g.20gb"`, Jobs: 1, Waits: 3},
		{GPUs: 1, VRAM: 15000, Jobs: 1, Waits: 3},
		{GPUs: 2, CPUs: 1, Memory: 128, Require: `Capability >= 8.000000000000000E+00 && DeviceName == "a\"b"`, Jobs: 1, Waits: 3},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// Beyond the most that is told, sizes of memory are left out, then the kinds of which
// there are few and that came last: a job for many GPUs is one of few.
func TestSumIdleBounds(t *testing.T) {
	var many strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&many, "ann 1 %d 1 128 1795274499 \n", i+1)
	}
	fmt.Fprintf(&many, "ann 1 7 1 128 1795274499 \nann 8 undefined 1 128 1795274000 \n")
	got := sumIdle(many.String(), counted)
	if len(got) != maxWaiting || got[0].VRAM != 7 || got[0].Jobs != 2 {
		t.Errorf("of 5000 requests: %d, first %+v", len(got), got[0])
	}
	if !slices.ContainsFunc(got, func(w Waiting) bool { return w.GPUs == 8 && w.Waits == 500 }) {
		t.Error("the job that has waited longest is left out")
	}
	many.Reset()
	for i := range 5000 {
		fmt.Fprintf(&many, "ann 1 2048 %d %d 1795274499 \n", 1+i%2*7, 128*(i+1))
	}
	got = sumIdle(many.String(), counted)
	jobs := 0
	for _, w := range got {
		jobs += w.Jobs
	}
	if jobs != 5000 || got[0].CPUs < 1 || got[0].Memory != 0 {
		t.Errorf("of 5000 sizes of memory: %d jobs, first %+v", jobs, got[0])
	}
	if got := sumIdle("ann 1 1e300 1 1e999 1795274500 \n", counted); len(got) != 1 || got[0] != (Waiting{GPUs: 1, CPUs: 1, Jobs: 1}) {
		t.Errorf("numbers that no node has: %+v", got)
	}
	if got := sumIdle("ann 1 7 1 128 1 "+strings.Repeat("x", maxRequire+1), counted); len(got) != 0 {
		t.Errorf("a long requirement: %+v", got)
	}
}

// TestSumIdleOfSeveralOwners: what one user's jobs ask for hides nothing that those of others do, neither
// by many kinds of many jobs, nor by those that wait longest, nor by sizes of memory.
func TestSumIdleOfSeveralOwners(t *testing.T) {
	var many strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&many, "eve 1 %d 1 %d 1795000000 \n", 1000+i%200, 128*(1+i%40))
	}
	many.WriteString("ann 2 undefined 1 4096 1795274499 \nbob 1 15000 8 8192 1795274400 \nbob 1 9000 8 8192 1795274300 \n")
	got := sumIdle(many.String(), counted)
	if len(got) != maxWaiting {
		t.Errorf("%d kinds", len(got))
	}
	for _, want := range []Waiting{
		{GPUs: 2, CPUs: 1, Memory: 4096, Jobs: 1, Waits: 1}, {GPUs: 1, VRAM: 15000, CPUs: 8, Memory: 8192, Jobs: 1, Waits: 100},
		{GPUs: 1, VRAM: 9000, CPUs: 8, Memory: 8192, Jobs: 1, Waits: 200},
	} {
		if !slices.Contains(got, want) {
			t.Errorf("%+v is left out", want)
		}
	}
	many.Reset()
	for i := range 100 { // of more owners than are told those whose jobs have waited longest
		fmt.Fprintf(&many, "u%d 1 %d 1 128 %d \n", i, 1000+i, 1795274000+i)
	}
	if got := sumIdle(many.String(), counted); len(got) != maxWaiting || slices.ContainsFunc(got, func(w Waiting) bool { return w.VRAM >= 1000+maxWaiting }) {
		t.Errorf("of 100 owners: %+v", got)
	}
	if got := sumIdle("ann 1 7 1 128 1\nbob 1 7 1 128 1\n", counted); len(got) != 1 || got[0].Jobs != 2 {
		t.Errorf("two owners that ask for the same: %+v", got)
	}
}

// TestByTurns: what is first of an owner's requests by jobs and by time takes one turn, as what is first by jobs alone.
func TestByTurns(t *testing.T) {
	sums := map[asked]Waiting{}
	for _, w := range []Waiting{
		{Owner: "ann", GPUs: 1, VRAM: 1, Jobs: 1}, {Owner: "bob", GPUs: 1, VRAM: 2, Jobs: 1},
		{Owner: "eve", GPUs: 1, VRAM: 3, Jobs: 9}, {Owner: "eve", GPUs: 1, VRAM: 4, Jobs: 1, Waits: 100},
	} {
		add(sums, w)
	}
	chosen := byTurns(sums, 3)
	for vram, want := range map[gpu.MiB]bool{1: true, 2: true, 3: true, 4: false} {
		if got := chosen[Waiting{GPUs: 1, VRAM: vram}.asked()]; got != want {
			t.Errorf("%d MiB: chosen %t", vram, got)
		}
	}
}

// Whatever jobs ask for, what is counted is within its bounds.
func FuzzSumIdle(f *testing.F) {
	f.Add(idleLines)
	f.Add("ann 1 1e300 NaN -inf 3 x\n")
	f.Fuzz(func(t *testing.T, text string) {
		got := sumIdle(text, counted)
		for _, w := range got {
			if w.absurd() || w.Waits < 0 || w.VRAM > maxGPUs*gpu.MaxMemory || w.Memory > gpu.MaxMemory || w.CPUs > maxCPUs {
				t.Fatalf("%+v", w)
			}
		}
		if len(got) > maxWaiting {
			t.Fatalf("%d kinds", len(got))
		}
	})
}

// What access points tell is summed; what is old, or absurd, does not count.
func TestParsePoolDemand(t *testing.T) {
	ad := func(age time.Duration, nodes int, waiting string) string {
		return fmt.Sprintf(`{"Name": "ap", "GPUSlotDemandTime": %d, "GPUSlotDemandNodes": %d, "GPUSlotDemand": %s}`,
			counted.Add(-age).Unix(), nodes, waiting)
	}
	text := "[" + strings.Join([]string{
		ad(time.Minute, 3, `[{"VRAM": 2048, "Require": "", "Jobs": 3, "Waits": 17}, {"VRAM": 15000, "Require": "a == \"b\"", "Jobs": 1, "Waits": 5}]`),
		ad(2*time.Minute, 4, `[{"VRAM": 2048, "Require": "", "Jobs": 2, "Waits": 40}, {"VRAM": 2048, "Cpus": 8, "Memory": 1024, "Jobs": 6}, {"VRAM": 3, "Cpus": -1, "Jobs": 1}, {"VRAM": 3, "Memory": -1, "Jobs": 1}, {"VRAM": 1, "Jobs": -5}, {"VRAM": 2, "Jobs": 999999999999}, {"GPUs": 4, "VRAM": 0, "Jobs": 1, "Waits": 9}, {"GPUs": -4, "Jobs": 1}, {"GPUs": 1000, "Jobs": 1}]`),
		ad(time.Hour, 100, `[{"VRAM": 2048, "Require": "", "Jobs": 50, "Waits": 1}]`),
		ad(demandFor, 5, `[]`), ad(-demandFor, 6, `[]`), // just not too old, and from a clock just not too fast
		ad(-time.Hour, 100, `[{"VRAM": 2048, "Require": "", "Jobs": 50, "Waits": 1}]`),
	}, ",") + "]"
	got, err := parsePoolDemand([]byte(text), counted)
	first, second := counted.Add(-time.Minute), counted.Add(-2*time.Minute)
	want := Demand{At: counted.Add(demandFor), Nodes: 6, Waiting: []Waiting{
		{GPUs: 1, VRAM: 2048, CPUs: 8, Memory: 1024, Jobs: 6, At: second},
		{GPUs: 1, VRAM: 2048, Jobs: 5, Waits: 40, At: first},
		{GPUs: 1, VRAM: 15000, Require: `a == "b"`, Jobs: 1, Waits: 5, At: first},
		{GPUs: 4, Jobs: 1, Waits: 9, At: second},
	}}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	if got, err := parsePoolDemand([]byte("\n"), counted); err != nil || !got.At.IsZero() {
		t.Errorf("nobody tells: %+v, %v", got, err)
	}
	if _, err := parsePoolDemand([]byte("Error: communication error"), counted); err == nil {
		t.Error("an error message is read as ads")
	}
}

// Whatever is read holds to its bounds.
func FuzzParsePoolDemand(f *testing.F) {
	f.Add([]byte(`[{"GPUSlotDemandTime": 1795274500, "GPUSlotDemand": [{"VRAM": 2048, "Require": "x", "Jobs": 3, "Waits": 17}]}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := parsePoolDemand(text, counted)
		if err != nil {
			return
		}
		for _, w := range d.Waiting {
			if w.absurd() || w.Waits < 0 {
				t.Fatalf("%+v", w)
			}
		}
	})
}

// requirements are expressions with what they say of the fifth example device, a
// 3g.20gb; nothing where they are not understood.
var requirements = map[string]string{
	`MIGProfile == "3g.20gb"`:                      "true",
	`MIGProfile == "3G.20GB"`:                      "true",
	`MIGProfile =?= "3G.20GB"`:                     "false",
	`MIGProfile == "1g.5gb"`:                       "false",
	`MIGProfile is undefined`:                      "false",
	`MIGProfile isnt undefined && Nothing == 3`:    "undefined",
	`Nothing == 3 || ComputeUnits >= 42`:           "true",
	`GlobalMemoryMb >= 16000 && Capability >= 8.0`: "true",
	`(GlobalMemoryMb < 16000) || (Capability>9)`:   "false",
	`16000 <= globalmemorymb`:                      "true",
	`Capability >= 8.000000000000000E+00`:          "true",
	`Capability >= 9.0e+00`:                        "false",
	`GlobalMemoryMb < 1.0E+4`:                      "false",
	`GlobalMemoryMb == "much"`:                     "",
	`regexp("A100", DeviceName)`:                   "",
	`MY.ComputeUnits > 3`:                          "",
	`ComputeUnits > 3 ? true : false`:              "",
	`!(ComputeUnits > 3)`:                          "",
	`ComputeUnits >`:                               "",
	`true && ComputeUnits != 42`:                   "false",
	`MIGPlace == "3g.20gb@4\"`:                     "",
	`DriverVersion >= 12.4`:                        "true",
	`MaxSupportedVersion >= 12050`:                 "false",
	`true0`:                                        "undefined",
	`true9`:                                        "undefined",
	``:                                             "",
}

func migDevice() Device {
	return Device{UUID: "MIG-00000000-0000-5000-8000-000000000000", Parent: uuid(1), Profile: "3g.20gb", Place: "3g.20gb@4", Name: "NVIDIA A100-SXM4-40GB",
		Memory: 19968, Pool: 19968, Multiprocessors: 42, Capability: gpu.ComputeCapability{Major: 8}}
}

func TestRequirements(t *testing.T) {
	for expr, want := range requirements {
		is, known := evalRequire(expr, migDevice().property("12.4"))
		got := ""
		switch {
		case known && is:
			got = "true"
		case known:
			got = "not true"
		}
		if want != "" && want != "true" {
			want = "not true"
		}
		if expr == `GlobalMemoryMb == "much"` {
			continue // an error in HTCondor, undefined here: neither is true
		}
		if got != want {
			t.Errorf("%s is %q, want %q", expr, got, want)
		}
	}
}

// TestRequirementsUnknown: what is not known of a device is undefined, also in what HTCondor reads.
func TestRequirementsUnknown(t *testing.T) {
	d := migDevice()
	d.Multiprocessors, d.Place = 0, ""
	for _, name := range []string{"ComputeUnits", "MIGPlace"} {
		if is, known := evalRequire(name+" is undefined", d.property("12.4")); !is || !known {
			t.Errorf("%s is defined", name)
		}
		if ads := string(InventoryAds(Node{CUDA: "12.4", Devices: []Device{d}})); strings.Contains(ads, name) {
			t.Errorf("%s is in %s", name, ads)
		}
	}
}

// TestFits: a job fits that asks for no more than there is and requires what the device is.
func TestFits(t *testing.T) {
	d := migDevice()
	d.Share = Share{CPUs: 4, Memory: 8192}
	for name, c := range map[string]struct {
		w           Waiting
		fits, known bool
	}{
		"all there is":      {Waiting{VRAM: d.Pool, CPUs: 4, Memory: 8192}, true, true},
		"more VRAM":         {Waiting{VRAM: d.Pool + 1}, false, true},
		"more CPUs":         {Waiting{CPUs: 5}, false, true},
		"more memory":       {Waiting{Memory: 8193}, false, true},
		"this device":       {Waiting{Require: `MIGProfile == "3g.20gb"`}, true, true},
		"another device":    {Waiting{Require: `MIGProfile == "1g.5gb"`}, false, true},
		"what is not known": {Waiting{Require: "f(1)"}, false, false},
	} {
		if fits, known := c.w.Fits(d, "12.4"); fits != c.fits || known != c.known {
			t.Errorf("%s: fits %t, known %t", name, fits, known)
		}
	}
}

// HTCondor means the same by them.
func TestRealRequirements(t *testing.T) {
	h := realHTCondor(t)
	ads := string(InventoryAds(Node{CUDA: "12.4", Devices: []Device{migDevice()}}))
	var of classad.Ad
	for line := range strings.Lines(ads) {
		if _, record, ok := strings.Cut(strings.TrimSpace(line), "=["); ok {
			for item := range strings.SplitSeq(strings.TrimSuffix(record, "]"), ";") {
				if name, text, ok := strings.Cut(strings.TrimSpace(item), "="); ok {
					of.SetExpr(name, text)
				}
			}
		}
	}
	for expr, want := range requirements {
		if want == "" {
			continue
		}
		if got := h.evaluate(t, of.Print(), "", expr); got != want {
			t.Errorf("HTCondor: %s is %s, want %s", expr, got, want)
		}
	}
}

// Whatever a user writes ends, and what is known of a device does not hang on blanks.
func FuzzRequire(f *testing.F) {
	for expr := range requirements {
		f.Add(expr)
	}
	f.Fuzz(func(t *testing.T, expr string) {
		is, known := evalRequire(expr, migDevice().property("12.4"))
		again, same := evalRequire(" ( "+expr+" ) ", migDevice().property("12.4"))
		if known && (!same || is != again) {
			t.Fatalf("%q is %t, in brackets %t (known: %t)", expr, is, again, same)
		}
	})
}

// What is printed for SCHEDD_CRON is what the collector's JSON then tells.
func TestRealDemandAd(t *testing.T) {
	h := realHTCondor(t)
	d := Demand{At: counted, Nodes: 2, Waiting: []Waiting{
		{GPUs: 1, VRAM: 2048, CPUs: 8, Memory: 1024, Jobs: 3, Waits: 17, At: counted},
		{GPUs: 2, Require: `DeviceName == "a\"b\\c" && x`, Jobs: 1, At: counted},
	}}
	path := h.write(t, "schedd.ad", "MyType = \"Scheduler\"\nName = \"ap\"\n"+strings.TrimSuffix(string(d.Ad()), "-\n"))
	text := h.run(t, "condor_status", "-ads", path, "-json", "-attributes", "Name,GPUSlotDemand,GPUSlotDemandTime,GPUSlotDemandNodes")
	got, err := parsePoolDemand([]byte(text), counted)
	if diff := cmp.Diff(d, got, cmp.Transformer("unix", func(t time.Time) int64 { return t.Unix() })); err != nil || diff != "" {
		t.Errorf("%v, %s (-want +got):\n%s", err, text, diff)
	}
}

// TestCountIdle: jobs are counted, and each machine once. Without one of the two answers nothing is claimed.
func TestCountIdle(t *testing.T) {
	tool(t, "condor_status", "printf 'a\nb\n\na\n'")
	path := os.Getenv("PATH")
	tool(t, "condor_q", "echo 'ann 1 2048 1 128 1795274496'")
	both := os.Getenv("PATH") + ":" + path
	t.Setenv("PATH", both)
	d, err := CountIdle(t.Context(), counted)
	if want := (Demand{At: counted, Nodes: 2, Waiting: []Waiting{{GPUs: 1, VRAM: 2048, CPUs: 1, Memory: 128, Jobs: 1, Waits: 4}}}); err != nil || !cmp.Equal(d, want) {
		t.Errorf("%+v, %v", d, err)
	}
	tool(t, "condor_status", "exit 1")
	t.Setenv("PATH", os.Getenv("PATH")+":"+both)
	if d, err := CountIdle(t.Context(), counted); err == nil || !cmp.Equal(d, Demand{}) {
		t.Errorf("%+v, %v", d, err)
	}
	if d, err := PoolDemand(t.Context(), counted); err == nil || !cmp.Equal(d, Demand{}) {
		t.Errorf("%+v, %v", d, err)
	}
	tool(t, "condor_status", `echo '[{"GPUSlotDemandTime": 1795274500, "GPUSlotDemandNodes": 1}]'`)
	if d, err := PoolDemand(t.Context(), counted); err != nil || d.Nodes != 1 || !d.At.Equal(counted) {
		t.Errorf("%+v, %v", d, err)
	}
}

// condor_q cannot be asked: nothing is claimed.
func TestCountIdleFails(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := CountIdle(t.Context(), counted); err == nil || !strings.Contains(err.Error(), "condor_q") {
		t.Error(err)
	}
}
