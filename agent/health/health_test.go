package health

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/admission"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/daemons"
	"github.com/gpuslot/gpuslot/agent/faults"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/sampling"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
	"github.com/gpuslot/gpuslot/test/proctree"
)

const (
	shared = gpu.UUID("GPU-00000000-0000-4000-8000-000000000000")
	whole  = gpu.UUID("GPU-00000000-0000-4000-8000-000000000001")
	parent = gpu.UUID("GPU-00000000-0000-4000-8000-000000000002")
	device = gpu.UUID("MIG-00000000-0000-5000-8000-000000000000")
)

// fake is what all parts know; empty texts and zero values close nothing.
type fake struct {
	verdicts                        map[gpu.UUID]faults.Verdict
	blocked, unseen, taken, missing string
	refused                         time.Time
	enforces, limited               bool
	unlisted                        sampling.Unlisted
	pulse                           mps.QuickCheck
	looks                           int
}

func (f *fake) Verdict(u gpu.UUID, _ time.Time) faults.Verdict { return f.verdicts[u] }

func (f *fake) Blocked(sampling.Node, gpu.UUID) string { return f.blocked }

func (f *fake) Unseen(sampling.Node, gpu.UUID, time.Time) string { return f.unseen }

func (f *fake) Enforces(sampling.Node, gpu.UUID) bool { return f.enforces }

func (f *fake) Unlisted(sampling.Node, gpu.UUID, time.Time) sampling.Unlisted { return f.unlisted }

func (f *fake) Taken(*plan.GPU) string { return f.taken }

func (f *fake) Missing(gpu.UUID) string { return f.missing }

func (f *fake) Unlimited(gpu.UUID) (string, time.Time) {
	if !f.limited {
		return "no limits", f.refused
	}
	return "", time.Time{}
}

func (f *fake) QuickCheck(gpu.UUID, mps.Checked) mps.QuickCheck {
	f.looks++
	return f.pulse
}

// node is one with a shared GPU, a whole one, and a MIG device that jobs have alone; all are well.
func node(t *testing.T, now time.Time) (GPUs, *fake, *jobs.Table) {
	t.Helper()
	f := &fake{verdicts: map[gpu.UUID]faults.Verdict{}}
	table := jobs.New(starter.Node{FS: process.FS{Root: proctree.New(t).Root}})
	return GPUs{
		Parts: Parts{Faults: f, Samples: f, Unlisted: f, Processes: f, Verifications: f, Limits: f, Daemons: f, Jobs: table},
		Node: Node{
			Sampling: sampling.Node{
				Plan: &plan.Plan{GPUs: []plan.GPU{
					{UUID: shared, Mode: config.ModeMPS}, {UUID: whole, Mode: config.ModeWhole},
					{UUID: device, Parent: parent, Device: device, Mode: config.ModeMIG},
				}},
				Daemons: map[gpu.UUID]daemons.State{shared: {Checked: mps.Checked{PID: 7, At: now}}},
			},
			Present: map[gpu.UUID]bool{shared: true, whole: true, device: true},
		},
	}, f, table
}

// TestShared: each part closes a shared GPU in its own words, and the look at its control daemon does
// after them.
func TestShared(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		bend func(n *GPUs, f *fake)
		says string
		// seen: the same without a look at the daemon; unverified: whether or not it was verified.
		seen, unverified bool
	}{
		"well":           {func(*GPUs, *fake) {}, "", true, true},
		"the whole node": {func(n *GPUs, _ *fake) { n.Closed = "no driver" }, "no driver", true, true},
		"it is gone":     {func(n *GPUs, _ *fake) { n.Present = nil }, "it is not in the node any more", true, true},
		"the hardware":   {func(_ *GPUs, f *fake) { f.verdicts[shared] = broken }, "Xid 79", true, true},
		"a process":      {func(_ *GPUs, f *fake) { f.blocked = "process 3 holds it" }, "process 3", true, true},
		"no samples":     {func(_ *GPUs, f *fake) { f.unseen = "not read" }, "not read", true, true},
		"jobs lack VRAM": {func(_ *GPUs, f *fake) {
			f.unlisted = sampling.Unlisted{VRAM: 900, Eaten: 500}
		}, "running jobs lack 500", true, true},
		"VRAM is in use": {func(_ *GPUs, f *fake) {
			f.unlisted = sampling.Unlisted{VRAM: 900, Taken: 500}
		}, "", true, true},
		"not verified": {func(n *GPUs, f *fake) {
			n.Verified, f.missing = true, "not verified"
		}, "not verified", true, false},
		"the first reason": {func(n *GPUs, f *fake) {
			n.Verified, f.missing, f.unseen = true, "not verified", "not read"
		}, "not read", true, true},
		"verified at times": {func(_ *GPUs, f *fake) { f.missing = "not verified" }, "", true, true},
		"the daemon": {func(n *GPUs, _ *fake) {
			n.Sampling.Daemons[shared] = daemons.State{Checked: mps.Checked{PID: 7, At: now}, Otherwise: "its server differs"}
		}, "its server differs", true, true},
		"the daemon ended": {func(_ *GPUs, f *fake) {
			f.pulse.Err = errors.New("it is gone")
		}, "it is gone", false, true},
		"a server is suspended": {func(_ *GPUs, f *fake) {
			f.pulse.Suspended = []mps.Server{{ID: process.ID{PID: 9}}}
		}, "process 9", false, true},
		"no health check yet": {func(n *GPUs, _ *fake) { n.Sampling.Daemons = nil }, "", true, true},
	} {
		n, f, _ := node(t, now)
		c.bend(&n, f)
		g, _ := n.Sampling.Plan.Find(shared)
		check := func(how string, h admission.Health, has bool) {
			t.Helper()
			says := h.Closed
			if says == "" && h.Check != nil {
				says = h.Check.Error()
			}
			if has && !strings.Contains(says, c.says) || (says != "") != (has && c.says != "") {
				t.Errorf("%s, %s: %q, want %q", name, how, says, c.says)
			}
		}
		check("with a look", n.Shared(g, now), true)
		check("without", n.Seen(shared, now), c.seen)
		check("unverified", n.Unverified(g, now), c.unverified)
		if _, up := n.Sampling.Daemons[shared]; !up && f.looks > 0 {
			t.Errorf("%s: %d looks at no daemon", name, f.looks)
		}
	}
}

// TestWithoutMPS: a GPU in time slices needs the driver's limits and a compute mode for several
// processes. No control daemon counts, and the fault of one process does not close it.
func TestWithoutMPS(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		bend func(n *GPUs, f *fake)
		says string
	}{
		"well": {func(*GPUs, *fake) {}, ""},
		"a process's fault": {func(_ *GPUs, f *fake) {
			f.verdicts[shared] = faults.Verdict{Class: faults.ClosedForServer, Reason: "Xid 31"}
		}, ""},
		"not verified":     {func(n *GPUs, f *fake) { n.Verified, f.missing = true, "not verified" }, ""},
		"the hardware":     {func(_ *GPUs, f *fake) { f.verdicts[shared] = broken }, "Xid 79"},
		"limits not known": {func(n *GPUs, _ *fake) { n.Sampling.CgroupLimits = false }, "are not known to limit"},
		"a failed limit":   {func(_ *GPUs, f *fake) { f.limited, f.refused = false, now }, "the driver did not limit"},
		"failed before":    {func(_ *GPUs, f *fake) { f.limited, f.refused = false, now.Add(-closedFor) }, ""},
		"another mode": {func(n *GPUs, _ *fake) {
			n.Sampling.Modes[shared] = "EXCLUSIVE_PROCESS, not DEFAULT: no permission"
		}, "EXCLUSIVE_PROCESS"},
		"no mode read": {func(n *GPUs, _ *fake) { n.Sampling.Modes = nil }, "not known"},
		"jobs with MPS": {func(n *GPUs, _ *fake) {
			n.Sampling.Daemons = map[gpu.UUID]daemons.State{shared: {Checked: mps.Checked{PID: 7, At: now}}}
		}, "jobs still use its control daemon"},
		"a process": {func(_ *GPUs, f *fake) { f.blocked = "process 3" }, "process 3"},
	} {
		n, f, _ := node(t, now)
		n.Sampling.Plan.GPUs[0].Mode = config.ModeTimeSlice
		n.Sampling.Daemons, n.Sampling.CgroupLimits, f.limited = nil, true, true
		n.Sampling.Modes = map[gpu.UUID]string{shared: string(gpu.ComputeModeDefault)}
		c.bend(&n, f)
		g, _ := n.Sampling.Plan.Find(shared)
		got := n.Shared(g, now).Reason(now, time.Minute)
		if (got != "") != (c.says != "") || !strings.Contains(got, c.says) {
			t.Errorf("%s: %q, want %q", name, got, c.says)
		}
	}
}

// broken is the verdict after an Xid that only an operator opens.
var broken = faults.Verdict{Class: faults.ClosedBroken, Reason: "Xid 79"}

// TestEnforcement: what enforces budgets is known of the GPU at hand.
func TestEnforcement(t *testing.T) {
	now := time.Now()
	n, f, _ := node(t, now)
	g, _ := n.Sampling.Plan.Find(shared)
	if h := n.Shared(g, now); h.Watched || h.CgroupLimits || h.PrivilegeChecks || h.Stale || h.Checked.PID != 7 {
		t.Errorf("%+v", h)
	}
	f.enforces, f.limited, f.unlisted.Taken = true, true, 500
	if h := n.Shared(g, now); !h.Watched || h.CgroupLimits || h.Unlisted != 500 {
		t.Errorf("the driver cannot limit cgroups: %+v", h)
	}
	n.Sampling.CgroupLimits, n.Sampling.PrivilegeChecks = true, true
	n.Sampling.Daemons[shared] = daemons.State{Checked: mps.Checked{PID: 7, Stale: []int{8}}}
	if h := n.Shared(g, now); !h.CgroupLimits || !h.PrivilegeChecks || !h.Stale {
		t.Errorf("%+v", h)
	}
}

// TestAlone: a MIG device that jobs have alone is closed by its GPU's faults, by a process that is no
// job's, and by the job table, but not by its own job.
func TestAlone(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		bend func(n *GPUs, f *fake)
		says string
		// instance: the same says the reason that leaves out jobs and processes.
		instance bool
	}{
		"well":           {func(*GPUs, *fake) {}, "", true},
		"the whole node": {func(n *GPUs, _ *fake) { n.Closed = "no driver" }, "no driver", true},
		"another layout": {func(n *GPUs, _ *fake) {
			g := &n.Sampling.Plan.GPUs[2]
			g.Place, g.Device = "1g.5gb", ""
		}, "there is no MIG device 1g.5gb now", true},
		"its place":  {func(n *GPUs, _ *fake) { n.Sampling.Plan.GPUs[2].Place = "1g.5gb" }, "", true},
		"it is gone": {func(n *GPUs, _ *fake) { n.Present = nil }, "nvidia-smi -L", true},
		"its GPU":    {func(_ *GPUs, f *fake) { f.verdicts[parent] = broken }, "Xid 79", true},
		"an MPS server's": {func(_ *GPUs, f *fake) {
			f.verdicts[parent] = faults.Verdict{Class: faults.ClosedForServer, Reason: "x"}
		}, "", true},
		"a process": {func(_ *GPUs, f *fake) { f.taken = "process 3 computes on it" }, "process 3", false},
	} {
		n, f, _ := node(t, now)
		c.bend(&n, f)
		g := &n.Sampling.Plan.GPUs[2]
		if why := n.Alone(g, now); (why == "") != (c.says == "") || !strings.Contains(why, c.says) {
			t.Errorf("%s: %q", name, why)
		}
		if why := n.Instance(g, now); (why != "") != (c.instance && c.says != "") {
			t.Errorf("%s: without jobs and processes %q", name, why)
		}
	}
	n, f, table := node(t, now)
	f.taken = "process 3 computes on it"
	g := &n.Sampling.Plan.GPUs[2]
	table.Admit(starter.Caller{}, func(*jobs.View) []jobs.Job { return []jobs.Job{{GPU: device}} })
	if why := n.Alone(g, now); why != "" {
		t.Errorf("its own job's process: %s", why)
	}
	table.Leave(map[gpu.UUID]string{device: "its layout changes"})
	if why := n.Alone(g, now); why != "its layout changes" {
		t.Errorf("%q", why)
	}
}

// TestWhole: a GPU that jobs have whole is closed by the node and the hardware only.
func TestWhole(t *testing.T) {
	now := time.Now()
	n, f, _ := node(t, now)
	g, _ := n.Sampling.Plan.Find(whole)
	f.blocked, f.unseen, n.Present = "x", "y", nil
	if why := n.Whole(g, now); why != "" {
		t.Errorf("%q", why)
	}
	f.verdicts[whole] = broken
	if why := n.Whole(g, now); why != "Xid 79" {
		t.Errorf("%q", why)
	}
	if n.Closed = "no driver"; n.Whole(g, now) != "no driver" {
		t.Error("the node is closed")
	}
}
