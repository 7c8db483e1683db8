package layouts

import (
	"slices"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
)

// Present says of the GPUs and MIG devices of an inventory that they are there, and of each place
// of the plan whether it has a device.
func Present(p plan.Plan, inv gpu.Inventory) map[gpu.UUID]bool {
	present := make(map[gpu.UUID]bool, len(inv.GPUs))
	for _, g := range inv.GPUs {
		present[g.UUID] = true
		for _, d := range g.MIGDevices {
			present[d.UUID] = true
		}
	}
	for _, g := range p.GPUs {
		if g.Place != "" {
			present[g.UUID] = g.Device != ""
		}
	}
	return present
}

// Planned are the GPUs that have MIG devices by a plan, or are to get some: none of a node that gpuslot only observes.
func Planned(p plan.Plan) (all []gpu.UUID) {
	if p.Observe {
		return nil
	}
	for _, g := range p.MIG {
		all = append(all, g.UUID)
	}
	return all
}

// Isolated are the GPUs from whose MIG devices gpuslot keeps jobs by a plan, each once: none of
// a node that it only observes.
func Isolated(p plan.Plan) []gpu.UUID {
	if p.Observe {
		return nil
	}
	all := slices.Clone(p.Divided)
	for _, g := range p.GPUs {
		if g.MIGDevice() && !slices.Contains(all, g.Parent) {
			all = append(all, g.Parent) // the plan of an earlier version says only this
		}
	}
	return all
}

// ForJobs are the GPUs whose own nodes nobody has a use for outside of jobs: those that jobs share by a plan, some by
// turns, and those that are given out in MIG devices, whose layout an open node would keep as it is. They are without
// those of which the site reserves more than the default, as for a desktop, and none of a node that gpuslot only
// observes. One that the inventory lacks stays as it was before, since it may be there and not answer. So do all
// without a plan.
func ForJobs(p plan.Plan, inv gpu.Inventory, before []gpu.UUID) (all []gpu.UUID) {
	if p.Schema == "" {
		return before
	}
	if p.Observe {
		return nil
	}
	usual := config.Default().For(p.Host.Name, gpu.GPU{}).ReservedVRAM
	for _, g := range p.GPUs {
		if (g.Shared() || g.Elastic) && !g.MIGDevice() && g.Kept.Margin <= usual {
			all = append(all, g.UUID)
		}
	}
	for _, g := range p.MIG {
		if !slices.Contains(all, g.UUID) {
			all = append(all, g.UUID)
		}
	}
	for _, u := range before {
		if _, read := inv.GPU(u); !read && !slices.Contains(all, u) {
			all = append(all, u)
		}
	}
	return all
}
