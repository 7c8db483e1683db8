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

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/devices"
)

// fakeNodes is a kernel that keeps one rule for each cgroup.
type fakeNodes struct {
	mu  sync.Mutex
	by  map[string]devices.Rule
	err error
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
	if f.err == nil {
		f.by[filepath.Base(dir)] = r
	}
	return f.err
}

func (f *fakeNodes) Remove(dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.by[filepath.Base(dir)].Major == 0 {
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
	n.nodes.wall, n.nodes.root = n.kernel, n.root
	n.log = slog.New(slog.NewTextHandler(&n.said, nil))
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
		name = filepath.Join(n.proc.root, name)
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
func (n *nodesAgent) job(pid int, slot string, u gpu.UUID) Starter {
	n.t.Helper()
	st := n.proc.starter(pid, slot)
	n.grant(st, 1000, "alice", u, 1024)
	n.process(st)
	return st
}

func (n *nodesAgent) process(st Starter) {
	n.t.Helper()
	if err := os.MkdirAll(filepath.Join(n.root, cgroupOf(st.Slot)), 0o755); err != nil {
		n.t.Fatal(err)
	}
	n.proc.add(proc{pid: st.PID + 1000, parent: st.PID, comm: "train", cgroup: cgroupOf(st.Slot)})
}

func (n *nodesAgent) end(st Starter) {
	n.proc.end(st.PID + 1000)
	n.proc.end(st.PID)
	n.sweepNow()
}

func (n *nodesAgent) round(full bool) bool { return n.nodesRound(n.view.Load(), time.Now(), full) }

func (n *nodesAgent) want(slot, rule string) {
	n.t.Helper()
	if got := n.kernel.rule(slot); got != rule {
		n.t.Errorf("%s may open %s, want %s", slot, got, rule)
	}
}

func (n *nodesAgent) warns() string { return strings.Join(n.nodes.warnings(), "\n") }

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
	if n.round(false) {
		t.Error("something is awaited, though all jobs are there")
	}
	n.want("slot1_1", ownLarge)
	n.want("slot2_1", ownSmall)
	n.want("slot4_1", "[]")
	if ownSmall == ownNext || ownLarge == ownSmall {
		t.Fatalf("the devices are one: %s %s %s", ownLarge, ownSmall, ownNext)
	}

	n.end(first)
	n.round(false)
	n.want("slot1_1", "none")
	n.job(400, "slot1_1", next)
	n.round(false)
	n.want("slot1_1", ownNext)
	if w := n.warns(); w != "" {
		t.Errorf("warns: %s", w)
	}
}

// TestNodesOfTheNextJob: where the end of a job and the next one on its slice are
// seen at once, the next one's rule stays.
func TestNodesOfTheNextJob(t *testing.T) {
	n := newNodesAgent(t)
	small, _ := n.device("1g.5gb", 0)
	next, own := n.device("1g.5gb", 1)
	st := n.job(100, "slot1_1", small)
	n.round(false)
	v, jobs := n.view.Load(), n.view.Load().jobsWithNodes(nil)
	n.end(st)
	later := n.job(200, "slot1_1", next)
	all := v.jobsWithNodes(n.books.all())
	if err := n.holdNodes(all[len(all)-1], cgroupOf(later.Slot), n.nodes.proc.Read); err != nil {
		t.Fatal(err)
	}
	for key, h := range n.nodes.ended(append(jobs, all...)) {
		if !n.nodes.forget(key, h) {
			t.Error("the slice counts as nobody's")
		}
	}
	n.want("slot1_1", own)
}

// TestNodesAfterRestart: a rule stands when the agent ends, and the next
// agent puts it anew for the jobs that it finds.
func TestNodesAfterRestart(t *testing.T) {
	n := newNodesAgent(t)
	small, own := n.device("1g.5gb", 0)
	st := n.job(100, "slot1_1", small)
	n.round(false)
	n.again()
	n.want("slot1_1", own)
	n.grant(st, 1000, "alice", small, 1024)
	n.kernel.by = map[string]devices.Rule{}
	n.round(true)
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
				n.round(false)
				n.round(true)
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
	if err := os.Remove(filepath.Join(n.proc.root, name)); err != nil {
		n.t.Fatal(err)
	}
}

// TestNodesTroubleEnds: a warning goes when its reason does.
func TestNodesTroubleEnds(t *testing.T) {
	n := newNodesAgent(t)
	small, own := n.device("1g.5gb", 0)
	n.job(100, "slot1_1", small)
	n.kernel.err = errors.New("no")
	n.round(true)
	n.round(false)
	if n.warns() == "" {
		t.Fatal("it warns of nothing")
	}
	n.kernel.err = nil
	n.round(true)
	n.want("slot1_1", own)
	if w := n.warns(); w != "" {
		t.Errorf("warns still: %s", w)
	}
}

// TestJobSlice: the names are those of 25.14.1 and 23.9.6.
func TestJobSlice(t *testing.T) {
	const slot = "/htcondor/_var_lib_condor_execute_slot1_1@wn1"
	for leaf, want := range map[string]string{
		slot + ".slice" + strings.TrimPrefix(slot, "/htcondor") + ".scope": slot + ".slice",
		"/htcondor/condor_var_lib_condor_execute_slot1_1@wn1":              "",
		"/system.slice/_x_slot1_1@wn1.scope":                               "",
	} {
		got, ok := jobSlice(leaf)
		if ok != (want != "") || ok && got != want {
			t.Errorf("%s: %s %t, want %s", leaf, got, ok, want)
		}
	}
}

// TestNodesLoop: the loop finds a job by itself, and its end.
func TestNodesLoop(t *testing.T) {
	n := newNodesAgent(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { n.closeNodes(ctx) })
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
