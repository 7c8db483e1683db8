package plan

import "github.com/gpuslot/gpuslot/agent/config"

// tenancyOf says whose jobs may share a GPU at one time.
func tenancyOf(c candidate, n *notes) Tenancy {
	t := Tenancy{Policy: c.settings.Tenancy.Policy, User: c.settings.Tenancy.User}
	if c.mode == config.ModeMPS && t.Policy == config.TenancyMultiUser && MultiUser.Lacks(c.driver) {
		n.fail(c.UUID, `%s; use tenancy = "one-at-a-time" or "common:<user>"`, MultiUser.needs(c.driver))
	}
	if c.settings.Tenant == config.TenantAccount {
		return t
	}
	if t.Policy == config.TenancyOneAtATime {
		n.fail(c.UUID, "tenant = %q with tenancy = %q: %s", c.settings.Tenant, t.Policy, config.TenantNeeds)
		return t
	}
	t.Tenant = c.settings.Tenant
	return t
}

// MultiUser reports whether the GPU's control daemon shall serve several
// accounts at once.
func (g GPU) MultiUser() bool { return g.MPS() && g.Tenancy.Policy == config.TenancyMultiUser }
