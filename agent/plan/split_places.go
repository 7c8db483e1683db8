package plan

import (
	"slices"

	"github.com/gpuslot/gpuslot/gpu"
)

// spread gives each place of a GPU with several layouts its part by compute slices,
// as if no place of another layout were there: whatever stands on the GPU at one
// time has no more compute slices than the GPU, and HTCondor starts no job where
// nothing stands, so nothing is used twice. Places too small for a CPU of their own
// go on sharing, and so do those beside devices that no layout has.
func (p *Plan) spread() {
	for _, m := range p.MIG {
		if len(m.Placed) < 2 {
			continue
		}
		var part Resources
		for _, g := range p.GPUs {
			if g.Parent == m.UUID {
				part.CPUs += g.Resources.CPUs
				part.Memory += g.Resources.Memory
			}
		}
		shares, own := slices.Clone(p.GPUs), true
		for i := range shares {
			if g := &shares[i]; g.Parent == m.UUID {
				g.Resources.CPUs = part.CPUs * g.Slices / m.Slices
				g.Resources.Memory = part.Memory * gpu.MiB(g.Slices) / gpu.MiB(m.Slices)
				// Slices is 0 for a device that no layout has.
				own = own && g.Resources.CPUs > 0 && g.Resources.Memory > 0
			}
		}
		if own {
			p.GPUs = shares
		}
	}
}
