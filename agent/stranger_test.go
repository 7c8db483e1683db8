package agent

import (
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// TestTakenBack: what a slot does not have is closed, and the connections that its
// job made meanwhile end. Those of other jobs stay.
func TestTakenBack(t *testing.T) {
	for name, ad := range map[string]condor.Slot{
		"no GPU":      {Name: "slot1_1@wn1.example.org", JobID: "1_1.0"},
		"another GPU": slotAd("slot1_1", "1_1.0", "alice", 4096, uuid(1)),
	} {
		t.Run(name, func(t *testing.T) {
			ta := newTestAgent(t, 2, "")
			var ended []string
			ta.daemons.happens = func(what string) { ended = append(ended, what) }
			s, other := ta.proc.starter(1000, "slot1_1"), ta.proc.starter(1001, "slot1_2")
			ta.grant(s, 1000, "alice", uuid(0), 4096)
			ta.grant(other, 1000, "alice", uuid(0), 4096)
			ta.proc.Add(proctree.Process{PID: 2000, Parent: s.PID, Comm: "x", UID: 1000, Cgroup: proctree.CgroupOf("slot1_1")})
			ta.proc.Add(proctree.Process{PID: 2001, Parent: 1, Comm: "x", UID: 1000, Cgroup: proctree.CgroupOf("slot1_1")})
			ta.proc.Add(proctree.Process{PID: 2002, Parent: other.PID, Comm: "x", UID: 1000, Cgroup: proctree.CgroupOf("slot1_2")})
			ta.daemons.change(uuid(0), func(d *fakeDaemon) {
				d.servers = []mps.Server{{ID: process.ID{PID: 5000, Started: 1}, UID: 1000, Clients: []int{2000, 2001, 2002}}}
			})
			ta.startd.set([]condor.Slot{ad, slotAd("slot1_2", "1_2.0", "alice", 4096, uuid(0))}, nil)
			ta.startds.Ask(t.Context())
			ta.ender.Wait()
			if got := strings.Join(ended, ", "); got != "end [2000 2001]" {
				t.Errorf("the control daemon was told: %s", got)
			}
			ta.proc.End(other.PID)
			ta.sweeper.now()
			if ta.access.has(uuid(0), 1000) {
				t.Error("the pipe directory is still open")
			}
		})
	}
}

// TestStranger: MPS lets the jobs of another account wait without a word while a
// server has clients. So no account is admitted to a GPU while another's computes
// there, by the proof or, where that is older than the last job, by the daemon's word.
func TestStranger(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	serve := func(uid uint32, clients ...int) {
		ta.daemons.change(uuid(0), func(d *fakeDaemon) {
			d.servers = []mps.Server{{ID: process.ID{PID: 5000, Started: 1}, UID: uid, ThreadPercentage: "100.0", Clients: clients}}
		})
	}
	s := ta.proc.starter(100, "slot1_1")
	ta.grant(s, 1000, "alice", uuid(0), 4096)
	serve(1000, 4711)
	ta.apply(false)
	if why := ta.reason(0); why != "" {
		t.Fatalf("closed while its job runs: %s", why)
	}
	ta.proc.End(s.PID)
	pid := 200
	refused := func(when string) {
		t.Helper()
		pid++
		bob := ta.proc.starter(pid, "slot1_2")
		r := ta.refuse(bob, 1001, "bob", uuid(0), 4096)
		if r.Code != api.CodeOtherTenant || !r.Requeue || !strings.Contains(r.Reason, "process 4711 of uid 1000") {
			t.Errorf("%s: %+v", when, r)
		}
		if ta.access.has(uuid(0), 1001) {
			t.Errorf("%s: its pipe directory is open", when)
		}
		ta.proc.End(bob.PID)
	}
	refused("before the next proof")
	ta.apply(false)
	refused("after it")
	if why := ta.reason(0); !strings.Contains(why, "process 4711 of uid 1000") || !strings.Contains(why, "is still a client") {
		t.Errorf("START hears %q", why)
	}
	ta.daemons.change(uuid(0), func(d *fakeDaemon) { d.wedged = true })
	bob := ta.proc.starter(301, "slot1_3")
	if r := ta.refuse(bob, 1001, "bob", uuid(0), 4096); !strings.Contains(r.Reason, "is not known") {
		t.Errorf("a daemon that does not answer: %+v", r)
	}
	ta.daemons.change(uuid(0), func(d *fakeDaemon) { d.wedged = false })
	serve(1000)
	// Nobody waits for the next proof.
	ta.grant(ta.proc.starter(302, "slot1_4"), 1001, "bob", uuid(0), 4096)
	ta.apply(false)
	if why := ta.reason(0); why != "" {
		t.Errorf("still closed: %s", why)
	}
}
