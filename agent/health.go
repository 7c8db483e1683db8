package agent

import (
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/health"
)

// gpus are the GPUs of one view.
func (a *Agent) gpus(v *view) health.GPUs {
	return health.GPUs{
		Parts: health.Parts{
			Faults: a.troubles, Samples: a.sampling, Unlisted: a.sampling, Processes: a.sampling,
			Verifications: a.verifier, Limits: a.limits, Daemons: a.daemons, Jobs: a.jobs,
		},
		Node: health.Node{
			Sampling: a.samplingNode(v), Closed: v.closed, Present: v.present,
			Verified: v.config.Health.Open == config.OpenAfterVerify,
		},
	}
}
