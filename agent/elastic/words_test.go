package elastic

import (
	"testing"

	"github.com/gpuslot/gpuslot/gpu"
)

// TestReadyIsOfTheWholeSide: a GPU that serves shared jobs is not ready for whole ones, whatever is set up.
func TestReadyIsOfTheWholeSide(t *testing.T) {
	g, _, _, _ := newGroup(2)
	g.state.Sides[0] = Whole
	for _, is := range []bool{true, false} {
		g.SetUp(func(gpu.UUID) bool { return is })
		if g.ready[g.order[0]] != is || g.ready[g.order[1]] {
			t.Errorf("set up %t: ready %v", is, g.ready)
		}
	}
}

// TestWhyNoneIsOpen: the monitor hears whether whole jobs are waited for.
func TestWhyNoneIsOpen(t *testing.T) {
	g, _, _, _ := newGroup(1)
	if got := g.Open().Reason; got != "all elastic GPUs serve shared jobs now" {
		t.Errorf("%q", got)
	}
	if g.state.Target = 1; g.Open().Reason != "GPUs are being made free for whole jobs" {
		t.Errorf("%q", g.Open().Reason)
	}
	if g.state.Open = 1; g.Open().Reason != "" || len(g.Open().GPUs) != 1 {
		t.Errorf("%+v", g.Open())
	}
}
