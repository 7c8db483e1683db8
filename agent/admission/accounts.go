package admission

import (
	"context"

	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/starter"
)

// Accounts looks up the accounts that a plan's tenancies name. It trusts what it found before
// until the configuration is read again.
func Accounts(
	ctx context.Context, p *plan.Plan, old map[string]starter.Account, again bool,
) map[string]starter.Account {
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
