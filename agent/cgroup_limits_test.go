package agent

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/gpuslot/gpuslot/agent/budget"
	"github.com/gpuslot/gpuslot/agent/capability"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/cgroups"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// cgroupAgent is an agent on a node whose driver limits cgroups.
type cgroupAgent struct {
	*testAgent
	driver *cgroups.Driver
	said   *bytes.Buffer
}

func newCgroupAgent(t *testing.T) *cgroupAgent {
	t.Helper()
	c := &cgroupAgent{testAgent: newTestAgent(t, 1, ""), said: &bytes.Buffer{}}
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c.driver = cgroups.New(root)
	c.log = slog.New(slog.NewTextHandler(c.said, nil))
	c.Agent.limits = budget.NewLimits(budget.Options{
		Driver: c.driver, Jobs: c.jobs, Processes: c.Agent.proc, Metrics: c.metrics, Log: c.log,
		Root: root, File: cgroupsFile(c.config()),
	})
	c.newAdmission()
	c.connect()
	v := *c.view.Load()
	v.can.CgroupLimits = capability.Controllers(fstest.MapFS{
		"fs/cgroup/cgroup.controllers": {Data: []byte("memory dmem\n")},
	})
	c.view.Store(&v)
	return c
}

// job admits one and starts its first process in its cgroup.
func (c *cgroupAgent) job(pid int, slot string, mib int64) starter.Starter {
	c.t.Helper()
	st := c.proc.starter(pid, slot)
	c.grant(st, 1000, "alice", uuid(0), mib)
	c.process(st)
	return st
}

// process starts the first process of a job in its cgroup.
func (c *cgroupAgent) process(st starter.Starter) {
	c.t.Helper()
	if err := os.MkdirAll(c.leaf(st), 0o755); err != nil {
		c.t.Fatal(err)
	}
	c.proc.Add(proctree.Process{PID: st.PID + 1000, Parent: st.PID, Comm: "train", Cgroup: proctree.CgroupOf(st.Slot)})
}

func (c *cgroupAgent) leaf(st starter.Starter) string {
	return filepath.Join(c.driver.Root, proctree.CgroupOf(st.Slot))
}

// round is one of the limits' loop.
func (c *cgroupAgent) round() { c.Agent.limits.Round(c.t.Context(), c.view.Load().limits()) }

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
func (c *cgroupAgent) htcondor() string { return filepath.Join(c.driver.Root, "htcondor") }

func (c *cgroupAgent) wall(n int) string { return c.status().GPUs[0].Jobs[n].EnforcedBy }

// TestCgroupLimitOfAJob: from its admission to the end that its supervisor tells of.
func TestCgroupLimitOfAJob(t *testing.T) {
	c := newCgroupAgent(t)
	st := c.proc.starter(100, "slot1_1")
	grant := c.grant(st, 1000, "alice", uuid(0), 4096)
	if grant.EnforcedBy == jobs.EnforcedByCgroup || grant.Environment["GPUSLOT_ENFORCED_BY"] == jobs.EnforcedByCgroup {
		t.Error("the grant tells of a limit that is not there yet")
	}
	if got := grant.Defaults["XLA_PYTHON_CLIENT_MEM_FRACTION"]; got != "1.00" {
		t.Errorf("JAX is to take %s of a GPU that shows the budget as its total", got)
	}
	c.process(st)
	reply := c.admission.Start(t.Context(), c.proc.caller(1000, st.PID+1000, st))
	if s := reply.Started; s == nil || !s.Supervise || !s.Reserved {
		t.Errorf("the supervisor hears %+v", reply)
	}
	c.limits(c.leaf(st), "soft 4096 hard 4096")
	c.limits(c.htcondor(), "soft 4096 hard max")
	if got := c.wall(0); got != jobs.EnforcedByCgroup || c.status().GPUs[0].EnforcedBy != jobs.EnforcedByCgroup {
		t.Errorf("wall %s", got)
	}
	c.proc.Add(proctree.Process{PID: st.PID + 2000, Parent: st.PID, Comm: "supervise",
		Cgroup: "/htcondor/_x_" + st.Slot + "@wn1/sshd.slice/sshd.scope"})
	if _, err := c.ender.End(t.Context(), c.proc.caller(1000, st.PID+2000, st)); err != nil {
		t.Fatal(err)
	}
	c.limits(c.leaf(st), "soft 4096 hard 4096") // a logout
	if _, err := c.ender.End(t.Context(), hookOf(st, 1000)); err != nil {
		t.Fatal(err)
	}
	c.limits(c.leaf(st), "soft 0 hard 4096")
	c.limits(c.htcondor(), "soft 0 hard max")
	c.round()
	if got := c.wall(0); got != jobs.EnforcedByCgroup {
		t.Errorf("wall %s: the hard limit stands to the end", got)
	}
	c.limits(c.leaf(st), "soft 0 hard 4096")
	c.proc.End(st.PID + 1000)
	if err := os.Rename(filepath.Dir(c.leaf(st)), filepath.Join(t.TempDir(), "gone")); err != nil {
		t.Fatal(err)
	}
	c.round()
	if got := strings.TrimSpace(c.read(cgroupsFile(c.config()))); got != "[]" {
		t.Errorf("kept: %s", got)
	}
	if strings.Contains(c.said.String(), "WARN") || strings.Contains(c.said.String(), "ERROR") {
		t.Error(c.said)
	}
}

// TestJobWithoutCgroupLimit: where its cgroup cannot be limited, status says so, and the
// next job does not take its budget for the whole GPU.
func TestJobWithoutCgroupLimit(t *testing.T) {
	c := newCgroupAgent(t)
	c.driver.Is(cgroups.Mood{Err: errors.New("not supported by this GPU or driver")})
	st := c.proc.starter(100, "slot1_1")
	c.grant(st, 1000, "alice", uuid(0), 4096)
	c.process(st)
	c.round()
	warnings := strings.Join(c.status().Warnings, "\n")
	if c.wall(0) == jobs.EnforcedByCgroup || !strings.Contains(warnings, "not held by limits of cgroups: not supported") {
		t.Errorf("wall %s, warnings: %s", c.wall(0), warnings)
	}
	next := c.grant(c.proc.starter(200, "slot1_2"), 1000, "alice", uuid(0), 4096)
	if next.Defaults["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "1.00" {
		t.Error("the next job takes the whole GPU for its budget")
	}
	c.driver.Is(cgroups.Mood{})
	c.round()
	warnings = strings.Join(c.status().Warnings, "\n")
	if c.wall(0) != jobs.EnforcedByCgroup || strings.Contains(warnings, "limits of cgroups") {
		t.Errorf("wall %s, warnings: %s", c.wall(0), warnings)
	}
}
