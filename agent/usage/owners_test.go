package usage

import (
	"os/exec"
	"testing"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// A server is not looked for among the slots again, and is none any more when its control daemon is gone.
func TestServersStay(t *testing.T) {
	n := newNode(t)
	n.process(t, 104, 1)
	n.servers[104] = true
	n.readings = []gpu.Reading{reads(gpuA, on(104, gib))}
	s := n.sampler()
	owner := func() Owner {
		d, _ := n.round(t, s).Device(wholeA)
		return d.Processes.Value[0].Owner
	}
	if got := owner(); got != OwnerServer || n.asked != 1 {
		t.Fatalf("the server is of %q, and %d processes were looked for in slots", got, n.asked)
	}
	if got := owner(); got != OwnerServer || n.asked != 1 {
		t.Errorf("the server is of %q, and %d processes were looked for in slots", got, n.asked)
	}
	n.servers[104] = false
	if got := owner(); got != OwnerNone {
		t.Errorf("a server without its control daemon is of %q", got)
	}
}

// Processes that were read once are followed without /proc, to their end.
func TestProcessesAreFollowed(t *testing.T) {
	c := exec.Command("sleep", "infinity")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	end := func() { _ = c.Process.Kill(); _ = c.Wait() }
	defer end()
	pid := c.Process.Pid
	n := newNode(t)
	n.proc = "" // the real one
	n.slots[pid] = slot1
	n.readings = []gpu.Reading{reads(gpuA, on(pid, gib))}
	s := n.sampler()
	listed := func() Process {
		d, _ := n.round(t, s).Device(wholeA)
		return d.Processes.Value[0]
	}
	was, err := process.FS{}.Stat(pid)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := listed(); got.Owner != OwnerSlot || got.Slot != slot1 || got.Started != was.Started {
			t.Errorf("the process is %+v", got)
		}
		if id, ok := s.owners.running.Find(pid); !ok || id != was.ID {
			t.Errorf("it is followed as %v, %v", id, ok)
		}
	}
	end()
	if got := listed(); got.Owner != OwnerEnded || got.Started != 0 {
		t.Errorf("a process that has ended is %+v", got)
	}
	n.readings = []gpu.Reading{reads(gpuA)}
	n.round(t, s)
	if _, ok := s.owners.running.Find(pid); ok {
		t.Error("a process that is not listed any more is followed")
	}
}

// Who leaves the GPU and runs on is not followed any more.
func TestOnlyListedAreFollowed(t *testing.T) {
	c := exec.Command("sleep", "infinity")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	n := newNode(t)
	n.proc = ""
	n.readings = []gpu.Reading{reads(gpuA, on(c.Process.Pid, gib))}
	s := n.sampler()
	n.round(t, s)
	if _, ok := s.owners.running.Find(c.Process.Pid); !ok {
		t.Fatal("a process on the GPU is not followed")
	}
	n.readings = []gpu.Reading{reads(gpuA)}
	n.round(t, s)
	if _, ok := s.owners.running.Find(c.Process.Pid); ok {
		t.Error("a process that left the GPU is followed")
	}
}
