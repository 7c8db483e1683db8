package sampling

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/deep"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/keepers"
	"github.com/gpuslot/gpuslot/agent/rules"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// adopted is where the service manager of an account puts a process that it takes out of a job.
const adopted = "/user.slice/user-1000.slice/user@1000.service/app.slice/run-1.scope"

// alone makes GPU 0 of a node a MIG device that jobs have alone.
func (n *fakeNode) alone() gpu.UUID {
	const device = gpu.UUID("MIG-00000000-0000-5000-8000-000000000000")
	g := &n.node.Plan.GPUs[0]
	g.UUID, g.Device, g.Parent, g.Mode = device, device, uuid(0), config.ModeMIG
	return device
}

// readAlone is a reading of that device.
func readAlone(device gpu.UUID, p gpu.DeviceProcess) gpu.Reading {
	r := gpu.Reading{GPU: uuid(0), MIGEnabled: true, Instances: []gpu.InstanceReading{{UUID: device}}}
	r.Instances[0].Processes = gpu.Known([]gpu.DeviceProcess{p})
	return r
}

// TestAdoptedProcess: a process that was sampled in its job, and that the service manager of its account then took out
// of it, is ended after the job as every other that a user runs outside of jobs.
func TestAdoptedProcess(t *testing.T) {
	for _, c := range []struct {
		name        string
		mode        config.Mode
		client, end bool
	}{
		{"time-slice", config.ModeTimeSlice, false, false},
		{"MPS, a client", config.ModeMPS, true, true},
		{"MPS, beside the daemon", config.ModeMPS, false, false},
		{"MIG, alone", config.ModeMIG, false, false},
	} {
		n := newNode(t, 1)
		u := uuid(0)
		n.node.Plan.GPUs[0].Mode = c.mode
		switch c.mode {
		case config.ModeMIG:
			u = n.alone()
		case config.ModeTimeSlice:
			delete(n.node.Daemons, u)
		default:
			n.node.Modes[u] = string(gpu.ComputeModeExclusiveProcess)
		}
		table := jobs.New(starter.Node{FS: process.FS{Root: n.proc.Root}})
		n.loop.Jobs = table
		s := starter.Starter{ID: n.proc.Starter(100, "slot1_1"), Slot: "slot1_1"}
		n.proc.Add(proctree.Process{PID: 101, Parent: 100, Comm: "train", UID: 1000, Cgroup: proctree.CgroupOf("slot1_1")})
		table.Admit(starter.Caller{Hook: true}, func(*jobs.View) []jobs.Job {
			return []jobs.Job{{Starter: s, GPU: u, Budget: 4096, ID: "1.0", Account: starter.Account{UID: 1000, Known: true}}}
		})
		p := uses(101, 1000)
		p.MPSClient = c.client
		n.readings[0] = reading(uuid(0), p)
		if c.mode == config.ModeMIG {
			n.readings[0] = readAlone(u, p)
		}
		if n.sample(t); len(n.kills) > 0 || len(n.ends) > 0 {
			t.Errorf("%s: ended in its job", c.name)
		}
		n.proc.Add(proctree.Process{PID: 101, Parent: 1, Comm: "train", UID: 1000, Cgroup: adopted})
		n.proc.End(100)
		table.DropEnded()
		n.sample(t)
		if ended, killed := len(n.ends[u]) > 0, len(n.kills[u]) > 0; ended != c.end || killed == c.end {
			t.Errorf("%s: ended %t, killed %t", c.name, ended, killed)
		}
	}
}

// TestKeptAfterItsEnd: the driver lists a process after its end, because another one has its files. No new job comes
// to that GPU, and the reason says what to look for. No job answers for it.
func TestKeptAfterItsEnd(t *testing.T) {
	n := newNode(t, 2)
	j := n.job(100, "slot1_1", uuid(0))
	n.readings[0] = reading(uuid(0), uses(101, 100), uses(999, 30000))
	for range unclearAfter + 1 { // the first time it may have ended a moment ago
		n.sample(t)
	}
	if why := n.loop.Blocked(n.node, uuid(0)); why != "" {
		t.Errorf("at first: %q", why)
	}
	for _, running := range []bool{true, false} {
		n.sample(t)
		if why := n.loop.Blocked(n.node, uuid(0)); !strings.HasPrefix(why, "process 999 has ended, and another one keeps") {
			t.Errorf("a job runs %t: %q", running, why)
		}
		if why := n.loop.Blocked(n.node, uuid(1)); why != "" || len(n.punished) > 0 {
			t.Errorf("the other GPU: %q, %d jobs are held", why, len(n.punished))
		}
		n.running = nil
		n.proc.End(j.Starter.PID)
		n.readings[0] = reading(uuid(0), uses(999, 30000))
	}
}

// TestKeptOnMIGDevice: a MIG device that jobs have alone takes no job while the driver lists an ended process of none.
func TestKeptOnMIGDevice(t *testing.T) {
	n := newNode(t, 1)
	u := n.alone()
	n.readings[0] = readAlone(u, uses(999, 100))
	n.sample(t)
	g, _ := n.node.Plan.Find(u)
	if why := n.loop.Taken(g); why != "" {
		t.Errorf("it may have ended a moment ago: %q", why)
	}
	if n.sample(t); !strings.HasPrefix(n.loop.Taken(g), "process 999 has ended") {
		t.Errorf("taken: %q", n.loop.Taken(g))
	}
}

// TestPIDOfAnEndedProcess: a job whose process got the PID of one that the driver lists after its end is not held for
// what that one has on another GPU.
func TestPIDOfAnEndedProcess(t *testing.T) {
	n := newNode(t, 2)
	n.readings[0] = reading(uuid(0), uses(201, 100))
	n.readings[0].At = time.Now().Add(-time.Minute)
	n.sample(t)
	began, err := process.TicksAt(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	n.readings[0].At = time.Now().Add(time.Minute)
	n.proc.Add(proctree.Process{PID: 201, Parent: 200, Comm: "train", UID: 1000, Started: began})
	n.running = append(n.running, jobs.Job{Starter: starter.Starter{ID: n.proc.Starter(200, "slot1_2"), Slot: "slot1_2"}, GPU: uuid(1), Budget: 4096, ID: "2.0"})
	n.starters[201] = n.running[0].Starter
	for range 20 {
		n.sample(t)
	}
	if len(n.punished) > 0 {
		t.Errorf("held: %+v", n.punished[0])
	}
}

// opens is a look at the files of processes, which shows nothing of those that are not among gpus.
type opens struct {
	fakeKeepers
	gpus   map[int]gpu.UUID
	spared []process.ID
}

func (o *opens) OutsideJobs(spared []process.ID) deep.Looking[keepers.Held] {
	o.spared = spared
	return o.fakeKeepers.OutsideJobs(spared)
}

func (o *opens) Opens(pid int) func(gpu.UUID) bool {
	if o.gpus[pid] == "" {
		return nil
	}
	return func(u gpu.UUID) bool { return o.gpus[pid] == u }
}

// TestListedUnderAnothersPID: the driver lists the PID of a process that does not have the GPU's node open. No job is
// held for that, and no process ended. The GPU takes no new jobs, and the reason says what to look for.
func TestListedUnderAnothersPID(t *testing.T) {
	for _, c := range []struct {
		opened      gpu.UUID
		held, ended bool
		why         string
	}{
		{opened: uuid(0), why: "process 101 is not seen to have the GPU's device node open"},
		{opened: "", why: "process 101 is not seen to have the GPU's device node open"},
		{opened: uuid(1), held: true, ended: true},
	} {
		n := newNode(t, 2)
		looks := &opens{gpus: map[int]gpu.UUID{101: c.opened, 300: c.opened, 301: c.opened}}
		n.look(looks)
		n.job(100, "slot1_1", uuid(0))
		for _, pid := range []int{300, 301} {
			n.proc.Add(proctree.Process{PID: pid, Parent: 1, Comm: "train", UID: 1000, Cgroup: adopted})
		}
		other := uses(301, 100)
		other.MPSClient = false
		n.readings[0] = reading(uuid(0), uses(101, 100))
		n.readings[1] = reading(uuid(1), uses(101, 100), uses(300, 100), other)
		for range unclearAfter + 10 {
			n.sample(t)
		}
		held := slices.ContainsFunc(n.punished, func(f rules.Finding) bool { return f.Code == api.CodeOtherGPU })
		ended, killed := len(n.ends[uuid(1)]) > 0, len(n.outsideKills) > 0
		if held != c.held || ended != c.ended || killed != c.ended {
			t.Errorf("opened %s: held %t; ended %v, killed %v", c.opened, held, n.ends, n.kills)
		}
		if why := n.loop.Blocked(n.node, uuid(1)); !strings.HasPrefix(why, c.why) || why != "" && c.why == "" {
			t.Errorf("opened %s: %q", c.opened, why)
		}
		if why := n.loop.Blocked(n.node, uuid(0)); why != "" {
			t.Errorf("opened %s: the GPU of the job: %q", c.opened, why)
		}
		if c.why == "" {
			continue
		}
		// Who keeps files outside of jobs is looked for, also among these.
		pids := []int{}
		for _, p := range looks.spared {
			pids = append(pids, p.PID)
		}
		if !slices.Contains(pids, 101) || slices.Contains(pids, 300) || slices.Contains(pids, 301) {
			t.Errorf("opened %s: not looked at: %v", c.opened, pids)
		}
	}
}

// look gives a node such looks at the files of processes.
func (n *fakeNode) look(looks keepers.Looks) {
	o := n.loop.Options
	o.Keepers = looks
	n.loop = New(o)
}

// TestBlockedUnderAnothersPID: a GPU that jobs share by time slices, or whose MPS server could not start, takes no job
// from the first such sample on.
func TestBlockedUnderAnothersPID(t *testing.T) {
	for _, mode := range []config.Mode{config.ModeTimeSlice, config.ModeMPS} {
		n := newNode(t, 1)
		n.node.Plan.GPUs[0].Mode = mode
		n.node.Modes[uuid(0)] = string(gpu.ComputeModeExclusiveProcess)
		n.look(&opens{gpus: map[int]gpu.UUID{300: uuid(1)}})
		n.proc.Add(proctree.Process{PID: 300, Parent: 1, Comm: "train", UID: 1000, Cgroup: adopted})
		p := uses(300, 100)
		p.MPSClient = false
		n.readings[0] = reading(uuid(0), p)
		n.sample(t)
		if why := n.loop.Blocked(n.node, uuid(0)); !strings.HasPrefix(why, "process 300 is not seen to have") {
			t.Errorf("%s: %q", mode, why)
		}
	}
}
