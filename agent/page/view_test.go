package page

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
)

func TestAge(t *testing.T) {
	at := time.Date(2026, 11, 23, 4, 5, 6, 0, time.UTC)
	for want, c := range map[string]struct{ at, now time.Time }{
		"The use of the GPUs is not known yet.":                       {time.Time{}, at},
		"Read at 2026-11-23 04:05:06 UTC.":                            {at, at.Add(time.Minute)},
		"The use of the GPUs was last read 1m1s ago, at 04:05:06.":    {at, at.Add(time.Minute + time.Second)},
		"The use of the GPUs was last read 26h0m0s ago, at 04:05:06.": {at, at.Add(26 * time.Hour)},
	} {
		if got := age(c.at, c.now); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestSums: what is not known of one GPU does not count for the node.
func TestSums(t *testing.T) {
	known := gpu.Known[float64]
	one := GPU{Shared: true, Power: known(50), Device: Device{Total: gpu.Known(gpu.Bytes(100)), Used: gpu.Known(gpu.Bytes(20)), Slots: make([]Slot, 2)}}
	two := GPU{Shared: true, Closed: "hot", Power: known(25), Device: Device{Total: gpu.Known(gpu.Bytes(100)), Used: gpu.Known(gpu.Bytes(60)), Slots: make([]Slot, 1)}}
	unknown := GPU{Device: Device{Total: gpu.Known(gpu.Bytes(100))}}
	parts := GPU{Shared: true, MIG: []Device{{Slots: make([]Slot, 1)}, {Slots: make([]Slot, 3)}}}
	watched := GPU{Mode: observed}
	for name, c := range map[string]struct {
		gpus []GPU
		want []sum
	}{
		"none":        {nil, []sum{{"shared GPUs take jobs", "0 of 0"}, {"jobs", "0"}}},
		"all":         {[]GPU{one, two, unknown, parts}, []sum{{"shared GPUs take jobs", "2 of 3"}, {"jobs", "7"}, {"of VRAM in use", "40 %"}, {"power", "75 W"}}},
		"one job":     {[]GPU{two}, []sum{{"shared GPUs take jobs", "0 of 1"}, {"job", "1"}, {"of VRAM in use", "60 %"}, {"power", "25 W"}}},
		"observed":    {[]GPU{watched, watched}, []sum{{"GPUs observed", "2"}, {"jobs", "0"}}},
		"one of them": {[]GPU{watched}, []sum{{"GPU observed", "1"}, {"jobs", "0"}}},
	} {
		if d := cmp.Diff(c.want, sums(Node{GPUs: c.gpus}), cmp.AllowUnexported(sum{})); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

func TestFacts(t *testing.T) {
	for want, g := range map[string]GPU{
		"":           {},
		"mode whole": {Mode: "whole"},
		"mode mps · 2 of 8 shares in use · MPS server ACTIVE · 71 W": {Mode: "mps", Shared: true, Shares: 8, MPS: "ACTIVE", Power: gpu.Known(70.6),
			Device: Device{Slots: make([]Slot, 2)}},
	} {
		if got := facts(g); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for want, j := range map[string]float64{"0 J": 0, "999 J": 999, "1.0 kJ": 1000, "999.0 kJ": 999e3, "1.0 MJ": 1e6, "2500.0 MJ": 2.5e9} {
		if got := joules(j); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestViewOfDevice: each job has its place, its energy and a colour; how the activity was divided is said where it was.
func TestViewOfDevice(t *testing.T) {
	known := gpu.Known[float64]
	d := Device{UUID: "MIG-1", Activity: known(0.5), Method: "mps", Slots: []Slot{{Name: "slot1_1", Joules: known(1500)}, {Name: "slot1_2"}}}
	v := viewOfDevice("x", d, true)
	if v.Title != "MIG-1" || v.Count != "2 jobs" || v.Method != "divided with bounds" || len(v.Slots) != 2 {
		t.Errorf("%+v", v)
	}
	if a, b := v.Slots[0], v.Slots[1]; a.Energy != "1.5 kJ" || b.Energy != "-" || a.Class != "c0" || b.Class != "c1" || b.Name != "slot1_2" {
		t.Errorf("%+v", v.Slots)
	}
	d.Slots = d.Slots[:1]
	if v := viewOfDevice("x", d, false); v.Title != "" || v.Count != "1 job" {
		t.Errorf("%+v", v)
	}
	for name, d := range map[string]Device{"no job": {Activity: known(0.5), Method: "mps"}, "no activity": {Method: "mps", Slots: make([]Slot, 1)}} {
		if v := viewOfDevice("x", d, false); v.Method != "" {
			t.Errorf("%s: %s", name, v.Method)
		}
	}
	for method, want := range map[string]string{"exclusive": "exact: one job", "mig": "exact: one job", "timeslice": "by the driver's samples of each process", "none": ""} {
		if got := methods(method); got != want {
			t.Errorf("%s: %q", method, got)
		}
	}
	if colour(0) != "c0" || colour(colours-1) != "c7" || colour(colours) != "c0" {
		t.Errorf("%s, %s", colour(colours-1), colour(colours))
	}
}

// TestBars: the pieces of the bars, in order.
func TestBars(t *testing.T) {
	known := gpu.Known[float64]
	bytes := func(b gpu.Bytes) gpu.Measured[gpu.Bytes] { return gpu.Known(b << 20) }
	slots := []Slot{{Name: "slot1_1", Memory: bytes(100), Estimate: known(0.25), Lower: known(0.1), Upper: known(0.5)}, {Name: "slot1_2"},
		{Name: "slot1_3", Memory: bytes(200), Estimate: known(0.25)}}
	for name, c := range map[string]struct {
		got, want bar
	}{
		"memory": {memoryBar(Device{Total: bytes(1000), Used: bytes(500), Unowned: bytes(50), Slots: slots}),
			bar{Label: "500 of 1000 MiB in use, 50 %, 50 MiB in no slot", Rects: []rect{{"c0", "slot1_1: 100 MiB", 0, 0.1}, {"c2", "slot1_3: 200 MiB", 0.1, 0.3},
				{"alien", "in no slot: 50 MiB", 0.3, 0.35}, {"rest", "MPS servers and the driver: 150 MiB", 0.35, 0.5}}}},
		"all memory is the jobs'": {memoryBar(Device{Total: bytes(1000), Used: bytes(300), Unowned: bytes(0), Slots: slots}),
			bar{Label: "300 of 1000 MiB in use, 30 %", Rects: []rect{{"c0", "slot1_1: 100 MiB", 0, 0.1}, {"c2", "slot1_3: 200 MiB", 0.1, 0.3}}}},
		"activity": {activityBar(Device{Activity: known(0.75), Slots: slots}),
			bar{Label: "75 % of the SMs' time", Rects: []rect{{"c0", "slot1_1: 10 % to 50 %, about 25 %", 0, 0.25}, {"c2", "slot1_3: not known", 0.25, 0.5}, {"rest", "of no slot: 25 %", 0.5, 0.75}}}},
		"kernel time": {activityBar(Device{KernelTime: known(1.5)}), bar{Label: "at most 150 %: a kernel ran so long, and no source reports on how many SMs",
			Rects: []rect{{"maybe", "at most 150 %: a kernel ran so long, and no source reports on how many SMs", 0, 1}}}},
		"budget":    {budgetBar(1, Slot{Memory: bytes(100), Budget: 400 << 20}), bar{Label: "100 of 400 MiB", Rects: []rect{{"c1", "", 0, 0.25}}}},
		"all of it": {budgetBar(1, Slot{Memory: bytes(400), Budget: 400 << 20}), bar{Label: "400 of 400 MiB", Rects: []rect{{"c1", "", 0, 1}}}},
		"more":      {budgetBar(1, Slot{Memory: bytes(800), Budget: 400 << 20}), bar{Label: "800 of 400 MiB", Rects: []rect{{"over", "", 0, 1}}}},
		"no budget": {budgetBar(1, Slot{Memory: bytes(100)}), bar{Label: "100 MiB"}},
		"band":      {bandBar(0, slots[0]), bar{Label: "10 % to 50 %, about 25 %", Mark: "250", Rects: []rect{{"c0", "", 0, 0.1}, {"maybe c0", "", 0.1, 0.5}}}},
		"beyond the end": {bandBar(0, Slot{Lower: known(1.5), Upper: known(3), Estimate: known(2)}),
			bar{Label: "150 % to 300 %, about 200 %", Mark: "1000", Rects: []rect{{"c0", "", 0, 1}, {"maybe c0", "", 1.5, 1}}}},
	} {
		same := cmp.Comparer(func(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 })
		if d := cmp.Diff(c.want, c.got, cmp.AllowUnexported(rect{}), same); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
	if r := (rect{"c", "t", 0.1, 0.35}); r.X() != "100" || r.W() != "250" || r.Class() != "c" || r.Title() != "t" || (rect{from: 1.5, to: 1}).W() != "0" {
		t.Errorf("%s, %s", r.X(), r.W())
	}
}

// TestBudgets: jobs that no sample has seen stand beside those that one has.
func TestBudgets(t *testing.T) {
	job := func(slot string, u gpu.UUID, mib gpu.MiB) jobs.Job {
		return jobs.Job{Starter: starter.Starter{Slot: slot}, GPU: u, Budget: mib}
	}
	p := GPU{Device: Device{UUID: "GPU-1", Slots: []Slot{{Name: "slot1_1", Memory: gpu.Known(gpu.Bytes(5))}}}}
	budgets(&p, []jobs.Job{job("slot1_3", "GPU-2", 1), job("slot1_1", "GPU-1", 2), job("slot1_2", "GPU-1", 3)})
	want := []Slot{{Name: "slot1_1", Budget: 2 << 20, Memory: gpu.Known(gpu.Bytes(5))}, {Name: "slot1_2", Budget: 3 << 20}}
	if d := cmp.Diff(want, p.Slots); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
