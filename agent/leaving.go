package agent

import (
	"cmp"
	"fmt"
	"maps"
	"time"

	"github.com/gpuslot/gpuslot/agent/faults"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
)

// isLeaving is why a MIG device takes no new jobs while its GPU gets another layout.
const isLeaving = "its GPU gets another MIG layout in which it has no place: see gpuslot status"

// reserve keeps new jobs off MIG devices that are about to go. If a job holds one
// already nothing is reserved, and its slot returned.
func (b *jobTable) reserve(devices []gpu.UUID) (held string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, u := range devices {
		if slot := b.holder(u); slot != "" {
			return slot
		}
	}
	next := maps.Clone(b.leaving)
	if next == nil {
		next = map[gpu.UUID]string{}
	}
	for _, u := range devices {
		next[u] = isLeaving
	}
	b.leaving = next
	return ""
}

// holder is the slot that holds a device, by its own UUID or that of its place.
func (v *jobView) holder(u gpu.UUID) string {
	for _, r := range v.slots {
		if r.GPU == u || r.Device == u {
			return r.Starter.Slot
		}
	}
	return ""
}

// leave sets which MIG devices take no new jobs because they wait to go, and why.
func (b *jobTable) leave(devices map[gpu.UUID]string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leaving = devices
}

// leaves says why no new job may begin there; empty if one may.
func (v *jobView) leaves(u gpu.UUID) string { return v.leaving[u] }

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
	j.running = a.jobs.runningOn(g.UUID)
	for _, r := range j.running {
		j.used += r.Budget
	}
	return j
}

// seenInstance is why a MIG device takes no jobs but for who holds it.
func (a *Agent) seenInstance(v *view, g *plan.GPU, now time.Time) string {
	why := a.closedInstance(v, g, now)
	a.jobs.Look(func(jobs *jobView) {
		why = cmp.Or(why, jobs.whyUnknown(), jobs.leaves(g.UUID))
	})
	return why
}
