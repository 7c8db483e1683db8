package admission

import (
	"fmt"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// target finds the shared GPU that a job's slot holds a part of. Without one
// the job runs on whole GPUs, or on none, if there is no refusal either.
func target(p *plan.Plan, job *api.Job) (shared *plan.GPU, whole []gpu.UUID, refusal *api.Refusal) {
	seen := make([]gpu.UUID, 0, len(job.AssignedGPUs))
	for _, id := range job.AssignedGPUs {
		u, err := gpu.ParseUUID(id)
		if err != nil {
			return nil, nil, api.Refuse(api.CodeBadGPUs, fmt.Sprintf("the slot's GPU id %q is not a GPU's UUID: this "+
				"execution point is not configured by gpuslot; tell its administrator", foreign.Clip(id)))
		}
		for _, s := range seen {
			if s == u {
				return nil, nil, api.Refuse(api.CodeBadGPUs, fmt.Sprintf("the slot names %s more than once, because the job "+
					"asked for %d GPUs where GPUs are shared: use request_gpus = 1", u, len(job.AssignedGPUs)))
			}
		}
		seen = append(seen, u)
	}
	for _, u := range seen {
		g, ok := p.Find(u)
		switch {
		case ok && g.Elastic && wantsWhole(job, g, p.RequestVRAM.WithoutRequest):
		case ok && g.Elastic:
			return g, nil, nil
		case !ok:
			return nil, nil, api.Refuse(api.CodeNotPlanned, fmt.Sprintf("%s is not in the plan of %s: the startd runs an "+
				"older layout; its administrator restarts it with: condor_restart -peaceful -daemon STARTD", u, p.Host.Name))
		case g.Shared() && len(seen) > 1:
			return nil, nil, api.Refuse(api.CodeSeveralGPUs, fmt.Sprintf("the slot holds %d GPUs and %s is shared: a job "+
				"on a shared GPU can use no other; use request_gpus = 1", len(seen), u))
		case g.Alone() && len(seen) > 1:
			return nil, nil, api.Refuse(api.CodeSeveralGPUs, fmt.Sprintf("the slot holds %d GPUs and %s is a MIG device: "+
				"a job on a MIG device can use no other GPU; use request_gpus = 1", len(seen), u))
		case g.Shared():
			return g, nil, nil
		}
	}
	return nil, seen, nil
}

// wantsWhole says whether a job on an elastic GPU came by the slot of whole jobs: as
// START has it, by what the slot was provisioned with.
func wantsWhole(job *api.Job, g *plan.GPU, rule config.WithoutRequest) bool {
	if len(job.AssignedGPUs) > 1 {
		return true
	}
	if job.ProvisionedVRAM == nil || *job.ProvisionedVRAM <= 0 {
		return rule == config.WithoutRequestWhole
	}
	return gpu.MiB(*job.ProvisionedVRAM) > g.LargestRequest
}
