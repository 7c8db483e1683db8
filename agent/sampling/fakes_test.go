package sampling

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/budget"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/daemons"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/rules"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/gpu/reads"
	"github.com/gpuslot/gpuslot/mps"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// TestMain lets the accounts of these tests be read as root's are: on a busy machine reads are answered late, which
// counts against others.
func TestMain(m *testing.M) {
	reads.Trust(1000, 1001)
	os.Exit(m.Run())
}

// uuid is the UUID of the n-th test GPU.
func uuid(n int) gpu.UUID {
	return gpu.UUID(fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", n))
}

// fakeNode is a node of shared GPUs whose driver, jobs, daemons and processes the test writes.
type fakeNode struct {
	node     Node
	readings []gpu.Reading
	running  []jobs.Job
	starters map[int]starter.Starter
	toBeHeld map[starter.Starter]bool
	proc     proctree.Tree
	// locks are the processes that hold the locks of control daemons.
	locks map[gpu.UUID]process.ID
	// limited are the GPUs with limits on cgroups, outside the processes that left theirs, counted
	// what the driver counts in each job's cgroup.
	limited map[gpu.UUID]bool
	outside map[int]bool
	unbound map[starter.Starter]bool
	counted map[starter.Starter]gpu.Measured[gpu.Bytes]
	// What the loop did.
	punished  []rules.Finding
	ends      map[gpu.UUID][]int
	kills     map[gpu.UUID][]int
	events    []history.Event
	published []*usage.Snapshot
	ended     int
	woken     int
	log       bytes.Buffer
	clock     time.Time
	loop      *Loop
	// outsideKills are all processes that were to be killed.
	outsideKills []int
}

func newNode(t *testing.T, gpus int) *fakeNode {
	t.Helper()
	c := config.Default()
	n := &fakeNode{
		node:     Node{Plan: &plan.Plan{}, Config: &c, Daemons: map[gpu.UUID]daemons.State{}, Modes: map[gpu.UUID]string{}},
		starters: map[int]starter.Starter{}, toBeHeld: map[starter.Starter]bool{}, locks: map[gpu.UUID]process.ID{},
		limited: map[gpu.UUID]bool{}, outside: map[int]bool{}, counted: map[starter.Starter]gpu.Measured[gpu.Bytes]{},
		proc: proctree.New(t), clock: time.Now(),
	}
	for i := range gpus {
		n.node.Plan.GPUs = append(n.node.Plan.GPUs, plan.GPU{
			UUID: uuid(i), Index: i, Mode: config.ModeMPS, Shares: 4, Memory: 32768, Pool: 32768, LargestRequest: 16384,
		})
		n.node.Daemons[uuid(i)] = daemons.State{Checked: mps.Checked{PID: 500 + i, Started: proctree.StartOf(500 + i)}}
		n.readings = append(n.readings, reading(uuid(i)))
	}
	n.loop = New(Options{
		Source: n, Node: func() Node { return n.node }, Jobs: n, Daemons: n, Limits: n, Punisher: n,
		Processes: starter.Node{FS: process.FS{Root: n.proc.Root}}, Events: n,
		Users: starter.Users{Node: starter.Node{FS: process.FS{Root: n.proc.Root}}},
		Log:   slog.New(slog.NewTextHandler(&n.log, nil)), Proc: n.proc.Root, Published: func(s *usage.Snapshot) { n.published = append(n.published, s) },
		Ended: func() { n.ended++ }, Wake: func() { n.woken++ }, Now: func() time.Time { return n.clock },
		Patience: 5 * time.Minute,
	})
	return n
}

// reading is one of a GPU with so many processes.
func reading(u gpu.UUID, processes ...gpu.DeviceProcess) gpu.Reading {
	return gpu.Reading{GPU: u, Use: gpu.Use{
		Memory: gpu.Known(gpu.MemoryUse{Total: 32 << 30}), Processes: gpu.Known(processes),
	}}
}

// sample takes one a second after the last.
func (n *fakeNode) sample(t *testing.T) *usage.Snapshot {
	t.Helper()
	n.clock = n.clock.Add(time.Second)
	n.loop.Round(t.Context())
	return n.loop.Last()
}

// job runs in a slot on a GPU, with one process of the PID after its starter's.
func (n *fakeNode) job(pid int, slot string, u gpu.UUID) jobs.Job {
	j := jobs.Job{Starter: starter.Starter{ID: n.proc.Starter(pid, slot), Slot: slot}, GPU: u, Budget: 4096, ID: slot + ".0"}
	n.process(pid+1, pid)
	n.starters[pid+1] = j.Starter
	n.running = append(n.running, j)
	return j
}

// process is one that computes.
func (n *fakeNode) process(pid, parent int) {
	n.proc.Add(proctree.Process{PID: pid, Parent: parent, Comm: "train", UID: 1000})
}

// uses is a process with so much VRAM; a negative number is not known.
func uses(pid int, mib int64) gpu.DeviceProcess {
	p := gpu.DeviceProcess{PID: pid, MPSClient: true}
	if mib >= 0 {
		p.Memory = gpu.Known(gpu.Bytes(mib << 20))
	}
	return p
}

func (n *fakeNode) Read(context.Context) ([]gpu.Reading, error) {
	out := make([]gpu.Reading, len(n.readings))
	for i, r := range n.readings {
		out[i] = r
		if r.At.IsZero() {
			out[i].At = time.Now().Add(time.Hour) // all processes began before
		}
	}
	return out, nil
}

func (n *fakeNode) EndOutside(_ context.Context, u gpu.UUID, pids []int) {
	if n.ends == nil {
		n.ends = map[gpu.UUID][]int{}
	}
	n.ends[u] = append(n.ends[u], pids...)
}

func (n *fakeNode) KillOutside(u gpu.UUID, all []process.ID) {
	if n.kills == nil {
		n.kills = map[gpu.UUID][]int{}
	}
	for _, p := range all {
		n.outsideKills = append(n.outsideKills, p.PID)
		if p.Started == proctree.StartOf(p.PID) {
			n.kills[u] = append(n.kills[u], p.PID)
		}
	}
}

func (n *fakeNode) Running() []jobs.Job { return n.running }

func (n *fakeNode) StarterOf(pid int) (starter.Starter, bool) {
	_, _ = process.FS{Root: n.proc.Root}.Cgroup(pid) // the real one looks there
	s, ok := n.starters[pid]
	return s, ok
}

func (n *fakeNode) ToBeHeld() map[starter.Starter]bool { return n.toBeHeld }

func (n *fakeNode) QuickCheck(u gpu.UUID, p mps.Checked) mps.QuickCheck {
	if n.locks[u] != p.Process() {
		return mps.QuickCheck{Err: fmt.Errorf("process %d is not the control daemon of %s", p.PID, u)}
	}
	return mps.QuickCheck{}
}

func (n *fakeNode) Unlimited(u gpu.UUID) (why string, at time.Time) {
	if !n.limited[u] {
		why = "no limits"
	}
	return why, at
}

func (n *fakeNode) Outside(j jobs.Job, works bool) (off bool, look budget.Look) {
	if !works {
		return n.unbound[j.Starter], nil
	}
	return n.unbound[j.Starter], func(pids []int, leaf func(int) (starter.Leaf, error)) (left []int, unclear bool) {
		for _, pid := range pids {
			at, err := leaf(pid)
			unclear = unclear || errors.Is(err, budget.ErrNotYet)
			if at.Left || n.outside[pid] {
				left = append(left, pid)
			}
		}
		return left, unclear
	}
}

func (n *fakeNode) Used(s starter.Starter, _ gpu.UUID, _ time.Time) gpu.Measured[gpu.Bytes] {
	return n.counted[s]
}

func (n *fakeNode) Punish(_ context.Context, f rules.Finding) { n.punished = append(n.punished, f) }

func (n *fakeNode) Event(e history.Event) { n.events = append(n.events, e) }
