package status

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/gpu"
)

// Monitor answers the startd's monitor. It remembers its last answer, so that the monitor
// can send changes to the collector at once and leave the rest to the slots' own updates.
// Its zero value is ready.
type Monitor struct {
	mu   sync.Mutex
	last map[string]api.Acceptance
	// tenants are when GPUs were last seen with a tenant.
	tenants map[string]time.Time
}

// tenantStays is how long START sees a tenant after the tenant's last job ended. Each change makes
// the startd read all its slots again, which costs more than a job's hook; with short jobs there was
// one nearly every second. Other tenants' jobs wait as long; admissions do not rest on it.
const tenantStays = 5 * time.Second

// Answer says which GPUs take jobs. One GPU may be reserved, which then takes no request
// below least.
func (m *Monitor) Answer(s *Snapshot, reserved gpu.UUID, least gpu.MiB) []api.Acceptance {
	out := s.Acceptances()
	if s.Plan.Observe {
		return out
	}
	for i := range out {
		if out[i].UUID == string(reserved) {
			out[i].LeastMiB = int64(least)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	out = m.left(out, s.At)
	m.keepTenants(out)
	m.date(out)
	return out
}

// keepTenants leaves each GPU its last tenant for a while.
func (m *Monitor) keepTenants(all []api.Acceptance) {
	if m.tenants == nil {
		m.tenants = map[string]time.Time{}
	}
	for i := range all {
		now := &all[i]
		switch {
		case now.Tenant != "":
			m.tenants[now.UUID] = now.Time
		case now.Time.Sub(m.tenants[now.UUID]) < tenantStays:
			now.Tenant = m.last[now.UUID].Tenant
		}
	}
}

// left closes the GPUs of the last answer that are no longer in the plan: the startd may
// have their slots until its next start, and an ad that is not renewed would keep them open
// for as long as START believes a stamp.
func (m *Monitor) left(all []api.Acceptance, now time.Time) []api.Acceptance {
	for _, uuid := range slices.Sorted(maps.Keys(m.last)) {
		if !slices.ContainsFunc(all, func(a api.Acceptance) bool { return a.UUID == uuid }) {
			all = append(all, api.Acceptance{UUID: uuid, Whole: m.last[uuid].Whole, Reason: noLongerPlanned, Time: now})
		}
	}
	return all
}

const noLongerPlanned = "it is no longer in gpuslotd's plan: see gpuslot status; if it stays away, restart the " +
	"startd when its jobs are done (condor_restart -peaceful -daemon STARTD)"

// date sets Since of each acceptance: its own time if it differs from the last
// one of that GPU, else the time of the last change.
func (m *Monitor) date(all []api.Acceptance) {
	if m.last == nil {
		m.last = map[string]api.Acceptance{}
	}
	for i := range all {
		now := &all[i]
		now.Since = now.Time
		if old, ok := m.last[now.UUID]; ok && old.Accept == now.Accept && old.Reason == now.Reason &&
			old.LeastMiB == now.LeastMiB && old.TakenMiB == now.TakenMiB &&
			slices.Equal(old.ClosedBy, now.ClosedBy) && old.Tenant == now.Tenant &&
			old.AboveMiB == now.AboveMiB && old.AboveCPUs == now.AboveCPUs && old.AboveMemoryMiB == now.AboveMemoryMiB {
			now.Since = old.Since
		}
		m.last[now.UUID] = *now
	}
}
