package plan

import (
	"errors"
	"fmt"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// tenancyOf says whose jobs may share a GPU at one time.
func tenancyOf(c candidate, n *notes) Tenancy {
	t := Tenancy{Policy: c.settings.Tenancy.Policy, User: c.settings.Tenancy.User}
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
func (g GPU) MultiUser() bool { return g.Shared() && g.Tenancy.Policy == config.TenancyMultiUser }

// Check holds the plan to what the installed control daemon was found to do:
// the plan itself is made without asking any. What is not known is let through;
// a daemon that cannot do it does not start, and its GPU stays closed.
func (p Plan) Check(can mps.Capabilities) error {
	var without []gpu.UUID
	for _, g := range p.GPUs {
		if g.MultiUser() && can.MultiUser.Known && !can.MultiUser.Has {
			without = append(without, g.UUID)
		}
	}
	if len(without) == 0 {
		return nil
	}
	driver := p.Driver
	if driver == "" {
		driver = "unknown"
	}
	return errors.New(joinUUIDs(without) + fmt.Sprintf(`: tenancy = "multi-user", but the installed control daemon (driver %s) serves one account at a time: install driver 555 or newer, or use tenancy = "one-at-a-time" or "common:<user>"`, driver))
}
