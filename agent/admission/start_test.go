package admission

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// TestStart: the word to start comes when the limits of the job's cgroup are in force.
func TestStart(t *testing.T) {
	n := newNode(t)
	s := n.starter(100, "slot1_1")
	n.grant(s, 1000, "alice", uuid(0), 4096)
	n.proc.Add(proctree.Process{PID: 200, Parent: s.PID, Comm: "wrap", UID: 1000, Cgroup: proctree.CgroupOf("slot1_1")})
	supervisor := starter.Caller{UID: 1000, PID: 200, Starter: s}
	leaf := n.view.Leaf(200).Path
	if leaf == "" {
		t.Fatal("the job has no cgroup")
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

// TestNoPlan: nobody is admitted, and nobody starts.
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
