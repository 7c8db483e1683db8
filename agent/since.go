package agent

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
)

// lastSaid remembers what the monitor was told, so that it can send changes to
// the collector at once and leave the rest to the slots' own updates.
type lastSaid struct {
	mu sync.Mutex
	by map[string]api.Acceptance
}

// left closes the GPUs that were spoken of before and are in the plan no more:
// the startd may have their slots until its next start, and an ad that is not
// renewed would keep them open for as long as START believes a stamp.
func (l *lastSaid) left(all []api.Acceptance, now time.Time) []api.Acceptance {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, uuid := range slices.Sorted(maps.Keys(l.by)) {
		if !slices.ContainsFunc(all, func(a api.Acceptance) bool { return a.UUID == uuid }) {
			all = append(all, api.Acceptance{UUID: uuid, Whole: l.by[uuid].Whole, Reason: noLongerPlanned, Time: now})
		}
	}
	return all
}

const noLongerPlanned = "it is no longer in gpuslotd's plan: see gpuslot status; if it stays away, restart the " +
	"startd when its jobs are done (condor_restart -peaceful -daemon STARTD)"

// date sets Since of each acceptance: its own time if it differs from the last
// one of that GPU, else the time of the last change.
func (l *lastSaid) date(all []api.Acceptance) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by == nil {
		l.by = map[string]api.Acceptance{}
	}
	for i := range all {
		now := &all[i]
		now.Since = now.Time
		if old, ok := l.by[now.UUID]; ok && old.Accept == now.Accept && old.Reason == now.Reason &&
			old.LeastMiB == now.LeastMiB && old.TakenMiB == now.TakenMiB &&
			slices.Equal(old.ClosedBy, now.ClosedBy) && old.Tenant == now.Tenant &&
			old.AboveMiB == now.AboveMiB && old.AboveCPUs == now.AboveCPUs && old.AboveMemoryMiB == now.AboveMemoryMiB {
			now.Since = old.Since
		}
		l.by[now.UUID] = *now
	}
}
