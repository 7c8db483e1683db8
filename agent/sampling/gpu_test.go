package sampling

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/daemons"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// TestUnused: nothing but MPS servers is on a GPU only where a late sample shows all of its
// processes.
func TestUnused(t *testing.T) {
	for name, c := range map[string]struct {
		processes gpu.Measured[[]gpu.DeviceProcess]
		after     time.Duration
		want      bool
	}{
		"an idle GPU":                  {gpu.Known([]gpu.DeviceProcess{}), 0, true},
		"an MPS server":                {gpu.Known([]gpu.DeviceProcess{uses(60, 28)}), 0, true},
		"an MPS client of no job":      {gpu.Known([]gpu.DeviceProcess{uses(300, 28)}), 0, false},
		"processes that are not known": {gpu.Measured[[]gpu.DeviceProcess]{}, 0, false},
		"a sample three intervals old": {gpu.Known([]gpu.DeviceProcess{}), 3 * time.Second, true},
		"an older one":                 {gpu.Known([]gpu.DeviceProcess{}), 3*time.Second + 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, 2)
			n.process(300, 1)
			n.process(60, 1)
			state := n.node.Daemons[uuid(0)]
			state.Checked.States = []mps.Server{{ID: process.ID{PID: 60, Started: proctree.StartOf(60)}}}
			n.node.Daemons[uuid(0)] = state
			n.readings[0].Processes = c.processes
			n.readings = n.readings[:1]
			n.sample(t)
			now := n.clock.Add(c.after)
			if got := n.loop.Unused(uuid(0), now); got != c.want {
				t.Errorf("unused: %t", got)
			}
			if n.loop.Unused(uuid(1), now) || n.loop.Unused(uuid(7), now) {
				t.Error("a GPU without a sample, or that is not planned, is unused")
			}
			if fresh := n.loop.Fresh(now); fresh != (c.after <= 3*time.Second) {
				t.Errorf("fresh: %t", fresh)
			}
		})
	}
}

// TestBlocked: a process beside MPS on an exclusive GPU without a server closes it.
func TestBlocked(t *testing.T) {
	exclusive := string(gpu.ComputeModeExclusiveProcess)
	for name, c := range map[string]struct {
		mode    string
		listed  bool
		process gpu.DeviceProcess
		says    string
	}{
		"no job's":                   {exclusive, false, gpu.DeviceProcess{PID: 300}, "process 300, which is no job's, holds it"},
		"a job's":                    {exclusive, false, gpu.DeviceProcess{PID: 101}, "process 101 of slot1_1 holds it"},
		"a server is listed":         {exclusive, true, gpu.DeviceProcess{PID: 300}, ""},
		"an MPS client":              {exclusive, false, gpu.DeviceProcess{PID: 300, MPSClient: true}, ""},
		"ended":                      {exclusive, false, gpu.DeviceProcess{PID: 999}, ""},
		"a GPU that several may use": {string(gpu.ComputeModeDefault), false, gpu.DeviceProcess{PID: 300}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, 1)
			n.job(100, "slot1_1", uuid(0))
			n.process(300, 1)
			n.node.Modes[uuid(0)] = c.mode
			if c.listed {
				n.node.Daemons[uuid(0)] = daemons.State{Checked: mps.Checked{States: []mps.Server{{ID: process.ID{PID: 60}}}}}
			}
			if why := n.loop.Blocked(n.node, uuid(0)); why != "" {
				t.Errorf("before the first sample: %s", why)
			}
			n.readings[0] = reading(uuid(0), c.process)
			n.sample(t)
			if why := n.loop.Blocked(n.node, uuid(0)); (why == "") != (c.says == "") || !strings.HasPrefix(why, c.says) {
				t.Errorf("%q", why)
			}
		})
	}
}

// TestBlockedByAServerOfItsOwn: an MPS server that somebody started keeps gpuslot's away, also while it has clients.
// Gpuslot's own does not.
func TestBlockedByAServerOfItsOwn(t *testing.T) {
	for server, says := range map[int]string{
		300: "process 300, which is no job's, holds it", 101: "process 101 of slot1_1 holds it", 60: "",
	} {
		n := newNode(t, 1)
		n.job(100, "slot1_1", uuid(0))
		n.process(300, 1)
		n.process(301, 300)
		d := n.node.Daemons[uuid(0)].Checked.Process()
		n.proc.Add(proctree.Process{PID: d.PID, Parent: 1, Comm: "nvidia-cuda-mps", Started: d.Started})
		n.process(60, d.PID)
		n.node.Modes[uuid(0)] = string(gpu.ComputeModeExclusiveProcess)
		n.readings[0] = reading(uuid(0), gpu.DeviceProcess{PID: 301, MPSClient: true}, gpu.DeviceProcess{PID: server})
		n.sample(t)
		if why := n.loop.Blocked(n.node, uuid(0)); (why == "") != (says == "") || !strings.HasPrefix(why, says) {
			t.Errorf("server %d: %q", server, why)
		}
	}
}

// TestStranger: a process of no job closes a GPU in time slices, where no budget has room for it; one of a job
// does not, and no display.
func TestStranger(t *testing.T) {
	for name, c := range map[string]struct {
		process gpu.DeviceProcess
		says    string
	}{
		"no job's":       {gpu.DeviceProcess{PID: 300}, "process 300, which is no job's, computes on it without MPS"},
		"a job's":        {gpu.DeviceProcess{PID: 101}, ""},
		"a display":      {gpu.DeviceProcess{PID: 300, Graphics: true}, ""},
		"one that ended": {gpu.DeviceProcess{PID: 301}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, 1)
			n.job(100, "slot1_1", uuid(0))
			n.process(300, 1)
			n.node.Plan.GPUs[0].Mode = config.ModeTimeSlice
			n.readings[0] = reading(uuid(0), c.process)
			n.sample(t)
			if why := n.loop.Blocked(n.node, uuid(0)); (why == "") != (c.says == "") || !strings.HasPrefix(why, c.says) {
				t.Errorf("%q", why)
			}
		})
	}
}

// TestMIGDevices: a process that is no job's closes a MIG device, shared or not, until it ends.
func TestMIGDevices(t *testing.T) {
	const device = gpu.UUID("MIG-00000000-0000-5000-8000-000000000000")
	for name, c := range map[string]struct {
		mode config.Mode
		why  func(n *fakeNode) string
		says string
	}{
		"alone": {config.ModeMIG, func(n *fakeNode) string { return n.loop.Taken(&n.node.Plan.GPUs[0]) },
			"process 300 computes on it, and no job has it"},
		"shared": {config.ModeMPS, func(n *fakeNode) string { return n.loop.Blocked(n.node, device) },
			"process 300, which is no job's, computes on it without MPS"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, 1)
			n.node.Plan.GPUs = []plan.GPU{{UUID: device, Parent: uuid(0), Device: device, Mode: c.mode, Pool: 5000}}
			n.process(300, 1)
			r := gpu.Reading{GPU: uuid(0), MIGEnabled: true, Instances: []gpu.InstanceReading{{UUID: device}}}
			r.Instances[0].Processes = gpu.Known([]gpu.DeviceProcess{{PID: 300}})
			n.readings = []gpu.Reading{r}
			n.sample(t)
			if why := c.why(n); !strings.HasPrefix(why, c.says) {
				t.Errorf("%q", why)
			}
			n.proc.End(300) // no sample is awaited
			if why := c.why(n); why != "" {
				t.Errorf("it has ended: %q", why)
			}
		})
	}
}

// TestStrangers: an MPS client that is in no slot, as one that left its job's cgroup by other means
// than processes have, is shown: its VRAM counts for no job. So is a job's process beside MPS.
// So are graphics of a user outside of jobs, and a display of root's is not: no decision counts them.
func TestStrangers(t *testing.T) {
	n := newNode(t, 1)
	j := n.job(100, "slot1_1", uuid(0))
	n.proc.Add(proctree.Process{PID: 400, Parent: 1, Comm: "game", UID: 1001, Cgroup: "/user.slice/user-1001.slice/session-4.scope"})
	n.proc.Add(proctree.Process{PID: 401, Parent: 1, Comm: "Xorg", Cgroup: "/system.slice/display-manager.service"})
	graphics := func(pid int) gpu.DeviceProcess {
		return gpu.DeviceProcess{PID: pid, Graphics: true, Memory: gpu.Known(gpu.Bytes(300 << 20))}
	}
	n.process(300, 1)
	n.process(102, 100)
	n.starters[102] = j.Starter
	n.readings[0] = reading(uuid(0), uses(101, 500), gpu.DeviceProcess{PID: 102, Memory: gpu.Known(gpu.Bytes(100 << 20))}, uses(300, 2000),
		graphics(400), graphics(401))
	n.readings[0].Memory.Value.Used = 3200 << 20
	n.sample(t)
	u := n.loop.Uses(uuid(0))
	if len(u.Strangers) != 3 || u.Strangers[2].PID != 400 || *u.Strangers[2].VRAMMiB != 300 || u.Strangers[0].Slot != "slot1_1" || u.Strangers[0].MPSClient ||
		u.Strangers[1].PID != 300 || !u.Strangers[1].MPSClient || *u.Strangers[1].VRAMMiB != 2000 {
		t.Errorf("%+v", u.Strangers)
	}
	if u.MiB == nil || *u.MiB != 3200 {
		t.Errorf("in use: %v", u.MiB)
	}
	var of api.StatusJob
	if u.Of(&of, j.Starter); of.UseMiB == nil || *of.UseMiB != 600 || *of.Processes != 2 {
		t.Errorf("%+v", of)
	}
	var none api.StatusJob
	if u.Of(&none, starter.Starter{ID: process.ID{PID: 1}}); none.UseMiB != nil || none.SM != nil || none.SMMax != nil || none.Joules != nil {
		t.Errorf("a job that no sample has: %+v", none)
	}
}

// usersThatWait are users whose processes may be anywhere: where one is, is never said.
type usersThatWait struct {
	Users
	t *testing.T
}

func (u usersThatWait) OfUser(pid int) bool {
	u.t.Errorf("it is asked where process %d is", pid)
	return true
}

// TestUsesAskNothing: many ask for the use of a GPU, such as the startd's monitor, and none waits for the kernel to say
// in which cgroups a user's graphics processes are. The processes are named.
func TestUsesAskNothing(t *testing.T) {
	n := newNode(t, 1)
	n.proc.Add(proctree.Process{PID: 300, Parent: 1, Comm: "vk", UID: 1000, Cgroup: "/user.slice/user-1000.slice/session-1.scope"})
	n.readings[0] = reading(uuid(0), gpu.DeviceProcess{PID: 300, Graphics: true})
	n.sample(t)
	n.loop.Users = usersThatWait{n.loop.Users, t}
	if u := n.loop.Uses(uuid(0)); len(u.Strangers) != 1 || u.Strangers[0].PID != 300 {
		t.Errorf("named are %+v", u.Strangers)
	}
}

// TestServersVRAM: in steps, so that the plan changes rarely, and what several samples show.
func TestServersVRAM(t *testing.T) {
	n := newNode(t, 1)
	state := n.node.Daemons[uuid(0)]
	for pid, mib := range map[int]int64{60: 700, 61: 20} {
		n.process(pid, 1)
		state.Checked.States = append(state.Checked.States, mps.Server{ID: process.ID{PID: pid, Started: proctree.StartOf(pid)}})
		n.readings[0].Processes.Value = append(n.readings[0].Processes.Value, uses(pid, mib))
	}
	n.node.Daemons[uuid(0)] = state
	says := func(samples int, want gpu.MiB) {
		t.Helper()
		for range samples {
			n.sample(t)
		}
		if got := n.loop.Servers()[uuid(0)]; got != want {
			t.Errorf("%d, want %d", got, want)
		}
	}
	says(serverSamples-1, 0)
	says(1, 704)
	all := n.readings[0].Processes.Value
	n.readings[0].Processes.Value = append(slices.Clone(all), uses(62, 9000))
	n.process(62, 1)
	state.Checked.States = append(state.Checked.States, mps.Server{ID: process.ID{PID: 62, Started: proctree.StartOf(62)}})
	n.node.Daemons[uuid(0)] = state
	says(serverSamples-1, 704) // for a moment
	n.readings[0].Processes.Value = all
	says(1, 704)
	n.readings[0].Processes.Value = nil
	says(1, 0)
	n.readings[0].Processes.Value = all
	says(serverSamples-1, 0)
}
