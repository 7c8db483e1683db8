package agent

import (
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
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
			if (site{ta.Agent}).Server(pid, proctree.StartOf(pid)) != is {
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

	ta.daemons.change(uuid(0), func(d *fakeDaemon) {
		d.servers = []mps.Server{{ID: process.ID{PID: 70, Started: proctree.StartOf(70)}}}
	})
	ta.apply(false)
	expect("a server that the daemon lists", map[int]bool{70: true, 80: false})
}

// TestServerCostsWhatItUses: the pool shrinks when an MPS server uses more VRAM than the
// plan keeps for it, and does not grow again with the next sample.
func TestServerCostsWhatItUses(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	pool := func(want gpu.MiB) {
		t.Helper()
		if g := ta.apply(false).plan.GPUs[0]; g.Pool != want {
			t.Fatalf("a pool of %s (%s), want %s", g.Pool, g.Kept, want)
		}
	}
	pool(32256) // 32768 - 258 - 64 - 64
	server := process.ID{PID: 60, Started: proctree.StartOf(60)}
	ta.proc.Add(proctree.Process{PID: server.PID, Parent: 1, Comm: "nvidia-cuda-mps", Started: server.Started})
	ta.daemons.change(uuid(0), func(d *fakeDaemon) { d.servers = []mps.Server{{ID: server, Status: mps.Active}} })
	ta.apply(false)
	r := gpu.Reading{GPU: uuid(0), At: time.Now().Add(time.Hour)}
	source := &fakeUsage{[]gpu.Reading{r}}
	ta.sampler = usage.NewSampler(usage.Options{Source: source, Site: site{ta.Agent}, Interval: time.Second, Proc: ta.proc.Root})
	uses := func(mib gpu.MiB) {
		source.readings[0].Processes = gpu.Known([]gpu.DeviceProcess{{PID: server.PID, Memory: gpu.Known(gpu.Bytes(mib.Bytes()))}})
		ta.sampler.Round(t.Context())
	}
	uses(60)
	pool(32256)
	uses(700)
	pool(31232) // 32768 - 258 - 704 - 64 = 31742
	uses(60)
	pool(31232)
	if inForce := ta.view.Load().plan; inForce.Servers()[uuid(0)] != 704 {
		t.Errorf("the plan keeps %v for servers", inForce.Servers())
	}
}
