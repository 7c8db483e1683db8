package agent

import (
	"cmp"
	"fmt"
	"time"

	"github.com/gpuslot/gpuslot/agent/faults"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
)

// closedInstance says why a MIG device that jobs have alone takes none; empty if
// it does, as far as the hardware's word goes.
func (a *Agent) closedInstance(v *view, g *plan.GPU, now time.Time) string {
	switch trouble := a.troubles.Verdict(g.Parent, now); {
	case v.closed != "":
		return v.closed
	case g.Place != "" && g.Device == "":
		return fmt.Sprintf("there is no MIG device %s now: its GPU has another layout", g.Place)
	case !v.present[g.UUID]:
		return "it is not in the node any more: see whether nvidia-smi -L lists it"
	case trouble.Closed() && trouble.Class != faults.ClosedForServer:
		return trouble.Reason
	}
	return ""
}

// closedWhole is why a GPU that jobs have whole takes none but for who holds it:
// nothing but the node and the hardware's word does.
func (a *Agent) closedWhole(v *view, g *plan.GPU, now time.Time) string {
	switch trouble := a.troubles.Verdict(g.UUID, now); {
	case v.closed != "":
		return v.closed
	case trouble.Closed() && trouble.Class != faults.ClosedForServer:
		return trouble.Reason
	}
	return ""
}

// judgeInstance looks at a MIG device that jobs have alone. It leaves out who
// holds it closed.
func (a *Agent) judgeInstance(v *view, g *plan.GPU, now time.Time) judgement {
	j := judgement{reason: a.seenInstance(v, g, now)}
	j.running = a.jobs.On(g.UUID)
	for _, r := range j.running {
		j.used += r.Budget
	}
	return j
}

// seenInstance is why a MIG device takes no jobs but for who holds it.
func (a *Agent) seenInstance(v *view, g *plan.GPU, now time.Time) string {
	why, taken := a.closedInstance(v, g, now), a.sampling.Taken(g)
	a.jobs.Look(func(running *jobs.View) {
		if len(running.On(g.UUID)) > 0 {
			taken = "" // its own job's
		}
		why = cmp.Or(why, running.Unknown(), running.Leaves(g.UUID), taken)
	})
	return why
}
