package agent

import (
	"cmp"
	"slices"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/starter"
)

// hold notes that HTCondor is to hold a job; false if that was noted before.
// It stays so until the job ends: a job that was told to go does not come back
// because its memory was taken.
func (b *jobTable) hold(s starter.Starter, h api.Hold) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, before := b.holds[s]; before || len(b.held(s)) == 0 {
		return false
	}
	b.holds[s] = h
	return true
}

// holdOf is a job's hold; its Code is 0 if there is none.
func (b *jobTable) holdOf(s starter.Starter) api.Hold {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.holds[s]
}

// toBeHeld says whether HTCondor is to hold a job.
func (b *jobTable) toBeHeld(s starter.Starter) bool { return b.holdOf(s).Code != 0 }

// jobHolds answers the startd's monitor.
func (a *Agent) jobHolds() []api.Hold { return a.jobs.allHolds() }

// allHolds are in the order of their slots.
func (b *jobTable) allHolds() []api.Hold {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]api.Hold, 0, len(b.holds))
	for _, h := range b.holds {
		out = append(out, h)
	}
	slices.SortFunc(out, func(x, y api.Hold) int { return cmp.Compare(x.Slot, y.Slot) })
	return out
}
