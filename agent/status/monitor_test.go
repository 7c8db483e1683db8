package status

import (
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
)

func TestSinceIsTheLastChange(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	var l Monitor
	for i, step := range []struct {
		accept         bool
		reason, tenant string
		changed        bool
	}{
		{accept: true, changed: true},
		{accept: true},
		{accept: true, tenant: "alice", changed: true},
		{accept: true, tenant: "alice"},
		{reason: "wedged", tenant: "alice", changed: true},
		{reason: "gone", tenant: "alice", changed: true},
		{reason: "gone", tenant: "alice"},
	} {
		now := start.Add(time.Duration(i) * time.Minute)
		// The neighbour never changes, and is not touched by the others' changes.
		all := []api.Acceptance{{UUID: "GPU-a", Accept: step.accept, Reason: step.reason, Tenant: step.tenant, Time: now}, {UUID: "GPU-b", Accept: true, Time: now}}
		l.date(all)
		if got := all[0].Since.Equal(now); got != step.changed {
			t.Errorf("step %d: changed %v, want %v", i, got, step.changed)
		}
		if !all[1].Since.Equal(start) {
			t.Errorf("step %d: the neighbour changed at %v", i, all[1].Since)
		}
	}
}

// A GPU that leaves the plan is closed in so many words until it is back.
func TestLeftGPUsAreClosed(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	var l Monitor
	both := []api.Acceptance{{UUID: "GPU-a", Accept: true, Time: now}, {UUID: "GPU-b", Accept: true, Time: now}}
	if got := l.left(both, now); len(got) != 2 {
		t.Fatalf("nobody left, but there are %d", len(got))
	}
	l.date(both)
	got := l.left(both[:1:1], now)
	if len(got) != 2 || got[1].UUID != "GPU-b" || got[1].Accept || got[1].Reason == "" || !got[1].Time.Equal(now) {
		t.Errorf("after GPU-b left: %+v", got)
	}
	l.date(got)
	if got := l.left(both, now); len(got) != 2 || !got[1].Accept {
		t.Errorf("after it came back: %+v", got)
	}
}

// TestTenantStays: START is told of a GPU's last tenant for a while after the last job, and of the
// next tenant at once.
func TestTenantStays(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	var m Monitor
	for i, step := range []struct {
		after        time.Duration
		tenant, want string
	}{
		{0, "", ""},
		{time.Second, "alice", "alice"},
		{tenantStays, "alice", "alice"},
		{2*tenantStays - time.Millisecond, "", "alice"},
		{2 * tenantStays, "", ""},
		{2*tenantStays + time.Second, "alice", "alice"},
		{2*tenantStays + 2*time.Second, "", "alice"},
		{2*tenantStays + 3*time.Second, "bob", "bob"},
		{2*tenantStays + 4*time.Second, "", "bob"},
		{3*tenantStays + 3*time.Second, "", ""},
	} {
		now := start.Add(step.after)
		all := []api.Acceptance{{UUID: "GPU-a", Accept: true, Tenant: step.tenant, Time: now}, {UUID: "GPU-b", Accept: true, Time: now}}
		m.keepTenants(all)
		m.date(all)
		if all[0].Tenant != step.want || all[1].Tenant != "" {
			t.Errorf("step %d: tenants %q and %q, want %q and none", i, all[0].Tenant, all[1].Tenant, step.want)
		}
	}
}
