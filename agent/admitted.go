package agent

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/gpuslot/gpuslot/agent/admission"
	"github.com/gpuslot/gpuslot/agent/budget"
	"github.com/gpuslot/gpuslot/agent/isolation"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/sampling"
	"github.com/gpuslot/gpuslot/agent/starter"
)

// admitted is the node as admissions see it: one view, the GPUs now, and what holds in the
// cgroups of jobs.
type admitted struct {
	node     *node
	sampling *sampling.Loop
	nodes    *isolation.Nodes
	limits   *budget.Limits
}

// now is the node now.
func (n admitted) now() admission.Node {
	v := n.node.view.Load()
	return admission.Node{
		Plan: &v.plan, NoPlan: v.noStart(), Pipes: v.config.Paths.PipeRoot(),
		MaxAge: v.config.Health.MaxAge(), Accounts: v.accounts, GPUs: viewed{n, v}, Cgroups: viewed{n, v},
	}
}

// viewed is one view of the node.
type viewed struct {
	admitted
	v *view
}

// Health is that of a shared GPU now.
func (n viewed) Health(g *plan.GPU, started uint64, now time.Time) admission.Health {
	h := n.node.gpus(n.v).Shared(g, now)
	h.Closed = n.node.closedBy(g).For(started).ReasonAnd(h.Closed)
	return h
}

// Taken says which process computes on a MIG device that no job has.
func (n viewed) Taken(g *plan.GPU) string { return n.sampling.Taken(g) }

// Closed is why a GPU that is not shared takes no job.
func (n viewed) Closed(g *plan.GPU, taken string, started uint64, now time.Time) (why string) {
	switch {
	case g.Alone():
		why = cmp.Or(n.node.gpus(n.v).Instance(g, now), taken)
	case g.Elastic:
		why = n.node.gpus(n.v).Whole(g, now)
	}
	return n.node.closedBy(g).For(started).ReasonAnd(why)
}

// Starts says whether a job may start where the caller is.
func (n viewed) Starts(c starter.Caller) error {
	return n.nodes.Starts(n.v.isolation(), c)
}

// CloseNodes closes the device nodes of other MIG devices to a job.
func (n viewed) CloseNodes(s starter.Starter, held []jobs.Job, leaf string) error {
	return n.nodes.CloseAtStart(n.v.isolation(), s, held, leaf)
}

// Limit limits a job's cgroup where the driver can, and says whether it was
// told to keep VRAM for it.
func (n viewed) Limit(ctx context.Context, j jobs.Job, leaf string) (reserved bool, err error) {
	if can := n.v.can.CgroupLimits; !can.Has || j.Budget <= 0 || leaf == "" {
		return false, fmt.Errorf("it limits only jobs with a budget in a cgroup of their own, where it can (%s)", can.How)
	}
	return n.limits.Start(ctx, j, leaf)
}
