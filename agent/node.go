package agent

import (
	"sync/atomic"
	"time"

	"github.com/gpuslot/gpuslot/agent/admission"
	"github.com/gpuslot/gpuslot/agent/closures"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/health"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/sampling"
	"github.com/gpuslot/gpuslot/agent/status"
	"github.com/gpuslot/gpuslot/agent/verify"
	"github.com/gpuslot/gpuslot/gpu"
)

// node is what the agent knows of its node: the view of the last round, and from the parts
// how the GPUs are now. It decides nothing. Its methods may be called by several goroutines
// at a time.
type node struct {
	view     atomic.Pointer[view]
	parts    health.Parts
	closures *closures.Table
	// before is what the agent before this one left.
	before before
}

// gpus are the GPUs of one view.
func (n *node) gpus(v *view) health.GPUs {
	return health.GPUs{Parts: n.parts, Node: health.Node{
		Sampling: n.sampled(v), Closed: v.closed, Present: v.present,
		Verified: v.config.Health.Open == config.OpenAfterVerify,
	}}
}

// sampled is the node as samples see it.
func (n *node) sampled(v *view) sampling.Node {
	return sampling.Node{
		Plan: &v.plan, Config: &v.config, Daemons: v.daemons, Modes: v.modes, PrivilegeChecks: v.privilegeChecks(),
		CgroupLimits: v.can.CgroupLimits.Has, Quiet: n.closures.Node().Quiet(),
	}
}

// lastRound is the last round as readers see it.
func (n *node) lastRound(v *view) status.Node {
	return status.Node{
		Config: v.config, Plan: v.plan, Planned: v.planned, Applied: v.applied, Before: n.before.plan,
		ConfigError: v.configError, ConfigRead: v.configRead, ConfigOK: v.configOK,
		Written: v.written, Closed: v.closed, NoPlan: v.noPlan(),
		Daemons: v.daemons, Modes: v.modes, Present: v.present, Accounts: v.accounts, Can: v.can,
		HTCondor: v.condorText(), Overridden: v.overridden, Repartition: v.repartition, Below: v.below,
		LaidOut: v.laidOut, Problems: v.problems, Rounds: v.rounds, RoundTook: v.took, RoundOK: v.roundOK,
		Health: n.gpus(v),
	}
}

// closedBy are the closures that keep jobs off a GPU or MIG device of the plan.
func (n *node) closedBy(g *plan.GPU) closures.List { return n.closures.On(g.UUID, g.Physical()) }

// judge says of each GPU of a view what the agent sees that closes it, and whether an owner
// closed it.
func (n *node) judge(v *view, now time.Time) (reasons map[gpu.UUID]string, held map[gpu.UUID]bool) {
	reasons, held = make(map[gpu.UUID]string, len(v.daemons)), map[gpu.UUID]bool{}
	gpus := n.gpus(v)
	for u := range v.daemons {
		reasons[u] = gpus.Seen(u, now).Reason(now, v.config.Health.MaxAge())
	}
	for i := range v.plan.GPUs {
		g := &v.plan.GPUs[i]
		switch {
		case g.Alone():
			reasons[g.UUID] = gpus.Alone(g, now)
		case g.NeedsLimits():
			reasons[g.UUID] = gpus.Seen(g.UUID, now).Reason(now, v.config.Health.MaxAge())
		}
		held[g.UUID] = len(n.closedBy(g)) > 0
	}
	return reasons, held
}

// unwell is why jobs could not run on a shared GPU now, regardless of who closed it and of its
// verification; empty if they could.
func (n *node) unwell(g *plan.GPU, now time.Time) string {
	v := n.view.Load()
	return n.gpus(v).Unverified(g, now).Reason(now, v.config.Health.MaxAge())
}

// facts are what the result of a verification rests on.
func (n *node) facts(v *view, now time.Time) func(u gpu.UUID) verify.Facts {
	return func(u gpu.UUID) verify.Facts {
		f := verify.Facts{
			Driver: v.plan.Driver, Daemon: v.daemons[u].Checked.Process(), Faulted: v.daemons[u].Servers.Faulted(),
		}
		if verdict := n.parts.Faults.Verdict(u, now); verdict.Closed() {
			f.Closed = verdict.Reason
		}
		return f
	}
}

// enforcement says what enforces a budget on a GPU of the plan; that of a GPU that is not
// shared is the GPU itself. It reads the GPUs' health now, and nothing later.
func (n *node) enforcement(v *view, now time.Time) func(u gpu.UUID, budget gpu.MiB) string {
	shared, gpus := map[gpu.UUID]admission.Health{}, n.gpus(v)
	for i := range v.plan.GPUs {
		if g := &v.plan.GPUs[i]; g.Shared() {
			shared[g.UUID] = gpus.Seen(g.UUID, now)
		}
	}
	return func(u gpu.UUID, budget gpu.MiB) string {
		g, ok := v.plan.Find(u)
		switch {
		case !ok:
			return jobs.EnforcedByNone
		case g.Observed():
			return "" // nothing of ours
		case g.Alone():
			return jobs.EnforcedByMIG
		case !g.Shared():
			return jobs.EnforcedByWhole
		}
		return admission.Enforcement(g.LargestRequest, budget, shared[u])
	}
}
