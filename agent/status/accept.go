package status

import "github.com/gpuslot/gpuslot/agent/api"

// Acceptances answer the startd's monitor: which GPUs and MIG devices of the plan take jobs.
func (s *Snapshot) Acceptances() []api.Acceptance {
	out := []api.Acceptance{}
	if s.Plan.Observe {
		return out // what a startd of an earlier mode knows grows old, and closes its GPUs
	}
	if !s.Planned {
		// The startd may run with the plan of the agent before this one.
		for _, w := range s.Before.ControlDaemons() {
			out = append(out, api.Acceptance{UUID: string(w.GPU), Reason: s.NoPlan, Time: s.At})
		}
	}
	for _, g := range s.GPUs {
		below := s.Below[g.UUID]
		said := api.Acceptance{
			UUID: string(g.UUID), Whole: !g.Shared() && !g.Alone() && !g.Elastic, Accept: g.Reason == "",
			Reason: g.Reason, ClosedBy: g.Closures.Owners(), Tenant: g.Tenant, AboveMiB: int64(below.Pool),
			AboveCPUs: below.Resources.CPUs, AboveMemoryMiB: int64(below.Resources.Memory),
			Pending: s.Startds.Pending(), Time: s.At,
			UnlistedMiB: int64(g.Unlisted.VRAM), TakenMiB: int64(g.Unlisted.Taken),
		}
		if g.Verified != nil {
			said.Verified = &g.Verified.OK
		}
		out = append(out, said)
	}
	return out
}
