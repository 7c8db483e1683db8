package agent

import (
	"testing"

	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// TestServers: a control daemon of the node's makes a process an MPS server. A name
// does not: what a login's process of that name uses would be charged to nobody.
func TestServers(t *testing.T) {
	const daemon, login = 50, "/user.slice/user-1000.slice/session-1.scope"
	ta := newTestAgent(t, 1, "")
	d := ta.daemons.running[uuid(0)].process
	ta.proc.Add(proctree.Process{PID: d.PID, Parent: 1, Comm: "nvidia-cuda-mps", Started: d.Started})
	ta.proc.Add(proctree.Process{PID: 60, Parent: d.PID, Comm: "renamed", UID: 1000})
	ta.proc.Add(proctree.Process{PID: 70, Parent: 1, Comm: "nvidia-cuda-mps", Exe: "/usr/bin/nvidia-cuda-mps-server", UID: 1000, Cgroup: login})
	ta.proc.Add(proctree.Process{PID: daemon, Parent: 1, Comm: "nvidia-cuda-mps", Exe: "/usr/bin/nvidia-cuda-mps-control", UID: 1000, Cgroup: login})
	ta.proc.Add(proctree.Process{PID: 80, Parent: daemon, Comm: "nvidia-cuda-mps", UID: 1000, Cgroup: login})
	expect := func(when string, want map[int]bool) {
		t.Helper()
		for pid, is := range want {
			if (site{ta.Agent}).Server(pid, uint64(pid)*100) != is {
				t.Errorf("%s: process %d is an MPS server: %v, want %v", when, pid, !is, is)
			}
		}
	}
	expect("a proven daemon", map[int]bool{60: true, 70: false, 80: false})
	if (site{ta.Agent}).Server(60, 1) {
		t.Error("a process whose PID was a server's is one")
	}
	ta.daemons.change(uuid(0), func(d *fakeDaemon) { d.frozen = true })
	expect("a suspended daemon", map[int]bool{60: true, 70: false, 80: false})

	ta.daemons.kill(uuid(0), true)
	next := ta.daemons.running[uuid(0)].process
	ta.proc.Add(proctree.Process{PID: d.PID, Parent: 1, Comm: "bash", UID: 1000}) // its PID is used again
	ta.proc.Add(proctree.Process{PID: next.PID, Parent: 1, Comm: "nvidia-cuda-mps", Started: next.Started})
	ta.proc.Add(proctree.Process{PID: 90, Parent: next.PID, Comm: "nvidia-cuda-mps", UID: 1000})
	expect("a daemon started since the proof", map[int]bool{60: false, 90: true, 70: false, 80: false})

	ta.daemons.change(uuid(0), func(d *fakeDaemon) { d.servers = []mps.Server{{ID: process.ID{PID: 70, Started: 7000}}} })
	ta.apply(false)
	expect("a server that the daemon lists", map[int]bool{70: true, 80: false})
}
