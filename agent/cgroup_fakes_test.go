package agent

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// fakeCgroups is a driver with its back-end dmem, over a tree of directories:
// what a cgroup's soft limit changes by, every one above it changes by, too, and
// a cgroup that is removed takes nothing along (NVIDIA's MPS documentation,
// release 615).
type fakeCgroups struct {
	root string
	mu   sync.Mutex
	by   map[starter.Cgroup]gpu.MemoryLimits
	err  error
	// used is what the next cgroup that is limited uses already.
	used gpu.Bytes
	// deaf: limits are taken and not kept; bent: half of them are; flat: nothing is added up
	// above a cgroup, as with the back-end misc.
	deaf, bent, flat bool
	// refuses is the end of names of cgroups that it limits not.
	refuses string
}

func (f *fakeCgroups) SetMemoryLimits(_ context.Context, _ gpu.UUID, cgroup string, soft, hard gpu.Bytes) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, err := starter.CgroupAt(cgroup)
	switch {
	case f.err != nil:
		return f.err
	case f.refuses != "" && strings.HasSuffix(cgroup, f.refuses):
		return gpu.ErrNoMemoryLimits
	case err != nil:
		return gpu.ErrNoCgroup
	case f.deaf:
		return nil
	case f.bent:
		hard /= 2
	}
	l := f.by[d]
	delta := soft - l.Soft
	f.by[d] = gpu.MemoryLimits{Soft: soft, Hard: hard, Used: f.used}
	for up := filepath.Dir(cgroup); up != f.root && !f.flat; up = filepath.Dir(up) {
		if d, err = starter.CgroupAt(up); err != nil {
			return err
		}
		above, ok := f.by[d]
		if !ok {
			above.Hard = gpu.Unlimited
		}
		above.Soft += delta
		f.by[d] = above
	}
	return nil
}

func (f *fakeCgroups) MemoryLimits(_ context.Context, _ gpu.UUID, cgroup string) (gpu.MemoryLimits, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, err := starter.CgroupAt(cgroup)
	if err != nil {
		return gpu.MemoryLimits{}, gpu.ErrNoCgroup
	}
	l, ok := f.by[d]
	if !ok {
		return l, gpu.ErrNoMemoryLimits
	}
	return l, nil
}

func (f *fakeCgroups) change(do func(*fakeCgroups)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do(f)
}

// cgroupAgent is an agent on a node whose driver limits cgroups.
type cgroupAgent struct {
	*testAgent
	driver *fakeCgroups
	said   *bytes.Buffer
}

func newCgroupAgent(t *testing.T) *cgroupAgent {
	t.Helper()
	c := &cgroupAgent{testAgent: newTestAgent(t, 1, "")}
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c.driver = &fakeCgroups{root: root, by: map[starter.Cgroup]gpu.MemoryLimits{}}
	c.again()
	return c
}

// again makes another agent over the same world.
func (c *cgroupAgent) again() {
	c.t.Helper()
	c.restart()
	c.cgroups.driver = c.driver
	if err := c.cgroups.read(); err != nil {
		c.t.Fatal(err)
	}
	c.said = &bytes.Buffer{}
	c.log = slog.New(slog.NewTextHandler(c.said, nil))
	c.cgroups.root = c.driver.root
	v := *c.view.Load()
	v.can.CgroupLimits = kernelControllers(fstest.MapFS{"fs/cgroup/cgroup.controllers": {Data: []byte("memory dmem\n")}})
	c.view.Store(&v)
}

// job admits one and starts its first process in its cgroup.
func (c *cgroupAgent) job(pid int, slot string, mib int64) starter.Starter {
	c.t.Helper()
	st := c.proc.starter(pid, slot)
	c.grant(st, 1000, "alice", uuid(0), mib)
	c.process(st)
	return st
}

func (c *cgroupAgent) process(st starter.Starter) {
	c.t.Helper()
	if err := os.MkdirAll(c.leaf(st), 0o755); err != nil {
		c.t.Fatal(err)
	}
	c.proc.Add(proctree.Process{PID: st.PID + 1000, Parent: st.PID, Comm: "train", Cgroup: proctree.CgroupOf(st.Slot)})
}

func (c *cgroupAgent) leaf(st starter.Starter) string {
	return filepath.Join(c.driver.root, proctree.CgroupOf(st.Slot))
}

// gone ends a job's processes and its cgroup; its starter lives. The directory
// moves away, because a file system may use an inode again at once.
func (c *cgroupAgent) gone(st starter.Starter) {
	c.t.Helper()
	c.proc.End(st.PID + 1000)
	slice := filepath.Dir(c.leaf(st))
	if err := os.Rename(slice, filepath.Join(c.t.TempDir(), "gone")); err != nil {
		c.t.Fatal(err)
	}
}

// round is one of the limits' loop.
func (c *cgroupAgent) round() {
	v := c.view.Load()
	c.keepLimits(c.t.Context(), v)
	c.takeLimits(c.t.Context(), v)
}

// limits holds those of a cgroup below the mount, in MiB.
func (c *cgroupAgent) limits(path, want string) {
	c.t.Helper()
	l, err := c.driver.MemoryLimits(c.t.Context(), uuid(0), path)
	hard := fmt.Sprint(int64(l.Hard.MiB()))
	if l.Hard == gpu.Unlimited {
		hard = "max"
	}
	got := fmt.Sprintf("soft %d hard %s", int64(l.Soft.MiB()), hard)
	if err != nil {
		got = err.Error()
	}
	if got != want {
		c.t.Errorf("%s: %s, want %s", filepath.Base(path), got, want)
	}
}

// htcondor is the cgroup above all jobs'.
func (c *cgroupAgent) htcondor() string { return filepath.Join(c.driver.root, "htcondor") }

func (c *cgroupAgent) wall(n int) string { return c.status().GPUs[0].Jobs[n].Wall }

func (c *cgroupAgent) kept() string {
	b, err := os.ReadFile(c.cgroups.file)
	if err != nil {
		c.t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}
