package agent

import (
	"context"
	"fmt"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/startd"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
)

// tenantBy is whose job it is, as START compares it with GPUTenant; empty if
// that is not known.
func (r Running) tenantBy(key config.TenantKey) string {
	return condor.Tenant(startd.TenantKey(key), r.Owner, r.Group, r.VO)
}

// tenancy is the last arbiter on whose jobs may meet on a GPU. MPS serves one
// account at a time and lets the others hang, unless its daemon serves several.
func (s State) tenancy(g *plan.GPU, c starter.Caller, job *api.Job) *api.Refusal {
	if g.Tenancy.Policy == config.TenancyCommon && (!s.Common.Known || s.Common.UID != c.UID) {
		return api.Refuse(api.CodeOtherTenant, fmt.Sprintf("%s serves only jobs that run as %s (tenancy), and this one runs as uid %d: its administrator sets the slot's account or another tenancy", g.UUID, g.Tenancy.User, c.UID))
	}
	key := g.Tenancy.Key()
	if key == "" {
		return nil
	}
	me := Running{Account: starter.Account{UID: c.UID, Known: true}, Owner: job.Owner, Group: job.Group, VO: job.VO}
	for _, r := range s.Running {
		if !r.Starter.Is(c.Starter) && !sameTenant(me, r, key) {
			return api.Refuse(api.CodeOtherTenant, fmt.Sprintf("%s is held by %s until its last job there ends: the job waits in the queue for that or another GPU", g.UUID, r.holder(key)))
		}
	}
	return nil
}

// sameTenant: accounts are compared by what the kernel says, the others by what
// HTCondor says. Nobody is the same as somebody unknown.
func sameTenant(a, b Running, key config.TenantKey) bool {
	if key == config.TenantAccount {
		return a.Account.Known && b.Account.Known && a.Account.UID == b.Account.UID
	}
	tenant := a.tenantBy(key)
	return tenant != "" && tenant == b.tenantBy(key)
}

// holder names a job's tenant for people.
func (r Running) holder(key config.TenantKey) string {
	if tenant := r.tenantBy(key); key != config.TenantAccount && tenant != "" {
		return tenant
	}
	return r.tenant()
}

// tenantOf is whose jobs hold a GPU, or why nobody can be named.
func tenantOf(running []Running, key config.TenantKey) (tenant, why string) {
	for _, r := range running {
		this := r.tenantBy(key)
		switch {
		case this == "":
			return "", fmt.Sprintf("%s holds it and its owner is not known yet: wait, or see whether condor_status -direct \"\" answers", r.Starter.Slot)
		case tenant != "" && this != tenant && key == config.TenantAccount:
			return "", fmt.Sprintf("jobs of %s and of %s hold it, and MPS serves one account at a time: wait until they end", tenant, this)
		case tenant != "" && this != tenant:
			return "", fmt.Sprintf("jobs of %s and of %s hold it, and its tenant is the %s: wait until they end", tenant, this, key)
		}
		tenant = this
	}
	return tenant, ""
}

// accounts looks up the accounts that tenancies name, and trusts what it found
// before until the configuration is read again.
func accounts(ctx context.Context, p plan.Plan, old map[string]starter.Account, again bool) map[string]starter.Account {
	m := map[string]starter.Account{}
	for _, g := range p.GPUs {
		name := g.Tenancy.User
		if _, done := m[name]; name == "" || done {
			continue
		}
		if m[name] = old[name]; again || !m[name].Known {
			m[name] = starter.AccountNamed(ctx, name)
		}
	}
	return m
}
