package sampling

import (
	"testing"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/daemons"
	"github.com/gpuslot/gpuslot/agent/rules"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// TestServer: a control daemon of the node's makes a process an MPS server. A name does not: what a
// login's process of that name uses would be no job's.
func TestServer(t *testing.T) {
	const daemon, login = 50, "/user.slice/user-1000.slice/session-1.scope"
	n := newNode(t, 1)
	d := n.node.Daemons[uuid(0)].Checked.Process()
	n.proc.Add(proctree.Process{PID: d.PID, Parent: 1, Comm: "nvidia-cuda-mps", Started: d.Started})
	n.proc.Add(proctree.Process{PID: 60, Parent: d.PID, Comm: "renamed", UID: 1000})
	n.proc.Add(proctree.Process{PID: 70, Parent: 1, Comm: "nvidia-cuda-mps", Exe: "/usr/bin/nvidia-cuda-mps-server", UID: 1000, Cgroup: login})
	n.proc.Add(proctree.Process{PID: daemon, Parent: 1, Comm: "nvidia-cuda-mps", Exe: "/usr/bin/nvidia-cuda-mps-control", UID: 1000, Cgroup: login})
	n.proc.Add(proctree.Process{PID: 80, Parent: daemon, Comm: "nvidia-cuda-mps", UID: 1000, Cgroup: login})
	expect := func(when string, want map[int]bool) {
		t.Helper()
		for pid, is := range want {
			if (site{n.loop}).Server(pid, proctree.StartOf(pid)) != is {
				t.Errorf("%s: process %d is an MPS server: %v, want %v", when, pid, !is, is)
			}
		}
	}
	expect("the daemon that answered last", map[int]bool{60: true, 70: false, 80: false})
	if (site{n.loop}).Server(60, 1) {
		t.Error("a process whose PID was a server's is one")
	}
	next := process.ID{PID: 85, Started: 85}
	n.locks[uuid(0)] = next
	n.proc.Add(proctree.Process{PID: d.PID, Parent: 1, Comm: "bash", UID: 1000, Started: d.Started + 1}) // its PID is used again
	n.proc.Add(proctree.Process{PID: next.PID, Parent: 1, Comm: "nvidia-cuda-mps", Started: next.Started})
	n.proc.Add(proctree.Process{PID: 90, Parent: next.PID, Comm: "nvidia-cuda-mps", UID: 1000})
	expect("a daemon started since then", map[int]bool{60: false, 90: true, 70: false, 80: false})
	n.node.Daemons[uuid(0)] = daemons.State{Checked: mps.Checked{
		States: []mps.Server{{ID: process.ID{PID: 70, Started: proctree.StartOf(70)}}},
	}}
	expect("a server that the daemon lists", map[int]bool{70: true, 80: false})
}

// TestSlot: a process is of its job's slot as soon as its starter is known, and only while it runs.
func TestSlot(t *testing.T) {
	n := newNode(t, 1)
	j := n.job(100, "slot1_1", uuid(0))
	if key, ok := (site{n.loop}).Slot(101, proctree.StartOf(101)); !ok || key != rules.SlotKey(j.Starter) {
		t.Errorf("%+v, %v", key, ok)
	}
	if _, ok := (site{n.loop}).Slot(101, 1); ok {
		t.Error("a process that had the PID before is the job's")
	}
	if _, ok := (site{n.loop}).Slot(300, proctree.StartOf(300)); ok {
		t.Error("a process of no job is a job's")
	}
	n.proc.Hold(101, "stat") // as in exec(2), by a file system of its own
	if key, ok := (site{n.loop}).Slot(101, 0); !ok || key != rules.SlotKey(j.Starter) {
		t.Errorf("a process that is not answered: %+v, %v", key, ok)
	}
}

// TestBookings: a job on a shared GPU has its budget's part of it, jobs on one that the site divides
// have equal parts, and a docker universe job has no booking.
func TestBookings(t *testing.T) {
	n := newNode(t, 2)
	n.node.Plan.GPUs[1].Mode = config.ModeObserve
	n.job(100, "slot1_1", uuid(0))
	n.job(110, "slot1_2", uuid(1))
	n.job(120, "slot1_3", uuid(1))
	n.job(130, "slot1_4", uuid(7))
	n.running[1].Beside, n.running[2].Beside = true, true
	all := (site{n.loop}).Reservations()
	if len(all) != 3 || !all[0].MPS || all[0].Share != 0.125 || all[0].Cap != 1 {
		t.Fatalf("%+v", all)
	}
	for _, b := range all[1:] {
		if b.Share != 0.5 || b.MPS {
			t.Errorf("%+v", b)
		}
	}
	n.running[0].Budget = 1
	for _, pool := range []gpu.MiB{1, 0} { // a part of nothing is no infinite part
		n.node.Plan.GPUs[0].Pool = pool
		if all := (site{n.loop}).Reservations(); all[0].Share != 1 {
			t.Errorf("1 MiB of a pool of %d: %+v", pool, all[0])
		}
	}
	n.running[2].Work.Docker = true
	if all := (site{n.loop}).Reservations(); len(all) != 2 || all[1].Slot.Slot != "slot1_2" {
		t.Errorf("which processes a docker universe job has is not known: %+v", all)
	}
}

// TestCap: only a percentage that the job cannot raise bounds what it did.
func TestCap(t *testing.T) {
	g := daemons.State{Wanted: mps.Wanted{ThreadPercentage: 25}, Checked: mps.Checked{PID: 7}}
	stale := g
	stale.Checked.Stale = []int{50}
	for name, tt := range map[string]struct {
		daemon daemons.State
		checks bool
		want   float64
	}{
		"enforced": {g, true, 0.25}, "any account may raise it": {g, false, 1},
		"a server with other limits": {stale, true, 1}, "no health check": {daemons.State{Wanted: g.Wanted}, true, 1},
	} {
		n := Node{Daemons: map[gpu.UUID]daemons.State{uuid(0): tt.daemon}, PrivilegeChecks: tt.checks}
		if got := n.capOf(uuid(0)); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}
