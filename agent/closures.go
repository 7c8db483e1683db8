package agent

import (
	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/closures"
	"github.com/gpuslot/gpuslot/agent/plan"
)

// closedBy are the closures that keep jobs off a GPU or MIG device of the plan.
func (a *Agent) closedBy(g *plan.GPU) closures.List {
	return a.closures.On(g.UUID, g.Physical())
}

// operator closes and opens GPUs.
func (a *Agent) operator() closures.Operator {
	return closures.Operator{Table: a.closures, Faults: a.troubles, Events: a.history, Log: a.log}
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
