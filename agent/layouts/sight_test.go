package layouts

import (
	"maps"
	"slices"
	"testing"

	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// TestSight: which GPUs a decision is about. One that is left out keeps no later one from it.
func TestSight(t *testing.T) {
	const other = gpu.UUID("GPU-00000001-0000-4000-8000-000000000000")
	for name, c := range map[string]struct {
		set  func(*node, *Node)
		want int
	}{
		"its layout is made": {func(*node, *Node) {}, 1},
		"another setting before it": {func(n *node, at *Node) {
			n.reached[other] = "x"
			at.Plan.MIG = append([]plan.MIGGPU{{UUID: other, Repartition: mig.Suggest}}, at.Plan.MIG...)
		}, 1},
		"one that waits before it": {func(n *node, at *Node) {
			n.reached[other], n.waits[other] = "x", true
			at.Plan.MIG = append([]plan.MIGGPU{{UUID: other, Repartition: mig.Auto}}, at.Plan.MIG...)
		}, 1},
		"it waits":        {func(n *node, _ *Node) { n.waits[testGPU] = true }, 0},
		"it is not made":  {func(n *node, _ *Node) { delete(n.reached, testGPU) }, 0},
		"MIG mode is off": {func(n *node, _ *Node) { n.gpu.S.Enabled = false }, 0},
	} {
		n := followingNode(t, "auto", "")
		at := n.now()
		c.set(n, &at)
		s, states, err := n.sight(t.Context(), &at, mig.Auto)
		if err != nil || len(s.GPUs) != c.want || len(states) != c.want || len(s.Places[testGPU]) != c.want*11 {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
}

// TestSightOfWhatCannotBeRead: a decision about a part of the GPUs would be another one.
func TestSightOfWhatCannotBeRead(t *testing.T) {
	n := followingNode(t, "auto", "")
	at := n.now()
	h := &unsteady{GPU: n.gpu, err: errNo}
	n.executor.Hardware = h
	if _, _, err := n.sight(t.Context(), &at, mig.Auto); err == nil {
		t.Error("a GPU that does not answer is no error")
	}
	h.err = nil
	at.Plan.MIG[0].Placed = []string{"9g.99gb@0"}
	if _, _, err := n.sight(t.Context(), &at, mig.Auto); err == nil {
		t.Error("a layout that the chip cannot have is no error")
	}
}

// TestBeatsBeforeEachLook: the loop shows that it is alive before each question to a GPU.
func TestBeatsBeforeEachLook(t *testing.T) {
	n := followingNode(t, "auto", "")
	at := n.now()
	n.executor.Hardware = &unsteady{GPU: n.gpu, err: errNo}
	delete(n.reached, testGPU)
	n.divide("", "")
	gone := n.now()
	for name, look := range map[string]func(){
		"make":  func() { n.makeAll(t.Context(), &at, func(error) {}) },
		"leave": func() { n.leaveGPUs(t.Context(), &gone, func(error) {}) },
		"sight": func() {
			n.reached[testGPU], n.waits = "x", nil
			_, _, _ = n.sight(t.Context(), &at, mig.Auto)
		},
	} {
		n.beats = 0
		if look(); n.beats != 1 {
			t.Errorf("%s: %d beats", name, n.beats)
		}
	}
}

// TestKeptFree: of what a reservation names, the devices that exist take no new jobs, by their own names and the plan's.
func TestKeptFree(t *testing.T) {
	n := followingNode(t, "auto", "")
	s, err := n.executor.State(t.Context(), testGPU)
	if err != nil {
		t.Fatal(err)
	}
	s.Instances[0].Compute = nil
	keep := gpu.NewLayout(s.Instances[0].Place, s.Instances[1].Place)
	n.kept = map[gpu.UUID]string{}
	got := n.keepFree(map[gpu.UUID]gpu.MIGState{testGPU: s}, []mig.Reservation{{GPU: "GPU-gone", Keep: keep}, {GPU: testGPU, Keep: keep}})
	if want := string(testGPU) + ": " + s.Chip.FormatPlace(s.Instances[1].Place); !slices.Equal(got, []string{want}) {
		t.Errorf("kept free are %q, want %s", got, want)
	}
	device, _ := s.Instances[1].UUID()
	slot := n.place(s.Chip.FormatPlace(s.Instances[1].Place)).UUID
	if names := slices.Sorted(maps.Keys(n.kept)); !slices.Equal(names, slices.Sorted(slices.Values([]gpu.UUID{device, slot}))) {
		t.Errorf("no new jobs come to %q, want %s and %s", names, device, slot)
	}
}
