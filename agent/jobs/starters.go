package jobs

import (
	"fmt"

	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
)

// Await takes note, at the start of the agent, of the starters that run already.
func (t *Table) Await(found []starter.Starter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range found {
		t.view.unplaced = append(t.view.unplaced, unplaced{Starter: s})
	}
}

// Discover takes note of the starters that came to an observed node. Those that are known
// already stay as they are.
func (t *Table) Discover(found []starter.Starter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range found {
		_, waits := t.view.awaited(s.Is)
		if !waits && len(t.view.HeldBy(s)) == 0 && !t.view.elsewhere[s.ID] {
			t.view.unplaced = append(t.view.unplaced, unplaced{Starter: s, fresh: true})
		}
	}
}

// Starting are the entries of a starter's job, none for a job without GPUs. Why says that
// its GPUs are not known yet.
func (t *Table) Starting(s starter.Starter) (held []Job, why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, waits := t.view.awaited(s.Is); waits {
		return nil, fmt.Sprintf("the startd has not said yet which GPUs %s has", s.Slot)
	}
	return t.view.HeldBy(s), ""
}

// OfCaller are the entries of a caller's job, with how many other jobs are on each GPU. It
// gives the caller the starter of its slot, with the errors of View.Locate.
func (t *Table) OfCaller(c *starter.Caller) (held []Job, others map[gpu.UUID]int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	err = t.view.Locate(c)
	held, others = t.view.HeldBy(c.Starter), map[gpu.UUID]int{}
	for _, j := range held {
		others[j.GPU] = len(t.view.On(j.GPU)) - 1
	}
	return held, others, err
}

// StarterOf is the starter of the job that a process is of, by its cgroup or the
// condor_starter above it; false for a process of no job in the table. One without a starter
// above it that is older than the slot's, of another account than its job, is left from an
// earlier job.
func (t *Table) StarterOf(pid int) (starter.Starter, bool) {
	c, err := t.view.processes.Identify(0, pid)
	var origin starter.Origin
	if err == nil && c.Starter.PID == 0 {
		origin = t.view.processes.OriginOf(pid)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err == nil && !c.Hook:
		if s, ok := t.view.starterOf(c.Starter.Slot); ok {
			if origin.Before(s, t.view.HeldBy(s)[0].Account) {
				return starter.Starter{}, false
			}
			return s, true
		}
		return t.view.awaited(func(s starter.Starter) bool {
			return starter.SameSlot(s.Slot, c.Starter.Slot) && t.view.processes.Runs(s.ID)
		})
	case c.Starter.PID == 0:
		return starter.Starter{}, false
	}
	// HTCondor puts the job in no cgroup.
	if held := t.view.HeldBy(c.Starter); len(held) > 0 {
		return held[0].Starter, true
	}
	return t.view.awaited(c.Starter.Is)
}
