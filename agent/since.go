package agent

import (
	"sync"

	"github.com/gpuslot/gpuslot/agent/api"
)

// lastSaid remembers what the monitor was told, so that it can send changes to
// the collector at once and leave the rest to the slots' own updates.
type lastSaid struct {
	mu sync.Mutex
	by map[string]api.Acceptance
}

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
		if old, ok := l.by[now.UUID]; ok && old.Accept == now.Accept && old.Reason == now.Reason && old.Tenant == now.Tenant {
			now.Since = old.Since
		}
		l.by[now.UUID] = *now
	}
}
