package modes

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// TestModesThatStay: a GPU with the mode, without one, or that is not to have one, is left alone.
func TestModesThatStay(t *testing.T) {
	for name, c := range map[string]struct {
		mode gpu.ComputeMode
		plan plan.GPU
		want string
	}{
		"as wanted":  {gpu.ComputeModeExclusiveProcess, shared.GPUs[0], "exclusive-process"},
		"unknown":    {"", shared.GPUs[0], "unknown, exclusive-process is wanted"},
		"whole":      {gpu.ComputeModeDefault, plan.GPU{UUID: one, Mode: config.ModeWhole, ComputeMode: gpu.ComputeModeExclusiveProcess}, ""},
		"none wants": {gpu.ComputeModeDefault, plan.GPU{UUID: one, Mode: config.ModeMPS}, ""},
	} {
		n := &node{mode: c.mode}
		m, _ := newTestModes(t, n)
		says, err := m.Borrow(t.Context(), plan.Plan{GPUs: []plan.GPU{c.plan}}, n.inventory())
		if err != nil || says[one] != c.want || n.mode != c.mode {
			t.Errorf("%s: %q, %v, the GPU is in %s", name, says[one], err, n.mode)
		}
		if _, err := os.Stat(m.o.File); err == nil {
			t.Errorf("%s: it is noted", name)
		}
	}
}

// TestJournalThatDoesNotRead: no mode is changed without a way back.
func TestJournalThatDoesNotRead(t *testing.T) {
	n := &node{mode: gpu.ComputeModeDefault}
	m, _ := newTestModes(t, n)
	if err := os.WriteFile(m.o.File, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if says, err := m.Borrow(t.Context(), shared, n.inventory()); err == nil || says[one] == "" || n.mode != gpu.ComputeModeDefault {
		t.Errorf("%q, %v, the GPU is in %s", says[one], err, n.mode)
	}
	if m.Return(t.Context(), n.inventory(), nil) == nil || m.Restore(t.Context(), nil) == nil {
		t.Error("what cannot be read is nothing to restore")
	}
}

// TestModeThatDoesNotComeBack: it stays noted, and the error says which. Nothing is read without a note.
func TestModeThatDoesNotComeBack(t *testing.T) {
	n := &node{mode: gpu.ComputeModeDefault}
	m, _ := newTestModes(t, n)
	reads := 0
	var fails error
	read := func(context.Context) (gpu.Inventory, []error, error) { reads++; return n.inventory(), nil, fails }
	if err := m.Restore(t.Context(), read); err != nil || reads > 0 {
		t.Errorf("%v, read %d times", err, reads)
	}
	n.says(t, m)
	n.refuse = errors.New("no permission")
	noted := func() bool {
		j, err := Read(m.o.File)
		return err == nil && j.ComputeModes[one] == gpu.ComputeModeDefault
	}
	if err := m.Restore(t.Context(), read); !errors.Is(err, n.refuse) || !noted() {
		t.Errorf("%v, noted %t", err, noted())
	}
	n.mode = gpu.ComputeModeDefault // somebody else set it back: the first note stays
	if m.TryAgain(); n.says(t, m) == "exclusive-process" || !noted() {
		t.Errorf("noted %t", noted())
	}
	n.refuse, fails = nil, errors.New("no driver")
	if err := m.Restore(t.Context(), read); !errors.Is(err, fails) || !noted() {
		t.Errorf("%v, noted %t", err, noted())
	}
	if fails = nil; m.Restore(t.Context(), read) != nil || noted() {
		t.Error("it is still noted")
	}
}

// TestSlotsThatHoldNothing: a partitionable slot, and one between two jobs, hold no GPU, and an ad may name odd ids.
func TestSlotsThatHoldNothing(t *testing.T) {
	for name, s := range map[string]condor.Slot{
		"partitionable":    {Type: "Partitionable", JobID: "7.0", AssignedGPUs: []string{string(one)}},
		"between two jobs": {Type: "Dynamic", AssignedGPUs: []string{string(one)}},
		"an odd id":        {Type: "Dynamic", JobID: "7.0", AssignedGPUs: []string{"CUDA0"}},
	} {
		n := &node{mode: gpu.ComputeModeDefault, slots: []condor.Slot{s}}
		m, _ := newTestModes(t, n)
		if got := n.says(t, m); got != "exclusive-process" {
			t.Errorf("%s: %q", name, got)
		}
	}
}
