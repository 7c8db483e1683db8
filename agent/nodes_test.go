package agent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/isolation"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/devices"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// fakeNodes is a kernel that keeps one rule for each cgroup.
type fakeNodes struct {
	mu  sync.Mutex
	by  map[string]devices.Rule
	err error
	// putErr is of Put alone.
	putErr error
}

func (f *fakeNodes) Try(devices.Rule) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

func (f *fakeNodes) Put(dir string, r devices.Rule) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := os.Stat(dir); err != nil {
		return err
	}
	err := cmp.Or(f.err, f.putErr)
	if err == nil {
		f.by[filepath.Base(dir)] = r
	}
	return err
}

func (f *fakeNodes) Remove(dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.by[filepath.Base(dir)].Empty() {
		return fs.ErrNotExist
	}
	delete(f.by, filepath.Base(dir))
	return nil
}

// rule is what stands on the slice of a slot.
func (f *fakeNodes) rule(slot string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for dir, r := range f.by {
		if strings.Contains(dir, "_"+slot+"@") {
			return fmt.Sprint(r.Own)
		}
	}
	return "none"
}

// nodesAgent is an agent on a node whose first GPU is divided.
type nodesAgent struct {
	*testAgent
	kernel *fakeNodes
	root   string
	said   bytes.Buffer
}

func newNodesAgent(t *testing.T) *nodesAgent {
	t.Helper()
	ta, _ := migAgent(t, "3g.20gb, 1g.5gb*2", "")
	n := &nodesAgent{testAgent: ta, kernel: &fakeNodes{by: map[string]devices.Rule{}}, root: t.TempDir()}
	n.driverSays(t)
	n.again()
	return n
}

func (n *nodesAgent) again() {
	n.restart()
	n.log = slog.New(slog.NewTextHandler(&n.said, nil))
	n.nodes = isolation.New(isolation.Options{
		Kernel: n.kernel, Jobs: n.jobs, Processes: n.Agent.proc, HTCondor: starter.Users{Node: n.Agent.proc}, Metrics: n.metrics, Log: n.log,
		Proc: n.proc.Root, Root: n.root, Arrived: isolation.Arrivals(n.Agent.proc),
	})
	n.connect()
}

// driverSays writes what the driver shows in /proc: instance i of GPU 0 has the
// minors 10i and 10i+1, of GPU 1 1000 more.
func (n *nodesAgent) driverSays(t *testing.T) {
	t.Helper()
	var minors strings.Builder
	minors.WriteString("config 1\nmonitor 2\n")
	for g := range 2 {
		for i := 1; i < 15; i++ {
			fmt.Fprintf(&minors, "gpu%d/gi%d/access %d\ngpu%d/gi%d/ci0/access %d\n", g, i, 1000*g+10*i, g, i, 1000*g+10*i+1)
		}
	}
	files := map[string]string{"devices": "Character devices:\n509 nvidia-caps\n", "driver/nvidia-caps/mig-minors": minors.String()}
	for i := range 2 {
		files[fmt.Sprintf("driver/nvidia/gpus/%d/information", i)] = fmt.Sprintf("GPU UUID: %s\nDevice Minor: %d\n", uuid(i), i)
	}
	for name, text := range files {
		name = filepath.Join(n.proc.Root, name)
		if err := cmp.Or(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

// device is the n-th device of a profile: its name in the plan, and the minors
// that its jobs may open.
func (n *nodesAgent) device(profile string, nth int) (gpu.UUID, string) {
	n.t.Helper()
	v := n.view.Load()
	for _, g := range v.plan.GPUs {
		if g.Profile != profile {
			continue
		}
		if nth--; nth >= 0 {
			continue
		}
		id := v.instances[g.Device][0].ID
		return g.UUID, fmt.Sprintf("[{%d %d}]", 10*id, 10*id+1)
	}
	n.t.Fatalf("no such %s", profile)
	return "", ""
}

// job admits one and starts its first process.
func (n *nodesAgent) job(pid int, slot string, u gpu.UUID) starter.Starter {
	n.t.Helper()
	st := n.proc.starter(pid, slot)
	n.grant(st, 1000, "alice", u, 1024)
	n.process(st)
	return st
}

func (n *nodesAgent) process(st starter.Starter) {
	n.t.Helper()
	if err := os.MkdirAll(filepath.Join(n.root, proctree.CgroupOf(st.Slot)), 0o755); err != nil {
		n.t.Fatal(err)
	}
	n.proc.Add(proctree.Process{PID: st.PID + 1000, Parent: st.PID, Comm: "train", Cgroup: proctree.CgroupOf(st.Slot)})
}

func (n *nodesAgent) end(st starter.Starter) {
	n.proc.End(st.PID + 1000)
	n.proc.End(st.PID)
	n.sweeper.now()
}

func (n *nodesAgent) round() { n.nodes.Round(n.view.Load().isolation(), time.Now()) }

func (n *nodesAgent) want(slot, rule string) {
	n.t.Helper()
	if got := n.kernel.rule(slot); got != rule {
		n.t.Errorf("%s may open %s, want %s", slot, got, rule)
	}
}

func (n *nodesAgent) warns() string { return strings.Join(n.nodes.Warnings(), "\n") }

// TestNodesOfJobs: a job on a MIG device keeps its own nodes, one on the other
// GPU none; what a job left on its slot's slice goes with it.
func TestNodesOfJobs(t *testing.T) {
	n := newNodesAgent(t)
	large, ownLarge := n.device("3g.20gb", 0)
	small, ownSmall := n.device("1g.5gb", 0)
	next, ownNext := n.device("1g.5gb", 1)
	first := n.job(100, "slot1_1", large)
	n.job(200, "slot2_1", small)
	n.job(300, "slot4_1", uuid(1))
	n.round()
	n.want("slot1_1", ownLarge)
	n.want("slot2_1", ownSmall)
	n.want("slot4_1", "[]")
	if ownSmall == ownNext || ownLarge == ownSmall {
		t.Fatalf("the devices are one: %s %s %s", ownLarge, ownSmall, ownNext)
	}

	n.end(first)
	n.round()
	n.want("slot1_1", "none")
	n.job(400, "slot1_1", next)
	n.round()
	n.want("slot1_1", ownNext)
	if w := n.warns(); w != "" {
		t.Errorf("warns: %s", w)
	}
}

// TestNodesOfTheNextJob: where the next job of a slot starts before the end of the
// one before it was seen, the next one's rule stays.
func TestNodesOfTheNextJob(t *testing.T) {
	n := newNodesAgent(t)
	small, _ := n.device("1g.5gb", 0)
	next, own := n.device("1g.5gb", 1)
	st := n.job(100, "slot1_1", small)
	n.round()
	n.end(st)
	n.starts(n.job(200, "slot1_1", next), "slot1_1")
	n.round()
	n.want("slot1_1", own)
}

// starts asks as a job's supervisor and returns why the job does not start.
func (n *nodesAgent) starts(st starter.Starter, slot string) string {
	n.t.Helper()
	reply := n.admission.Start(n.t.Context(), n.proc.caller(1000, st.PID+1000, st))
	if reply.Refusal != nil {
		return reply.Refusal.Reason
	}
	if reply.Started == nil || reply.Error != "" {
		n.t.Errorf("%s: %+v", slot, reply)
	}
	return ""
}

// TestNodesAtStart: what a job was not given is closed when the answer is there,
// to a job on a MIG device, on a GPU without any, without a GPU, and to a login.
func TestNodesAtStart(t *testing.T) {
	n := newNodesAgent(t)
	small, ownSmall := n.device("1g.5gb", 0)
	onDevice := n.job(100, "slot1_1", small)
	beside := n.job(200, "slot2_1", uuid(1))
	without := n.proc.starter(300, "slot3_1")
	n.process(without)
	for st, want := range map[starter.Starter]string{onDevice: ownSmall, beside: "[]", without: "[]"} {
		n.want(st.Slot, "none")
		if why := n.starts(st, st.Slot); why != "" {
			t.Error(why)
		}
		n.want(st.Slot, want)
	}
	n.round()
	n.want("slot3_1", "[]") // the job table does not have it
	n.proc.End(without.PID)
	n.round()
	n.want("slot3_1", "none")

	const login = "/htcondor/_x_slot1_1@wn1/sshd.slice/sshd.scope"
	if err := os.MkdirAll(filepath.Join(n.root, login), 0o755); err != nil {
		t.Fatal(err)
	}
	n.proc.Add(proctree.Process{PID: onDevice.PID + 1000, Parent: onDevice.PID, Comm: "supervise", Cgroup: login})
	n.starts(onDevice, "the login")
	if got := fmt.Sprint(n.kernel.by["sshd.slice"].Own); got != ownSmall {
		t.Errorf("a login may open %s, want %s", got, ownSmall)
	}
	if strings.Contains(n.said.String(), "WARN") || n.warns() != "" {
		t.Errorf("%s%s", n.said.String(), n.warns())
	}
}

// TestStartOutsideItsCgroup: a job that another process moved out of its scope before
// it began does not start, for limits would stand beside it.
func TestStartOutsideItsCgroup(t *testing.T) {
	n := newNodesAgent(t)
	small, _ := n.device("1g.5gb", 0)
	st := n.job(100, "slot1_1", small)
	slice, _, _ := strings.Cut(proctree.CgroupOf("slot1_1"), ".slice/")
	for _, below := range []string{"x", "user@1234.service"} {
		n.proc.Add(proctree.Process{PID: st.PID + 1000, Parent: st.PID, Comm: "supervise", Cgroup: slice + ".slice/" + below})
		if why := n.starts(st, st.Slot); !strings.Contains(why, "moved out of its own cgroup") {
			t.Errorf("from %s: %q", below, why)
		}
	}
}

// TestNodesOfTheWrapper: where the job wrapper alone asks, the job gets its own
// nodes with the answer to it.
func TestNodesOfTheWrapper(t *testing.T) {
	n := newNodesAgent(t)
	small, own := n.device("1g.5gb", 0)
	st := n.proc.starter(100, "slot1_1")
	n.process(st)
	n.starts(st, st.Slot)
	n.want("slot1_1", "[]")
	n.startd.set([]condor.Slot{slotAd("slot1_1", "9.0", "alice", 1024, small)}, nil)
	job := jobOn(st, "alice", small, 1024)
	if reply := n.prepare(n.proc.caller(1000, st.PID+1000, st), job); reply.Grant == nil {
		t.Fatalf("%+v", reply)
	}
	n.want("slot1_1", own)
}

// TestNodesNotAtStart: a job does not start while its rule cannot be put or made,
// and starts where this node promises none.
func TestNodesNotAtStart(t *testing.T) {
	for name, c := range map[string]struct {
		bend func(*nodesAgent, *starter.Starter)
		want string
	}{
		"refused by the kernel": {func(n *nodesAgent, _ *starter.Starter) { n.kernel.err = errors.New("attach: busy") }, "attach: busy"},
		"unknown to the driver": {func(n *nodesAgent, _ *starter.Starter) { n.remove("driver/nvidia/gpus/0/information") }, "does not list it"},
		"not planned yet":       {func(n *nodesAgent, _ *starter.Starter) { v := *n.view.Load(); v.planned = false; n.view.Store(&v) }, "no GPU of this node takes jobs yet"},
		"not told by the startd": {func(n *nodesAgent, st *starter.Starter) {
			*st = n.proc.starter(950, "slot9_1")
			n.process(*st)
			n.jobs.Await(n.proc.arrived(t, &starter.Arrivals{}, time.Now()))
		}, "the startd has not said"},
		"its slice is not there": {func(n *nodesAgent, st *starter.Starter) {
			n.proc.Add(proctree.Process{PID: st.PID + 1000, Parent: st.PID, Cgroup: "/other" + proctree.CgroupOf("slot1_1")})
		}, "is not there"},
		"no BPF at all": {func(n *nodesAgent, _ *starter.Starter) { n.kernel.err = errors.New("no BPF"); n.round() }, ""},
		"before 24.8": {func(n *nodesAgent, st *starter.Starter) {
			n.proc.Add(proctree.Process{PID: st.PID + 1000, Parent: st.PID, Cgroup: "/htcondor/_x_slot1_1@wn1"})
		}, ""},
		"only observed": {func(n *nodesAgent, _ *starter.Starter) {
			v := *n.view.Load()
			v.plan.Observe = true
			n.kernel.err = errors.New("no")
			n.view.Store(&v)
		}, ""},
		"without devices": {func(n *nodesAgent, _ *starter.Starter) {
			v := *n.view.Load()
			v.instances = nil
			n.kernel.err = errors.New("no")
			n.view.Store(&v)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNodesAgent(t)
			small, _ := n.device("1g.5gb", 0)
			st := n.job(100, "slot1_1", small)
			c.bend(n, &st)
			if why := n.starts(st, name); (why != "") != (c.want != "") || !strings.Contains(why, c.want) {
				t.Errorf("refused: %q, want %q", why, c.want)
			}
		})
	}
}

// TestStartWord: what supervisors read, from what a node can do.
func TestStartWord(t *testing.T) {
	n := newNodesAgent(t)
	for _, c := range []struct {
		name string
		do   func(v *view)
		want string
	}{
		{"a divided GPU", func(*view) {}, api.StartRequired},
		{"no MIG devices", func(v *view) { v.instances = nil }, ""},
		{"limits of cgroups", func(v *view) { v.instances, v.can.CgroupLimits.Has = nil, true }, api.StartAsked},
		{"observed", func(v *view) { v.plan.Observe = true }, ""},
		{"a divided GPU again", func(v *view) { *v = *n.view.Load() }, api.StartRequired},
		{"without a supervisor", func(v *view) { v.config.HTCondor.Supervise = false }, ""},
	} {
		v := *n.view.Load()
		c.do(&v)
		if got := v.startWord(n.nodes.Enforced()); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	n.kernel.err = errors.New("no BPF")
	n.round()
	if n.nodes.Enforced() {
		t.Error("rules count as enforced")
	}
	link := filepath.Join(n.view.Load().config.Paths.Run, "condor", "start")
	if got, err := os.Readlink(link); err == nil {
		t.Errorf("supervisors read %q before the link is written", got)
	}
	n.linkSupervisors()
	if got, _ := os.Readlink(link); got != n.view.Load().startWord(false) {
		t.Errorf("supervisors read %q", got)
	}
}

// TestNodesAfterRestart: a rule stands when the agent ends, and the next
// agent puts it again for the jobs that it finds.
func TestNodesAfterRestart(t *testing.T) {
	n := newNodesAgent(t)
	small, own := n.device("1g.5gb", 0)
	st := n.job(100, "slot1_1", small)
	n.round()
	n.again()
	n.want("slot1_1", own)
	n.grant(st, 1000, "alice", small, 1024)
	n.kernel.by = map[string]devices.Rule{}
	n.round()
	n.want("slot1_1", own)
}

// TestNodesThatStayOpen: jobs run all the same, and status says why, once.
func TestNodesThatStayOpen(t *testing.T) {
	for name, c := range map[string]struct {
		bend func(*nodesAgent)
		want string
	}{
		"no BPF":          {func(n *nodesAgent) { n.kernel.err = errors.New("load a device program: operation not permitted") }, "load a device program"},
		"no capabilities": {func(n *nodesAgent) { n.remove("devices") }, "no MIG capabilities in /proc"},
		"no minors":       {func(n *nodesAgent) { n.remove("driver/nvidia-caps/mig-minors") }, "no MIG capabilities in /proc"},
		"no such GPU":     {func(n *nodesAgent) { n.remove("driver/nvidia/gpus/0/information") }, string(uuid(0)) + ": the driver does not list it"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNodesAgent(t)
			c.bend(n)
			small, _ := n.device("1g.5gb", 0)
			n.job(100, "slot1_1", small)
			for range 3 {
				n.round()
			}
			n.want("slot1_1", "none")
			if w := strings.Join(n.status().Warnings, "\n"); strings.Count(w, "Jobs can open the device nodes of other MIG devices") != 1 || !strings.Contains(w, c.want) {
				t.Errorf("warnings: %s", w)
			}
			if got := strings.Count(n.said.String(), "jobs can open the device nodes"); got > 2 {
				t.Errorf("said %d times:\n%s", got, n.said.String())
			}
		})
	}
}

func (n *nodesAgent) remove(name string) {
	n.t.Helper()
	if err := os.Remove(filepath.Join(n.proc.Root, name)); err != nil {
		n.t.Fatal(err)
	}
}

// TestNodesTroubleEnds: a warning goes when its reason does.
func TestNodesTroubleEnds(t *testing.T) {
	n := newNodesAgent(t)
	small, own := n.device("1g.5gb", 0)
	n.job(100, "slot1_1", small)
	n.kernel.err = errors.New("no")
	n.round()
	if n.warns() == "" {
		t.Fatal("it warns of nothing")
	}
	n.kernel.err = nil
	n.round()
	n.want("slot1_1", own)
	if w := n.warns(); w != "" {
		t.Errorf("warns still: %s", w)
	}
}

// TestNodesLoop: the loop finds a job by itself, and its end.
func TestNodesLoop(t *testing.T) {
	n := newNodesAgent(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { n.nodes.Run(ctx, func() isolation.Conditions { return n.view.Load().isolation() }, func() {}) })
	defer wg.Wait()
	defer cancel()
	until := func(slot, want string) {
		t.Helper()
		for end := time.Now().Add(time.Minute); n.kernel.rule(slot) != want; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("never: %s may open %s", slot, want)
			}
		}
	}
	small, own := n.device("1g.5gb", 0)
	st := n.proc.starter(100, "slot1_1")
	n.grant(st, 1000, "alice", small, 1024)
	n.process(st)
	until("slot1_1", own)
	n.end(st)
	until("slot1_1", "none")
}

// TestNoStart: the monitor hears what every job's supervisor would.
func TestNoStart(t *testing.T) {
	n := newNodesAgent(t)
	if why := n.view.Load().noStart(); why != "" {
		t.Errorf("jobs do not start: %q", why)
	}
	small, _ := n.device("1g.5gb", 0)
	job := n.job(100, "slot1_1", small)
	v := *n.view.Load()
	v.planned, v.closed = false, "the file is broken"
	n.view.Store(&v)
	refused := n.starts(job, "x")
	if why := n.view.Load().noStart(); why != "no GPU of this node takes jobs yet: the file is broken" || !strings.Contains(refused, why) {
		t.Errorf("the monitor hears %q, a supervisor %q", why, refused)
	}
}
