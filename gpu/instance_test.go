package gpu

import "testing"

// TestHolder: who blocks is named by what is known.
func TestHolder(t *testing.T) {
	for want, h := range map[string]Holder{
		"slot1_2 (pid 7 python3, job.service)": {PID: 7, Command: "python3", Unit: "job.service", Slot: "slot1_2"},
		"pid 7 python3":                        {PID: 7, Command: "python3"},
		"slot1_2":                              {Slot: "slot1_2"},
		"somebody unknown":                     {},
	} {
		if got := h.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestInstances(t *testing.T) {
	whole := Instance{Place: Place{5, 2}, Owner: Ours, Compute: []ComputeInstance{{UUID: "MIG-1", Multiprocessors: 28}}}
	half := Instance{Place: Place{14, 1}, Owner: Foreign}
	s := MIGState{MIGGPU: MIGGPU{Chip: a30, Instances: []Instance{whole, half}}}
	if u, ok := whole.UUID(); !ok || u != "MIG-1" {
		t.Errorf("UUID %s, %v", u, ok)
	}
	if _, ok := half.UUID(); ok {
		t.Error("an instance without a compute instance has a UUID")
	}
	if !s.Whole(whole) || s.Whole(half) {
		t.Error("only the instance with one compute instance is whole")
	}
	if whole.Pinned() || !half.Pinned() {
		t.Error("only the foreign instance must stay")
	}
	whole.Holders = []Holder{{Unit: "gpuslot-mps@x.service", Ours: true}}
	if whole.Busy() {
		t.Error("our own control daemon makes an instance busy")
	}
	whole.Holders = append(whole.Holders, Holder{PID: 7})
	if !whole.Busy() || !whole.Pinned() {
		t.Error("an instance that a process uses need not stay")
	}
	if got, ok := s.At(Place{14, 1}); !ok || got.Owner != Foreign {
		t.Errorf("at 14@1: %+v, %v", got, ok)
	}
	if _, ok := s.At(Place{14, 0}); ok {
		t.Error("there is an instance at 14@0")
	}
	if l := s.Layout(); !l.Equal(Layout{{5, 2}, {14, 1}}) {
		t.Errorf("the layout is %v", l)
	}
}
