package startd

import (
	"strings"

	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// Resolver finds the GPU that HTCondor calls by an id: its UUID, or the beginning of
// it as condor_gpu_discovery prints. Where a slot has one GPU alone its ad has the
// UUID, whatever the id is.
func Resolver(p *plan.Plan) func(ad condor.Slot, id string) (gpu.UUID, bool) {
	return func(ad condor.Slot, id string) (gpu.UUID, bool) {
		var found []gpu.UUID
		for _, g := range p.GPUs {
			switch {
			case string(g.UUID) == id, g.UUID.Bare() == ad.DeviceUUID && ad.DeviceUUID != "", string(g.UUID) == ad.DeviceUUID:
				return g.UUID, true
			case len(id) >= shortestID && strings.HasPrefix(string(g.UUID), id):
				found = append(found, g.UUID)
			}
		}
		if len(found) != 1 {
			return "", false
		}
		return found[0], true
	}
}

// shortestID is "GPU-5a1e0c11".
const shortestID = 12
