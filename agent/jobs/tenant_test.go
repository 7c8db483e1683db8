package jobs

import (
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/starter"
)

// Two of whom nothing is known are not known to be the same.
func TestUnknownTenants(t *testing.T) {
	for _, key := range []config.TenantKey{config.TenantAccount, config.TenantGroup, config.TenantVO} {
		if SameTenant(Job{}, Job{}, key) {
			t.Errorf("by %s", key)
		}
	}
	account := starter.Account{UID: 1000, Known: true}
	known := Job{Owner: "alice", Group: "cms", VO: "atlas", Account: account}
	unsaid := known
	unsaid.Unsaid = "too long"
	for _, key := range []config.TenantKey{config.TenantGroup, config.TenantVO} {
		if SameTenant(known, unsaid, key) || SameTenant(unsaid, unsaid, key) {
			t.Errorf("what the startd did not say is the same by %s", key)
		}
	}
	if !SameTenant(known, unsaid, config.TenantAccount) {
		t.Error("the account is known all the same")
	}
}

// What START hears while jobs run.
func TestTenantOf(t *testing.T) {
	all := func(more ...Job) []Job {
		return append([]Job{{Owner: "alice", VO: "atlas"}, {Owner: "bob", VO: "atlas"}}, more...)
	}
	for _, c := range []struct {
		name      string
		running   []Job
		key       config.TenantKey
		want, why string
	}{
		{"idle", nil, config.TenantVO, "", ""},
		{"one VO of two accounts", all(), config.TenantVO, "atlas", ""},
		{"two accounts", all(), config.TenantAccount, "", "jobs of alice and of bob hold it, and MPS serves one account at a time"},
		{"two without groups", all(), config.TenantGroup, "", "jobs of owner:alice and of owner:bob hold it, and its tenant is the accounting-group"},
		{"one that is not known", all(Job{Starter: starter.Starter{Slot: "slot1_3"}}), config.TenantVO, "", "slot1_3 holds it and its owner is not known yet"},
		{"one whose VO the startd did not say", all(Job{Starter: starter.Starter{Slot: "slot1_9"}, Owner: "carol", Unsaid: "too long"}),
			config.TenantVO, "", "slot1_9 holds it and its tenant (vo) is not known: too long"},
	} {
		got, why := TenantOf(c.running, c.key)
		if got != c.want || !strings.HasPrefix(why, c.why) || (why == "") != (c.why == "") {
			t.Errorf("%s: %q, %q", c.name, got, why)
		}
	}
}
