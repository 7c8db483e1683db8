package admission

import (
	"fmt"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/starter"
)

// tenancy is the last arbiter on whose jobs may meet on a GPU. MPS serves one
// account at a time and lets the others hang, unless its daemon serves several.
func (s State) tenancy(g *plan.GPU, c starter.Caller, job *api.Job) *api.Refusal {
	if g.Tenancy.Policy == config.TenancyCommon && (!s.Common.Known || s.Common.UID != c.UID) {
		return api.Refuse(api.CodeOtherTenant, fmt.Sprintf("%s serves only jobs that run as %s (tenancy), and this one "+
			"runs as uid %d: its administrator sets the slot's account or another tenancy", g.UUID, g.Tenancy.User, c.UID))
	}
	key := g.Tenancy.Key()
	if key == "" {
		return nil
	}
	me := jobs.Job{Account: starter.Account{UID: c.UID, Known: true}, Owner: job.Owner, Group: job.Group, VO: job.VO}
	for _, r := range s.Running {
		if !r.Starter.Is(c.Starter) && !jobs.SameTenant(me, r, key) {
			return api.Refuse(api.CodeOtherTenant, fmt.Sprintf(
				"%s is held by %s until its last job there ends: the job waits in the queue for that or another GPU",
				g.UUID, r.TenantName(key)))
		}
	}
	return nil
}
