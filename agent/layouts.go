package agent

import (
	"context"
	"maps"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/layouts"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// layoutNode is what MIG layouts rest on now.
func (a *Agent) layoutNode(v *view, inv gpu.Inventory) layouts.Node {
	return layouts.Node{Config: v.config, Plan: v.plan, Inventory: inv, Before: a.recalled}
}

// makeLayouts makes the MIG layouts of the plan, and says whether any changed.
func (a *Agent) makeLayouts(ctx context.Context, v *view, inv gpu.Inventory, problem func(error)) (changed bool) {
	a.sweepNow()
	n := a.layoutNode(v, inv)
	n.Still = a.planBefore(v.config.Paths) != nil // a job's device is known by that plan alone
	out := a.layouts.Round(ctx, n)
	for _, err := range out.Problems {
		problem(err)
	}
	v.laidOut, v.repartition, v.below = out.Made, out.Repartition, out.Below
	return out.Changed
}

// layoutDaemons are the control daemons as agent/layouts sees them.
type layoutDaemons struct{ *Agent }

// Stop stops the control daemon of a MIG device that goes.
func (a layoutDaemons) Stop(ctx context.Context, u gpu.UUID) error { return a.keeper.Stop(ctx, u) }

// Owns says whether a process is the control daemon of a device, or an idle server of it.
func (a layoutDaemons) Owns(u gpu.UUID, pid int) bool { return a.view.Load().daemons[u].Owns(pid) }

// Probe asks all control daemons but one GPU's for their limits.
func (a layoutDaemons) Probe(ctx context.Context, but gpu.UUID) {
	old := a.view.Load()
	var others []mps.Wanted
	for u, g := range old.daemons {
		if old.physical(u) != but {
			others = append(others, g.Wanted)
		}
	}
	v := *old
	v.daemons = maps.Clone(old.daemons)
	maps.Copy(v.daemons, a.keeper.Probe(context.WithoutCancel(ctx), old.daemons, others, config.ReplyDeadline))
	a.view.Store(&v)
}
