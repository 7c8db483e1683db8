package modes

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/startd"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/test/proctree"
)

const one = gpu.UUID("GPU-00000000-0000-4000-8000-000000000000")

// node is a node of one GPU, its startds and its jobs.
type node struct {
	mode   gpu.ComputeMode
	refuse error
	slots  []condor.Slot
	err    error
	known  bool
}

func (n *node) SetComputeMode(_ context.Context, _ gpu.UUID, m gpu.ComputeMode) error {
	if n.refuse == nil {
		n.mode = m
	}
	return n.refuse
}

func (n *node) Slots(context.Context) ([]startd.Answer, error) {
	return []startd.Answer{{Slots: n.slots, Err: n.err}}, n.err
}

func (n *node) Busy(gpu.UUID) bool { return n.known }

func (n *node) HeldBy(starter.Starter) []jobs.Job {
	if !n.known {
		return nil
	}
	return []jobs.Job{{}}
}

func (n *node) inventory() gpu.Inventory {
	return gpu.Inventory{GPUs: []gpu.GPU{{UUID: one, ComputeMode: n.mode}}}
}

var shared = plan.Plan{GPUs: []plan.GPU{{UUID: one, Mode: config.ModeMPS, ComputeMode: gpu.ComputeModeExclusiveProcess}}}

func newTestModes(t *testing.T, n *node) (*Modes, proctree.Tree) {
	tree := proctree.New(t)
	return New(Options{
		File: filepath.Join(t.TempDir(), "undo.json"), Hardware: n, Jobs: n, Startds: n,
		Node: starter.Node{FS: process.FS{Root: tree.Root}}, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}), tree
}

// says is what Borrow says of the GPU.
func (n *node) says(t *testing.T, m *Modes) string {
	t.Helper()
	says, err := m.Borrow(t.Context(), shared, n.inventory())
	if err != nil {
		t.Fatal(err)
	}
	return says[one]
}

// TestBorrowAndReturn: the mode of before comes back, also by a later agent.
func TestBorrowAndReturn(t *testing.T) {
	n := &node{mode: gpu.ComputeModeDefault}
	m, _ := newTestModes(t, n)
	if got := n.says(t, m); got != "exclusive-process" || n.mode != gpu.ComputeModeExclusiveProcess {
		t.Errorf("%q, the GPU is in %s", got, n.mode)
	}
	later := New(m.o)
	if err := later.Return(t.Context(), n.inventory(), func(gpu.UUID) bool { return true }); err != nil ||
		n.mode != gpu.ComputeModeExclusiveProcess {
		t.Errorf("a GPU that stays shared is in %s (%v)", n.mode, err)
	}
	read := func(context.Context) (gpu.Inventory, []error, error) { return n.inventory(), nil, nil }
	if err := later.Restore(t.Context(), read); err != nil || n.mode != gpu.ComputeModeDefault {
		t.Errorf("the GPU is left in %s (%v)", n.mode, err)
	}
	if j, err := Read(m.o.File); err != nil || len(j.ComputeModes) > 0 {
		t.Errorf("%v is left in the journal (%v)", j.ComputeModes, err)
	}
}

// TestAbsentStaysNoted: a GPU that is not there when modes are restored keeps its entry.
func TestAbsentStaysNoted(t *testing.T) {
	n := &node{mode: gpu.ComputeModeDefault}
	m, _ := newTestModes(t, n)
	n.says(t, m)
	none := func(context.Context) (gpu.Inventory, []error, error) { return gpu.Inventory{}, nil, nil }
	if err := m.Restore(t.Context(), none); err != nil {
		t.Fatal(err)
	}
	if j, err := Read(m.o.File); err != nil || j.ComputeModes[one] != gpu.ComputeModeDefault {
		t.Errorf("%v, %v", j.ComputeModes, err)
	}
}

// TestRefused: a change that fails leaves no entry, and is tried again after a while, or when
// the configuration is read again.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{mode: gpu.ComputeModeDefault, refuse: errors.New("no permission")}
		m, _ := newTestModes(t, n)
		if got := n.says(t, m); got != "default, not exclusive-process: no permission" {
			t.Errorf("%q", got)
		}
		if j, _ := Read(m.o.File); len(j.ComputeModes) > 0 {
			t.Errorf("nothing was changed, and %v is noted", j.ComputeModes)
		}
		n.refuse = nil
		if n.says(t, m); n.mode != gpu.ComputeModeDefault {
			t.Error("it is tried again at once")
		}
		time.Sleep(retry)
		if n.says(t, m); n.mode != gpu.ComputeModeExclusiveProcess {
			t.Error("it is not tried again")
		}
		n.mode, n.refuse = gpu.ComputeModeDefault, errors.New("no permission")
		n.says(t, m)
		n.refuse = nil
		m.TryAgain()
		if n.says(t, m); n.mode != gpu.ComputeModeExclusiveProcess {
			t.Error("a new configuration does not let it be tried")
		}
	})
}

// TestHeldElsewhere: no mode changes under a job that has the GPU without the agent's
// admission, or may have it.
func TestHeldElsewhere(t *testing.T) {
	job := condor.Slot{Name: "slot1_1@x", Type: "Dynamic", JobID: "7.0", AssignedGPUs: []string{string(one)}}
	odd := job
	odd.AssignedGPUs, odd.Unreadable = nil, "AssignedGPUs"
	for name, c := range map[string]struct {
		slots []condor.Slot
		err   error
		want  string
	}{
		"a job":     {[]condor.Slot{job}, nil, "until the job in slot1_1@x ends"},
		"no answer": {nil, errors.New("no answer"), "until it is known which GPUs the job in slot1_1 has: no answer"},
		"one does not answer": {
			[]condor.Slot{{Name: "slot1_2@x", Type: "Dynamic", JobID: "8.0", AssignedGPUs: []string{"GPU-elsewhere"}}}, errors.New("no answer"),
			"until it is known which GPUs the job in slot1_1 has: no answer"},
		"an unreadable slot": {[]condor.Slot{odd}, nil, "attributes that cannot be read: AssignedGPUs"},
	} {
		n := &node{mode: gpu.ComputeModeDefault, slots: c.slots, err: c.err}
		m, tree := newTestModes(t, n)
		tree.Starter(100, "slot1_1")
		if got := n.says(t, m); !strings.Contains(got, c.want) || n.mode != gpu.ComputeModeDefault {
			t.Errorf("%s: %q", name, got)
		}
		n.known = true
		if got := n.says(t, m); got != "exclusive-process" {
			t.Errorf("%s, an admitted job: %q", name, got)
		}
	}
}
