package budget

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/test/cgroups"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// uuid is the UUID of the n-th test GPU.
func uuid(n int) gpu.UUID {
	return gpu.UUID(fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", n))
}

// counts are the metrics.
type counts struct {
	mu             sync.Mutex
	inTime, late   int
	repairedLimits int
}

func (c *counts) CgroupLimited(_ gpu.UUID, late bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if late {
		c.late++
	} else {
		c.inTime++
	}
}

func (c *counts) ReservationRepaired(gpu.UUID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.repairedLimits++
}

// log is what was logged.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// node is one whose driver limits cgroups, with one shared GPU.
type node struct {
	*Limits
	t      testing.TB
	proc   proctree.Tree
	view   starter.Node
	table  *jobs.Table
	driver *cgroups.Driver
	counts *counts
	said   *log
}

func newNode(t testing.TB) *node {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, proc: proctree.New(t), driver: cgroups.New(root)}
	n.view = starter.Node{FS: process.FS{Root: n.proc.Root}, Own: uint32(os.Getuid()), Mount: root}
	n.table = jobs.New(n.view)
	n.Limits = &Limits{file: filepath.Join(t.TempDir(), "cgroups.json")}
	n.again()
	return n
}

// again makes the next agent's limits over the same world.
func (n *node) again() {
	n.t.Helper()
	n.said, n.counts = &log{}, &counts{}
	n.Limits = NewLimits(Options{
		Driver: n.driver, Jobs: n.table, Processes: n.view, Metrics: n.counts,
		Log: slog.New(slog.NewTextHandler(n.said, nil)), Root: n.driver.Root, File: n.file,
	})
	if err := n.Read(); err != nil {
		n.t.Fatal(err)
	}
}

// starter admits a job of which no process is there yet.
func (n *node) starter(pid int, slot string, mib int64) starter.Starter {
	s := starter.Starter{ID: n.proc.Starter(pid, slot), Slot: slot}
	n.budget(s, mib)
	return s
}

// budget gives a job one, as HTCondor's ads do.
func (n *node) budget(s starter.Starter, mib int64) {
	n.table.Admit(starter.Caller{Starter: s, Hook: true}, func(*jobs.View) []jobs.Job {
		return []jobs.Job{{Starter: s, GPU: uuid(0), Budget: gpu.MiB(mib), ID: "1.0"}}
	})
}

// job admits one and starts its first process in its cgroup.
func (n *node) job(pid int, slot string, mib int64) starter.Starter {
	n.t.Helper()
	s := n.starter(pid, slot, mib)
	n.process(s)
	return s
}

func (n *node) process(s starter.Starter) {
	n.t.Helper()
	if err := os.MkdirAll(n.leaf(s), 0o755); err != nil {
		n.t.Fatal(err)
	}
	n.proc.Add(proctree.Process{PID: s.PID + 1000, Parent: s.PID, Comm: "train", Cgroup: proctree.CgroupOf(s.Slot)})
}

func (n *node) leaf(s starter.Starter) string {
	return filepath.Join(n.driver.Root, proctree.CgroupOf(s.Slot))
}

// htcondor is the cgroup above all jobs'.
func (n *node) htcondor() string { return filepath.Join(n.driver.Root, "htcondor") }

// gone ends a job's processes and its cgroup; its starter lives. The directory
// moves away, because a file system may use an inode again at once.
func (n *node) gone(s starter.Starter) {
	n.t.Helper()
	n.proc.End(s.PID + 1000)
	slice := filepath.Dir(n.leaf(s))
	if err := os.Rename(slice, filepath.Join(n.t.TempDir(), "gone")); err != nil {
		n.t.Fatal(err)
	}
}

// end ends a job's starter, and the table takes note.
func (n *node) end(s starter.Starter) {
	n.proc.End(s.PID)
	n.table.DropEnded()
	n.Wake()
}

// now are conditions in which jobs are limited.
func now() Conditions {
	return Conditions{
		Known: true, Has: true, Every: time.Second, Shared: func(u gpu.UUID) bool { return u == uuid(0) }, Supervised: true,
	}
}

func (n *node) round() { n.Round(n.t.Context(), now()) }

// limits holds those of a cgroup, in MiB.
func (n *node) limits(path, want string) {
	n.t.Helper()
	l, err := n.driver.MemoryLimits(n.t.Context(), uuid(0), path)
	hard := fmt.Sprint(int64(l.Hard.MiB()))
	if l.Hard == gpu.Unlimited {
		hard = "max"
	}
	got := fmt.Sprintf("soft %d hard %s", int64(l.Soft.MiB()), hard)
	if err != nil {
		got = err.Error()
	}
	if got != want {
		n.t.Errorf("%s: %s, want %s", filepath.Base(path), got, want)
	}
}

// wall is the first job's.
func (n *node) wall() string {
	return n.EnforcedBy(n.table.Running()[0], jobs.EnforcedByNone, time.Now())
}

func (n *node) warnings() string { return strings.Join(n.Warnings(), "\n") }

func (n *node) kept() string {
	b, err := os.ReadFile(n.file)
	if err != nil {
		n.t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// outside looks at a process of a job as a sample does.
func (n *node) outside(j jobs.Job, pid int, works bool, leaf func(pid int) (starter.Leaf, error)) (
	left []int, off, unclear bool,
) {
	off, look := n.Outside(j, works)
	if look != nil {
		left, unclear = look([]int{pid}, leaf)
	}
	return left, off, unclear
}
