package admission

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/mps"
)

// TestRefused: a closed GPU wakes the loop, so that START hears of it. That a GPU is
// full counts from a hook alone, and of a starter without a GPU.
func TestRefused(t *testing.T) {
	n := newNode(t)
	g := &n.state.Plan.GPUs[0]
	with := n.starter(100, "slot1_1")
	n.grant(with, 1000, "alice", uuid(0), 4096)
	hook := hookOf(n.starter(101, "slot1_2"), 1000)
	job := hook
	job.Hook = false
	for _, c := range []struct {
		name        string
		caller      starter.Caller
		code        int
		wakes, full bool
	}{
		{"closed", hook, api.CodeClosed, true, false},
		{"full, by a hook", hook, api.CodeNotPlanned, false, true},
		{"full, by a job", job, api.CodeNotPlanned, false, false},
		{"full, by who has a GPU", hookOf(with, 1000), api.CodeNotPlanned, false, false},
		{"the job's fault", hook, api.CodeTooLarge, false, false},
	} {
		n.Jobs.NewPlan()
		n.changed = 0
		var full bool
		n.Jobs.Look(func(running *jobs.View) {
			n.refused(running, c.caller, g, api.Refuse(c.code, ""))
			full = running.IsFull(g.UUID)
		})
		if wakes := n.changed > 0; wakes != c.wakes || full != c.full {
			t.Errorf("%s: it wakes %t, full %t", c.name, wakes, full)
		}
	}
}

func TestPipeDirectoryDoesNotOpen(t *testing.T) {
	n := newNode(t)
	n.access.err = errors.New("file system without POSIX ACLs")
	s := n.starter(100, "slot1_1")
	r := n.prepare(hookOf(s, 1000), jobOn(s, "alice", uuid(0), 4096)).Refusal
	if r == nil || r.Code != api.CodeClosed || !strings.Contains(r.Reason, "POSIX ACLs") {
		t.Errorf("refusal = %+v", r)
	}
	if len(n.Jobs.Running()) != 0 {
		t.Error("a job that did not get in is booked")
	}
}

// TestPartitionIsTakenBack: a job that does not get in leaves its partition to others.
func TestPartitionIsTakenBack(t *testing.T) {
	broken := errors.New("the disk is full")
	for name, c := range map[string]struct{ access, write error }{
		"the pipe directory does not open": {access: broken},
		"it cannot be kept":                {write: broken},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.state.Plan.GPUs[0].Threads.Policy = config.ThreadsPartitioned
			n.partitions.free = []string{"first", "second"}
			n.access.err, n.partitions.err = c.access, c.write
			s := n.starter(100, "slot1_1")
			job := jobOn(s, "alice", uuid(0), 4096)
			if r := n.prepare(hookOf(s, 1000), job).Refusal; r == nil || !strings.Contains(r.Reason, broken.Error()) {
				t.Errorf("%+v", r)
			}
			if len(n.partitions.free) != 2 || len(n.Jobs.Running()) != 0 {
				t.Errorf("free are %v, and the job table has %+v", n.partitions.free, n.Jobs.Running())
			}
			n.access.err, n.partitions.err = nil, nil
			other := n.starter(101, "slot1_2")
			if got := n.grant(other, 1000, "alice", uuid(0), 4096).Environment[mps.PartitionVariable]; got != n.partitions.taken[other] {
				t.Errorf("it gets the partition %q", got)
			}
		})
	}
}

// TestReserve: gpuslotd's own job gets a GPU on which no job runs, and keeps others from it.
func TestReserve(t *testing.T) {
	n := newNode(t)
	g := &n.state.Plan.GPUs[0]
	own := hookOf(starter.Starter{ID: n.proc.Starter(300, "verify"), Slot: "verify"}, 65534)
	own.Confirmed = true
	alice := n.starter(100, "slot1_1")
	n.grant(alice, 1000, "alice", g.UUID, 4096)
	reserve := func() *api.Refusal {
		now := time.Now()
		_, refusal := n.Reserve(own, jobOn(own.Starter, "gpuslot", g.UUID, 4096), g, n.Health(g, 0, now), now)
		return refusal
	}
	if r := reserve(); r == nil || !strings.Contains(r.Reason, "a job came") {
		t.Errorf("beside a job: %+v", r)
	}
	n.proc.End(alice.PID)
	n.sweep()
	if r := reserve(); r != nil || !n.access.in[account{g.UUID, 65534}] {
		t.Errorf("%+v", r)
	}
	bob := n.starter(101, "slot1_2")
	if r := n.prepare(hookOf(bob, 1001), jobOn(bob, "bob", g.UUID, 4096)).Refusal; r == nil {
		t.Error("a job is let in beside it")
	}
}
