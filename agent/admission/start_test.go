package admission

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// TestStart: the word to start comes when the limits of the job's cgroup are in force.
func TestStart(t *testing.T) {
	n := newNode(t)
	s := n.starter(100, "slot1_1")
	n.grant(s, 1000, "alice", uuid(0), 4096)
	n.proc.Add(proctree.Process{PID: 200, Parent: s.PID, Comm: "wrap", UID: 1000, Cgroup: proctree.CgroupOf("slot1_1")})
	supervisor, err := n.view.Identify(1000, 200)
	leaf := supervisor.Leaf.Path
	if err != nil || leaf == "" {
		t.Fatalf("the job has no cgroup: %v", err)
	}
	reply := n.Start(t.Context(), supervisor)
	if reply.Started == nil || !reply.Started.Supervise || !reply.Started.Reserved {
		t.Errorf("%+v", reply)
	}
	if strings.Join(n.limited, " ") != leaf || strings.Join(n.nodesOf, " ") != leaf {
		t.Errorf("limited %v, device nodes of %v, want %s", n.limited, n.nodesOf, leaf)
	}

	n.closeFails = errors.New("no BPF")
	if r := n.Start(t.Context(), supervisor).Refusal; r == nil || !strings.Contains(r.Reason, "no BPF") {
		t.Errorf("without its rule it starts: %+v", r)
	}
	n.limited, n.cgroupRefuses = nil, errors.New("ask from the job's cgroup")
	if r := n.Start(t.Context(), supervisor).Refusal; r == nil || r.Code != api.CodeClosed || len(n.limited) > 0 {
		t.Errorf("%+v, limited %v", r, n.limited)
	}
	if reply := n.Start(t.Context(), starter.Caller{UID: 1000, PID: 200}); reply.Error == "" {
		t.Errorf("below no starter: %+v", reply)
	}
}

// TestStartNeedsLimit: where only the driver holds a job to its budget it starts with its limit, or
// not at all. The pipe directory stays closed to all accounts.
func TestStartNeedsLimit(t *testing.T) {
	n := newNode(t)
	s := n.starter(100, "slot1_1")
	n.grant(s, 1000, "alice", uuid(0), 4096)
	n.proc.Add(proctree.Process{PID: 200, Parent: s.PID, Comm: "wrap", UID: 1000, Cgroup: proctree.CgroupOf("slot1_1")})
	supervisor, err := n.view.Identify(1000, 200)
	if err != nil {
		t.Fatal(err)
	}
	n.limitFails = errors.New("not supported")
	if reply := n.Start(t.Context(), supervisor); reply.Started == nil || reply.Started.Reserved {
		t.Errorf("with MPS: %+v", reply)
	}
	n.now().Plan.GPUs[0].Mode = config.ModeTimeSlice
	r := n.Start(t.Context(), supervisor).Refusal
	if r == nil || r.Code != api.CodeClosed || !strings.Contains(r.Reason, "not supported") {
		t.Errorf("without its limit it starts: %+v", r)
	}
	n.limitFails = nil
	if reply := n.Start(t.Context(), supervisor); reply.Started == nil || !reply.Started.Reserved {
		t.Errorf("with its limit: %+v", reply)
	}
}

// TestCallerThatEnded: the PID of a caller may be another job's by the time of its answer. It is
// not looked up again.
func TestCallerThatEnded(t *testing.T) {
	its := proctree.CgroupOf("slot1_1")
	caller := func(n *node) starter.Caller {
		s, other := n.starter(100, "slot1_1"), n.starter(101, "slot1_2")
		n.proc.Add(proctree.Process{PID: 200, Parent: s.PID, Comm: "wrap", UID: 1000, Cgroup: its})
		c, err := n.view.Identify(1000, 200)
		if err != nil {
			t.Fatal(err)
		}
		n.proc.Add(proctree.Process{PID: 200, Parent: other.PID, Comm: "wrap", UID: 1001, Cgroup: proctree.CgroupOf("slot1_2")})
		return c
	}
	n := newNode(t)
	c := caller(n)
	n.grant(c.Starter, 1000, "alice", uuid(0), 4096)
	n.Start(t.Context(), c)
	if strings.Join(n.limited, " ") != its || strings.Join(n.nodesOf, " ") != its {
		t.Errorf("at its start: limited %v, device nodes of %v, want %s", n.limited, n.nodesOf, its)
	}
	n = newNode(t) // without a hook the startd is asked first
	c = caller(n)
	n.startds.slots = []condor.Slot{slotAd("slot1_1", "9.0", "alice", 4096, uuid(0))}
	if reply := n.prepare(c, jobOn(c.Starter, "alice", uuid(0), 4096)); reply.Grant == nil || strings.Join(n.nodesOf, " ") != its {
		t.Errorf("%+v, device nodes of %v, want %s", reply, n.nodesOf, its)
	}
}

// TestStartOfAWholeGPU: the job needs no supervisor and gets no limit.
func TestStartOfAWholeGPU(t *testing.T) {
	n := newNode(t)
	s := n.starter(100, "slot1_1")
	n.grant(s, 1000, "alice", uuid(1), 32768)
	n.proc.Add(proctree.Process{PID: 200, Parent: s.PID, Comm: "wrap", UID: 1000, Cgroup: proctree.CgroupOf("slot1_1")})
	reply := n.Start(t.Context(), starter.Caller{UID: 1000, PID: 200, Starter: s})
	if reply.Started == nil || *reply.Started != (api.Started{}) || len(n.limited) > 0 || len(n.nodesOf) != 1 {
		t.Errorf("%+v, limited %v, device nodes of %v", reply, n.limited, n.nodesOf)
	}
}

// TestNoPlan: without a plan no job is admitted and none starts.
func TestNoPlan(t *testing.T) {
	n := newNode(t)
	without := func() Node {
		now := n.now()
		now.NoPlan = "no GPU of this node takes jobs yet"
		return now
	}
	n.Node = without
	s := n.starter(100, "slot1_1")
	if r := n.prepare(hookOf(s, 1000), jobOn(s, "alice", uuid(0), 4096)).Refusal; r == nil || r.Code != api.CodeClosed {
		t.Errorf("%+v", r)
	}
	if err := os.MkdirAll(filepath.Join(n.proc.Root, "200"), 0o755); err != nil {
		t.Fatal(err)
	}
	if r := n.Start(t.Context(), starter.Caller{UID: 1000, PID: 200, Starter: s}).Refusal; r == nil || r.Reason != without().NoPlan {
		t.Errorf("%+v", r)
	}
}
