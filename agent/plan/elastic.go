package plan

import (
	"slices"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/gpu"
)

// ElasticGPUs are in the order in which they become whole: from the last PCI
// address down, as "whole = n" takes them.
func (p Plan) ElasticGPUs() []gpu.UUID {
	var out []gpu.UUID
	for _, g := range slices.Backward(p.GPUs) {
		if g.Elastic {
			out = append(out, g.UUID)
		}
	}
	return out
}

// Turn is the plan with those elastic GPUs whole that are, and the others shared.
func (p Plan) Turn(whole func(gpu.UUID) bool) Plan {
	p.GPUs = slices.Clone(p.GPUs)
	for i := range p.GPUs {
		g := &p.GPUs[i]
		if !g.Elastic {
			continue
		}
		g.Mode = config.ModeMPS
		if whole(g.UUID) {
			g.Mode = config.ModeWhole
		}
	}
	return p
}

// checkElastic warns of rules that the node's elastic GPUs cannot follow.
func (p Plan) checkElastic(rules config.Elastic, n *notes) {
	group := p.ElasticGPUs()
	if len(group) == 0 {
		return
	}
	if rules.MinWhole > len(group) {
		n.warn("", "elastic.min_whole = %d, but %s: all of them are whole, none is "+
			"shared", rules.MinWhole, counted(len(group), "GPU is elastic", "GPUs are elastic"))
	}
	if rules.MaxWhole > len(group) {
		n.warn("", "elastic.max_whole = %d, but %s: no job gets "+
			"more", rules.MaxWhole, counted(len(group), "GPU is elastic", "GPUs are elastic"))
	}
	first, _ := p.GPU(group[0])
	for _, u := range group[1:] {
		if g, _ := p.GPU(u); g.Name != first.Name {
			n.warn(u, "elastic GPUs of several models (%s and %s): a whole job gets the next one, whichever it is, and its "+
				"require_gpus must hold for all of them", first.Name, g.Name)
			return
		}
	}
}
