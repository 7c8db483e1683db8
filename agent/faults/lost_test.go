package faults

import (
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/gpu"
)

// TestLost: what cannot be read closes each GPU until it is opened, and hides nothing that
// the hardware reports now. A MIG device is closed with its GPU, and not by its own name.
func TestLost(t *testing.T) {
	x := &Tracker{}
	x.Round(at(0), sight(gpuA, func(s *Sight) { s.Recovery = ptr(gpu.RecoveryGPUReset) }))
	x.Lose("troubles.json cannot be read", at(0))
	if v := x.Verdict(gpuA, at(0)); v.Class != ClosedForReset || strings.Contains(v.Reason, "troubles.json") {
		t.Errorf("a GPU that needs a reset: %+v", v)
	}
	if v := x.Verdict(gpuB, at(0)); v.Class != ClosedBroken || !strings.Contains(v.Reason, "troubles.json") || !strings.Contains(v.Reason, "gpu open") {
		t.Errorf("another GPU: %+v", v)
	}
	if v := x.Verdict("MIG-0000000b-0000-5000-8000-000000000000", at(0)); v.Closed() {
		t.Errorf("a MIG device: %+v", v)
	}
	x.Open(gpuB)
	if v := x.Verdict(gpuB, at(0)); v.Closed() || !x.Lost([]gpu.UUID{gpuA, gpuB}) {
		t.Errorf("an opened GPU: %+v", v)
	}
	x.Open(gpuA)
	if x.Lost([]gpu.UUID{gpuA, gpuB}) {
		t.Error("GPUs are lost that were opened")
	}
}

// TestAdvice: an open GPU whose memory waits for a repair says so.
func TestAdvice(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Sight)
		want   string
	}{
		"rows":    {func(s *Sight) { s.RowsPending = ptr(true) }, "rows of its memory wait to be remapped"},
		"pages":   {func(s *Sight) { s.PagesPending = ptr(true) }, "pages of its memory wait to be retired"},
		"neither": {nil, ""},
	} {
		x := &Tracker{}
		x.Round(at(0), sight(gpuA, nil))
		x.Round(at(1), sight(gpuA, c.change))
		if v := x.Verdict(gpuA, at(1)); v.Closed() || !strings.Contains(v.Advice, c.want) || (c.want == "") != (v.Advice == "") {
			t.Errorf("%s: %+v", name, v)
		}
	}
}
