package layouts

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// device is an instance with one device.
func device(u gpu.UUID, place gpu.Place, holders ...gpu.Holder) gpu.Instance {
	return gpu.Instance{Place: place, Compute: []gpu.ComputeInstance{{UUID: u}}, Holders: holders}
}

// TestUsersOfDevices: jobs hold their devices, by the device's name or by that of its place. The control daemon of a
// device is ours; a holder without a process is not.
func TestUsersOfDevices(t *testing.T) {
	job := func(slot string, u gpu.UUID) jobs.Job { return jobs.Job{Starter: starter.Starter{Slot: slot}, GPU: u} }
	n := &node{running: []jobs.Job{job("slot1_1", "MIG-1"), job("slot1_2", gpu.PlaceID(testGPU, "9@4")), job("slot1_3", "MIG-9")}}
	l := New(Options{Jobs: n, Daemons: n})
	s := gpu.MIGState{MIGGPU: gpu.MIGGPU{UUID: testGPU, Instances: []gpu.Instance{
		{}, device("MIG-1", gpu.Place{}, gpu.Holder{PID: 77}, gpu.Holder{PID: 78}), device("MIG-2", gpu.Place{Profile: 9, Start: 4}, gpu.Holder{Slot: "x"}),
	}}}
	for _, n.owned = range []int{77, 0} {
		var got [][]gpu.Holder
		for _, i := range l.withJobs(s).Instances {
			got = append(got, i.Holders)
		}
		want := [][]gpu.Holder{nil, {{PID: 77, Ours: n.owned == 77}, {PID: 78}, {Slot: "slot1_1"}}, {{Slot: "x"}, {Slot: "slot1_2"}}}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("process %d is ours (-want +got):\n%s", n.owned, d)
		}
	}
	if len(s.Instances[1].Holders) != 2 || s.Instances[1].Holders[0].Ours {
		t.Errorf("what was read has changed: %+v", s.Instances[1])
	}
}

// TestGone: the names of the devices at places that a layout does not have.
func TestGone(t *testing.T) {
	stays, goes := gpu.Place{Profile: 9, Start: 0}, gpu.Place{Profile: 9, Start: 4}
	s := gpu.MIGState{MIGGPU: gpu.MIGGPU{Instances: []gpu.Instance{device("MIG-1", stays), device("MIG-2", goes)}}}
	if got := gone(s, gpu.NewLayout(stays)); !slices.Equal(got, []gpu.UUID{gpu.PlaceID("", "9@4"), "MIG-2"}) {
		t.Errorf("%q", got)
	}
}

// TestUnserved: each profile of which there are fewer than wanted, with the reason.
func TestUnserved(t *testing.T) {
	got := unserved(mig.Plan{Served: []mig.Served{
		{Profile: "7g.40gb", Wanted: 1, Why: "a"}, {Profile: "1g.5gb", Wanted: 1, Served: 1}, {Profile: "2g.10gb", Wanted: 2, Served: 1, Why: "b"},
	}})
	if want := "0 of 1 7g.40gb: a; 1 of 2 2g.10gb: b"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestWantedAndHas: any change of what is wanted or there is a reason to make the layout again.
func TestWantedAndHas(t *testing.T) {
	g, has := plan.MIGGPU{Layouts: []string{"7g.40gb"}}, gpu.GPU{MIGDevices: []gpu.MIGDevice{{UUID: "MIG-1", Profile: "7g.40gb"}}}
	words := []string{wantedAndHas(g, has)}
	for _, change := range []func(*plan.MIGGPU, *gpu.GPU){
		func(g *plan.MIGGPU, _ *gpu.GPU) { g.Layouts = []string{"7g.40gb", "3g.20gb"} },
		func(g *plan.MIGGPU, _ *gpu.GPU) { g.Placed = []string{"7g.40gb@0"} },
		func(_ *plan.MIGGPU, has *gpu.GPU) { has.MIGEnabled = true },
		func(_ *plan.MIGGPU, has *gpu.GPU) { has.MIGDevices = nil },
		func(_ *plan.MIGGPU, has *gpu.GPU) {
			has.MIGDevices = []gpu.MIGDevice{{UUID: "MIG-2", Profile: "7g.40gb"}}
		},
	} {
		g, has := g, has
		change(&g, &has)
		text := wantedAndHas(g, has)
		if slices.Contains(words, text) {
			t.Errorf("%s again", text)
		}
		words = append(words, text)
	}
}

// TestLayoutsOfTheChip: a list may have layouts that only other chips can have. Slots are made for places, which count.
func TestLayoutsOfTheChip(t *testing.T) {
	chip, err := mig.Model("A100-40GB", 550)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		gpu  plan.MIGGPU
		want []string
	}{
		"one is another chip's": {plan.MIGGPU{Layouts: []string{"1g.24gb", "7g.40gb"}}, []string{"7g.40gb"}},
		"both":                  {plan.MIGGPU{Layouts: []string{"3g.20gb", "7g.40gb"}}, []string{"3g.20gb", "7g.40gb"}},
		"with places":           {plan.MIGGPU{Layouts: []string{"3g.20gb"}, Placed: []string{"3g.20gb@4"}}, []string{"3g.20gb@4"}},
		"none":                  {plan.MIGGPU{Layouts: []string{"1g.24gb"}}, nil},
	} {
		wants, err := wantsOf(chip, c.gpu)
		var got []string
		for _, w := range wants {
			got = append(got, mig.FormatWant(chip, w))
		}
		if !slices.Equal(got, c.want) || (err != nil) != (c.want == nil) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestSecondGPU: a GPU whose instances stay as they are keeps no later one from its layout.
func TestSecondGPU(t *testing.T) {
	n := newNode(t, `"3g.20gb@4"`, "")
	n.divide(`"7g.40gb"`, "")
	at := n.now()
	at.Plan.MIG = append([]plan.MIGGPU{{UUID: "GPU-00000001-0000-4000-8000-000000000000"}}, at.Plan.MIG...)
	if out := n.Round(t.Context(), at); n.has() != "7g.40gb@0" || len(out.Made) != 1 {
		t.Errorf("there is %s, %+v", n.has(), out)
	}
}

// TestOneStep is a change, too.
func TestOneStep(t *testing.T) {
	n := newNode(t, `"1g.5gb@0"`, "")
	n.divide(`"1g.5gb@0, 1g.5gb@1"`, "")
	if out := n.round(); !out.Changed || n.has() != "1g.5gb@0 1g.5gb@1" {
		t.Errorf("there is %s, %+v", n.has(), out)
	}
}

// TestUnknownDevice: a job whose MIG device no GPU has by any of its names keeps all layouts as they are. Jobs on GPUs
// do not.
func TestUnknownDevice(t *testing.T) {
	start := 4
	n := &node{}
	at := &Node{Inventory: gpu.Inventory{GPUs: []gpu.GPU{{UUID: testGPU, MIGDevices: []gpu.MIGDevice{
		{UUID: "MIG-1", Profile: "1g.5gb", Start: &start}, {UUID: "MIG-2", Profile: "1g.5gb"},
	}}}}}
	place := gpu.PlaceID(testGPU, "1g.5gb@4")
	for _, known := range []jobs.Job{{GPU: "MIG-1"}, {GPU: "MIG-2"}, {GPU: place}, {GPU: "MIG-9", Device: "MIG-1"}, {GPU: "GPU-9"}} {
		if n.running = []jobs.Job{known}; at.unknown(n) != "" {
			t.Errorf("%+v: %s", known, at.unknown(n))
		}
	}
	for _, lost := range []jobs.Job{{GPU: "MIG-9"}, {GPU: gpu.PlaceID(testGPU, "1g.5gb@5")}, {GPU: "MIG-9", Device: "MIG-8"}} {
		lost.Starter.Slot = "slot1_1"
		n.running = []jobs.Job{{GPU: "MIG-1"}, lost}
		if why := at.unknown(n); !strings.HasPrefix(why, "slot1_1 has the MIG device MIG-") {
			t.Errorf("%+v: %q", lost, why)
		}
	}
	n.running, n.unknown = nil, "the job in slot1_1 is not known"
	if why := at.unknown(n); why != n.unknown {
		t.Error(why)
	}
}
