package isolation

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/devices"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// uuid is the UUID of the n-th test GPU.
func uuid(n int) gpu.UUID {
	return gpu.UUID(fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", n))
}

// mig is that of a MIG device with a GPU instance of GPU 0.
func mig(instance int) gpu.UUID { return gpu.UUID(fmt.Sprintf("MIG-%d", instance)) }

// wall is a kernel that keeps one rule for each cgroup.
type wall struct {
	// overlapped: a rule was put or removed while another one was.
	inside     atomic.Int32
	overlapped atomic.Bool

	mu  sync.Mutex
	by  map[string]devices.Rule
	err error
	// puts counts the rules that were put.
	puts int
	// keeps is why rules are not removed, refuses why none is put. The cgroup has ended then, where ends is set.
	keeps, refuses error
	ends           bool
}

func (w *wall) Try(devices.Rule) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *wall) Put(dir string, r devices.Rule) error {
	defer w.enter()()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.puts++
	err := cmp.Or(w.err, w.refuses)
	switch {
	case err == nil:
		w.by[dir] = r
	case w.ends:
		err = cmp.Or(os.RemoveAll(dir), err)
	}
	return err
}

// enter begins a call, which takes the kernel some time, and leave ends it.
func (w *wall) enter() (leave func()) {
	if w.inside.Add(1) > 1 {
		w.overlapped.Store(true)
	}
	runtime.Gosched()
	return func() { w.inside.Add(-1) }
}

func (w *wall) Remove(dir string) error {
	defer w.enter()()
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.by[dir]; !ok {
		return fs.ErrNotExist
	}
	if w.keeps != nil {
		return w.keeps
	}
	delete(w.by, dir)
	return nil
}

// counts are the metrics.
type counts struct {
	mu sync.Mutex
	by map[string]int
}

func (c *counts) DeviceRule(when string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.by[when]++
}

func (c *counts) of(when string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.by[when]
}

// node is one whose first GPU is divided.
type node struct {
	*Nodes
	t      testing.TB
	proc   proctree.Tree
	table  *jobs.Table
	wall   *wall
	counts *counts
	said   *bytes.Buffer
	root   string
}

func newNode(t testing.TB) *node {
	t.Helper()
	n := &node{t: t, proc: proctree.New(t), wall: &wall{by: map[string]devices.Rule{}},
		counts: &counts{by: map[string]int{}}, said: &bytes.Buffer{}, root: t.TempDir()}
	var minors strings.Builder
	for i := 1; i < 100; i++ { // instance i has the minors 10i and 10i+1
		fmt.Fprintf(&minors, "gpu0/gi%d/access %d\ngpu0/gi%d/ci0/access %d\n", i, 10*i, i, 10*i+1)
	}
	for name, text := range map[string]string{
		"devices": "Character devices:\n509 nvidia-caps\n", "driver/nvidia-caps/mig-minors": minors.String(),
		"driver/nvidia/gpus/0/information": fmt.Sprintf("GPU UUID: %s\nDevice Minor: 0\n", uuid(0)),
	} {
		name = filepath.Join(n.proc.Root, name)
		if err := cmp.Or(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	view := starter.Node{FS: process.FS{Root: n.proc.Root}, Own: uint32(os.Getuid())}
	n.table = jobs.New(view)
	n.Nodes = New(Options{
		Kernel: n.wall, Jobs: n.table, Processes: view, HTCondor: starter.Users{Node: view}, Metrics: n.counts,
		Log: slog.New(slog.NewTextHandler(n.said, nil)), Proc: n.proc.Root, Root: n.root,
	})
	return n
}

// now are conditions in which jobs are held to their nodes.
func now() Conditions {
	c := Conditions{
		Planned: true, JobCgroups: true, Supervised: true,
		Instances: map[gpu.UUID][]devices.Instance{uuid(0): {{GPU: uuid(0), All: true}}},
	}
	for i := 1; i < 100; i++ {
		c.Instances[mig(i)] = []devices.Instance{{GPU: uuid(0), ID: i}}
	}
	return c
}

// job admits one on a MIG device, with its first process.
func (n *node) job(pid, instance int) starter.Starter {
	s := n.starter(pid, instance)
	n.admit(s, instance)
	return s
}

func (n *node) admit(s starter.Starter, instance int) {
	n.table.Admit(starter.Caller{Starter: s, Hook: true}, func(*jobs.View) []jobs.Job {
		return []jobs.Job{{Starter: s, GPU: mig(instance), ID: "1.0", Since: time.Now()}}
	})
}

// starter makes one, with its job's cgroup and first process. The tree of processes is not
// for several goroutines.
func (n *node) starter(pid, instance int) starter.Starter {
	slot := fmt.Sprintf("slot1_%d", instance)
	s := starter.Starter{ID: n.proc.Starter(pid, slot), Slot: slot}
	if err := os.MkdirAll(filepath.Join(n.root, n.leaf(s)), 0o755); err != nil {
		n.t.Fatal(err)
	}
	n.proc.Add(proctree.Process{PID: pid + 1000, Parent: pid, Comm: "train", Cgroup: n.leaf(s)})
	return s
}

func (n *node) leaf(s starter.Starter) string { return proctree.CgroupOf(s.Slot) }

// rule is what the slice of a job may open; none without a rule.
func (n *node) rule(s starter.Starter) string {
	n.wall.mu.Lock()
	defer n.wall.mu.Unlock()
	r, ok := n.wall.by[filepath.Join(n.root, filepath.Dir(n.leaf(s)))]
	if !ok {
		return "none"
	}
	return fmt.Sprint(r.Own)
}

func own(instance int) string { return fmt.Sprintf("[{%d %d}]", 10*instance, 10*instance+1) }

// TestStartsBesideRounds: jobs start while rounds look at all of them. Each has its own nodes
// before its program runs, and is counted once.
func TestStartsBesideRounds(t *testing.T) {
	const n = 40
	node := newNode(t)
	starters := make([]starter.Starter, n+1)
	for i := 1; i <= n; i++ {
		starters[i] = node.starter(2000+i, i)
	}
	stop, rounds := make(chan struct{}), sync.WaitGroup{}
	rounds.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				node.Round(now(), time.Now())
			}
		}
	})
	var starts sync.WaitGroup
	for k := range 4 {
		starts.Go(func() {
			for i := 1 + k; i <= n; i += 4 {
				s := starters[i]
				node.admit(s, i)
				if err := node.CloseAtStart(now(), s, node.table.HeldBy(s), node.leaf(s)); err != nil {
					t.Error(err)
				}
				if got := node.rule(s); got != own(i) {
					t.Errorf("%s begins with %s", s.Slot, got)
				}
			}
		})
	}
	starts.Wait()
	close(stop)
	rounds.Wait()
	if node.counts.of(InTime) != n || node.counts.of(Late)+node.counts.of(Missing) != 0 {
		t.Errorf("counted %v; warnings %v", node.counts.by, node.Warnings())
	}
}

// TestRound: a job without a supervisor gets its rule, which is late, and loses it at its end.
func TestRound(t *testing.T) {
	n := newNode(t)
	s := n.job(100, 3)
	n.Round(now(), time.Now())
	if got := n.rule(s); got != own(3) {
		t.Errorf("it may open %s", got)
	}
	n.Round(now(), time.Now().Add(LateAfter))
	n.Round(now(), time.Now().Add(2*LateAfter))
	if n.counts.of(Late) != 1 {
		t.Errorf("counted %v", n.counts.by)
	}
	n.proc.End(s.PID + 1000)
	n.proc.End(s.PID)
	n.table.DropEnded()
	events := filepath.Join(n.root, filepath.Dir(n.leaf(s)), "cgroup.events")
	if err := os.WriteFile(events, []byte("populated 1\nfrozen 0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	n.Round(now(), time.Now())
	if got := n.rule(s); got != own(3) {
		t.Errorf("with a process that outlives it: %s", got)
	}
	if err := os.WriteFile(events, []byte("populated 0\nfrozen 0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	n.Round(now(), time.Now())
	if got := n.rule(s); got != "none" || strings.Contains(n.said.String(), "stays") {
		t.Errorf("after its end: %s, said %s", got, n.said)
	}
	s = n.job(101, 4)
	n.Round(now(), time.Now())
	n.proc.End(s.PID)
	n.wall.keeps = errors.New("busy")
	if n.Round(now(), time.Now()); !strings.Contains(n.said.String(), "the rule of a cgroup for device nodes stays") {
		t.Errorf("said %s", n.said)
	}
}

// TestNotEnforced: without MIG devices, on an observed node and where the kernel takes no
// rule none is put. Only the last is a warning.
func TestNotEnforced(t *testing.T) {
	for name, c := range map[string]struct {
		conditions func(*Conditions)
		err        error
	}{
		"not divided":         {conditions: func(c *Conditions) { c.Instances = nil }},
		"observed":            {conditions: func(c *Conditions) { c.Observed = true }},
		"the kernel refuses":  {conditions: func(*Conditions) {}, err: errors.New("no BPF")},
		"unknown to the plan": {conditions: func(c *Conditions) { delete(c.Instances, mig(1)) }},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.wall.err = c.err
			s, is := n.job(100, 1), now()
			c.conditions(&is)
			n.Round(is, time.Now())
			err := n.CloseAtStart(is, s, n.table.HeldBy(s), n.leaf(s))
			unknown := name == "unknown to the plan"
			if n.rule(s) != "none" || (err != nil) != unknown {
				t.Errorf("rule %s, %v", n.rule(s), err)
			}
			if warns := len(n.Warnings()) > 0; warns != (c.err != nil || unknown) || n.Enforced() != (c.err == nil) {
				t.Errorf("warnings %v, enforced %t", n.Warnings(), n.Enforced())
			}
		})
	}
}

// TestMayClose: on which cgroups of HTCondor's daemons a rule may be.
func TestMayClose(t *testing.T) {
	for cgroup, want := range map[string]error{
		"/system.slice/condor.service":      nil,
		"/system.slice/condor.service/leaf": nil,
		"":                                  errDaemonsNoCgroup,
		"/":                                 errDaemonsNoCgroup,
		"/../condor.service":                errDaemonsNoCgroup,
		"/user.slice/session-3.scope":       errDaemonsNoUnit,
	} {
		if err := mayClose(cgroup); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("%s: %v", cgroup, err)
		}
	}
}

// TestRuleWithoutDescriptors: a lack of file descriptors is no end of a job, and its rule stays.
func TestRuleWithoutDescriptors(t *testing.T) {
	n := newNode(t)
	s := n.job(2001, 1)
	n.Round(now(), time.Now())
	proctree.WithoutDescriptors(t, func() {
		if ended := n.table.DropEnded(); len(ended) > 0 {
			t.Errorf("jobs that have ended: %+v", ended)
		}
		n.Round(now(), time.Now())
	})
	if got := n.rule(s); got != own(1) || len(n.table.Running()) != 1 {
		t.Errorf("the rule is %s, the jobs are %+v", got, n.table.Running())
	}
	n.proc.End(s.PID)
	n.Round(now(), time.Now())
	if got := n.rule(s); got != "none" {
		t.Errorf("after its end the rule is %s", got)
	}
}

// TestPromiseWithoutDescriptors: a lack of file descriptors does not show that rules cannot be enforced. Otherwise jobs
// would start without one. The job that asks meanwhile does not start.
func TestPromiseWithoutDescriptors(t *testing.T) {
	for name, looked := range map[string]bool{"before the first look": false, "after one": true} {
		n := newNode(t)
		s := n.job(2001, 1)
		if looked {
			n.Round(now(), time.Now())
		}
		var err error
		leaf := n.processes.JobCgroup(s)
		proctree.WithoutDescriptors(t, func() {
			n.Round(now(), time.Now())
			err = n.CloseAtStart(now(), s, n.table.Running(), leaf)
		})
		if !n.Enforced() || !errors.Is(err, unix.EMFILE) {
			t.Errorf("%s: enforced %t, the start %v", name, n.Enforced(), err)
		}
	}
}

// TestPromiseOfTheKernel: one that has no memory now may take rules later, and one that takes none enforces none.
func TestPromiseOfTheKernel(t *testing.T) {
	for err, promised := range map[error]bool{unix.ENOMEM: true, unix.EMFILE: true, unix.EPERM: false, unix.EINVAL: false} {
		n := newNode(t)
		n.job(2001, 1)
		n.wall.err = fmt.Errorf("load a program: %w", err)
		if n.Round(now(), time.Now()); n.Enforced() != promised {
			t.Errorf("%v: enforced %t", err, n.Enforced())
		}
	}
}
