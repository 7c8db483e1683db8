package admission

import (
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu/process"
)

var (
	byVO    = plan.Tenancy{Policy: config.TenancyMultiUser, Tenant: config.TenantVO}
	byGroup = plan.Tenancy{Policy: config.TenancyCommon, User: "jobs", Tenant: config.TenantGroup}
	anybody = plan.Tenancy{Policy: config.TenancyMultiUser}
)

// Whose jobs may meet, by each tenancy: the newcomer is alice (uid 1000), of
// the VO atlas and the accounting group cms.
func TestTenants(t *testing.T) {
	for _, c := range []struct {
		name    string
		tenancy plan.Tenancy
		there   jobs.Job
		refused string // what the refusal names; empty if she is let in
	}{
		{"another account, several at once", anybody, running(7, 1001, "bob", 4096), ""},
		{"an unknown account, several at once", anybody, jobs.Job{Starter: starter.Starter{ID: process.ID{PID: 7}}, GPU: uuid(0), Budget: 4096}, ""},
		{"her VO", byVO, withTenant(running(7, 1001, "bob", 4096), "", "atlas"), ""},
		{"another VO", byVO, withTenant(running(7, 1000, "alice", 4096), "cms", "lhcb"), "held by lhcb"},
		{"no VO", byVO, running(7, 1000, "alice", 4096), "held by owner:alice"},
		{"a VO that is not known", byVO, jobs.Job{Starter: starter.Starter{ID: process.ID{PID: 7}, Slot: "slot1_9"}, GPU: uuid(0), Budget: 4096}, "held by the job of slot1_9"},
		{"a VO that the startd did not say", byVO, jobs.Job{Owner: "alice", VO: "atlas", Unsaid: "too long", GPU: uuid(0), Budget: 4096,
			Starter: starter.Starter{ID: process.ID{PID: 7}, Slot: "slot1_9"}}, "held by alice"},
		{"her group", byGroup, withTenant(running(7, 1000, "bob", 4096), "cms", ""), ""},
		{"another group", byGroup, withTenant(running(7, 1000, "bob", 4096), "lhcb", "atlas"), "held by lhcb"},
		{"a group of her name", byGroup, withTenant(running(7, 1000, "bob", 4096), "alice", ""), "held by alice"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := admitState()
			s.Plan.GPUs[0].Tenancy, s.Common = c.tenancy, starter.Account{UID: 1000, Known: true}
			s.Running = []jobs.Job{c.there}
			job := &api.Job{AssignedGPUs: []string{string(uuid(0))}, ProvisionedVRAM: vram(4096), Owner: "alice", Group: "cms", VO: "atlas"}
			grant, r := Decide(s, starter.Caller{UID: 1000, Starter: starter.Starter{ID: process.ID{PID: 100, Started: 1}}}, job)
			switch {
			case c.refused == "" && r != nil:
				t.Errorf("refused: %s", r.Reason)
			case c.refused != "" && (r == nil || r.Code != api.CodeOtherTenant || !strings.Contains(r.Reason, c.refused)):
				t.Errorf("refusal %+v, grant %+v, want %q", r, grant, c.refused)
			}
		})
	}
}

func withTenant(r jobs.Job, group, vo string) jobs.Job {
	r.Group, r.VO = group, vo
	return r
}
