package agent

import (
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/closures"
	"github.com/gpuslot/gpuslot/agent/faults"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
)

// closedBy are the closures that keep jobs off a GPU or MIG device of the plan.
func (a *Agent) closedBy(g *plan.GPU) closures.List {
	return a.closures.On(g.UUID, g.Physical())
}

// statusClosures are closures as operators see them.
func statusClosures(l closures.List) []api.GPUHold {
	var out []api.GPUHold
	for _, c := range l {
		out = append(out, api.GPUHold{Owner: c.Owner, Reason: c.Reason, Since: c.Since})
	}
	return out
}

// operator closes and opens GPUs.
func (a *Agent) operator() closures.Operator {
	return closures.Operator{Table: a.closures, Faults: keptFaults{a}, Events: a.history, Log: a.log}
}

// closeGPU closes GPUs for an owner. Running jobs are left alone.
func (a *Agent) closeGPU(req api.Request) (api.Closing, error) {
	v := a.view.Load()
	if err := v.refusesObserved(); err != nil {
		return api.Closing{}, err
	}
	defer nudge(a.wake)
	return a.operator().Close(&v.plan, req)
}

// openGPU opens GPUs for an owner.
func (a *Agent) openGPU(req api.Request) (api.Closing, error) {
	v := a.view.Load()
	defer nudge(a.wake)
	return a.operator().Open(&v.plan, v.reasons, req)
}

// keptFaults are the agent's faults, which are kept on disk.
type keptFaults struct{ *Agent }

// Verdict says whether a fault closes a GPU.
func (a keptFaults) Verdict(u gpu.UUID, now time.Time) faults.Verdict {
	return a.troubles.Verdict(u, now)
}

// Open opens a GPU although a fault closes it.
func (a keptFaults) Open(u gpu.UUID) error {
	a.troubles.Open(u)
	return a.keepTroubles(a.view.Load().config.Paths)
}
