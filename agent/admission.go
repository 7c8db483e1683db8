package agent

import (
	"cmp"
	"context"
	"time"

	"github.com/gpuslot/gpuslot/agent/admission"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
)

// newAdmission wires the preparer of jobs.
func (a *Agent) newAdmission() *admission.Preparer {
	return admission.New(admission.Options{
		Node: a.admissionNode, Jobs: a.jobs, Access: a.access, Partitions: a.partitions, Elastic: a.elastic,
		Startds: startds{a}, Processes: a.proc, Events: a.history, Metrics: a.metrics, Log: a.log,
		Sweep: a.sweepNow, Ended: a.shutOut,
		Changed: func() { nudge(a.wake) }, Entered: func() { a.startds.Entered() },
	})
}

// admissionNode is the node as admissions see it.
func (a *Agent) admissionNode() admission.Node {
	v := a.view.Load()
	return admission.Node{
		Plan: &v.plan, NoPlan: v.noStart(), Pipes: v.config.Paths.PipeRoot(),
		MaxAge: v.config.Health.MaxAge, Accounts: v.accounts, GPUs: viewedGPUs{a, v}, Cgroups: viewedCgroups{a, v},
	}
}

// viewedGPUs are the GPUs of one view.
type viewedGPUs struct {
	a *Agent
	v *view
}

// Health is that of a shared GPU now.
func (n viewedGPUs) Health(g *plan.GPU, started uint64, now time.Time) admission.Health {
	h := n.a.gpus(n.v).Shared(g, now)
	h.Closed = n.a.closedBy(g).For(started).ReasonAnd(h.Closed)
	return h
}

// Taken says which process computes on a MIG device that no job has.
func (n viewedGPUs) Taken(g *plan.GPU) string { return n.a.sampling.Taken(g) }

// Closed is why a GPU that is not shared takes no job.
func (n viewedGPUs) Closed(g *plan.GPU, taken string, started uint64, now time.Time) (why string) {
	switch {
	case g.Alone():
		why = cmp.Or(n.a.gpus(n.v).Instance(g, now), taken)
	case g.Elastic:
		why = n.a.gpus(n.v).Whole(g, now)
	}
	return n.a.closedBy(g).For(started).ReasonAnd(why)
}

// viewedCgroups are the limits and the rules for device nodes of one view.
type viewedCgroups struct {
	a *Agent
	v *view
}

// Starts says whether a job may start where the caller is.
func (n viewedCgroups) Starts(c starter.Caller) error {
	return n.a.nodes.Starts(n.v.isolation(), c)
}

// CloseNodes closes the device nodes of other MIG devices to a job.
func (n viewedCgroups) CloseNodes(s starter.Starter, held []jobs.Job, leaf string) error {
	return n.a.nodes.CloseAtStart(n.v.isolation(), s, held, leaf)
}

// Limit limits a job's cgroup where the driver can, and says whether it was
// told to keep VRAM for it.
func (n viewedCgroups) Limit(ctx context.Context, j jobs.Job, leaf string) (reserved bool) {
	if !n.v.can.CgroupLimits.Has || j.Budget <= 0 || leaf == "" {
		return false
	}
	if !n.a.limits.Has(j.Starter, j.GPU) {
		n.a.limits.Take(ctx, j, leaf)
	}
	return n.a.limits.Has(j.Starter, j.GPU)
}

// startds are those of this node.
type startds struct{ a *Agent }

// Slots are their own ads of their slots.
func (s startds) Slots(ctx context.Context) (slots []condor.Slot, err error) {
	all, err := s.a.startds.Slots(ctx)
	for _, one := range all {
		slots = append(slots, one.Slots...)
	}
	return slots, err
}

// shutOut records jobs that were dropped from the job table, and takes the access of accounts
// without a job.
func (a *Agent) shutOut(ended []jobs.Job) {
	a.finish(ended)
	if err := a.access.Sweep(a.jobs.Needs); err != nil {
		a.log.Error("sweep", "err", err)
	}
}
