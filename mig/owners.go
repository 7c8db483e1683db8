package mig

import (
	"slices"

	"github.com/gpuslot/gpuslot/gpu"
)

// Owners returns the inventory with the owner of each MIG device, as the GPUs' journals in
// e.Dir have it. It stays unknown of a device whose place is not known, and where the
// journal cannot be read.
func (e Executor) Owners(inv gpu.Inventory) gpu.Inventory {
	inv.GPUs = slices.Clone(inv.GPUs)
	for i := range inv.GPUs {
		g := &inv.GPUs[i]
		if len(g.MIGDevices) == 0 {
			continue
		}
		g.MIGDevices = slices.Clone(g.MIGDevices)
		journal, err := ReadJournal(e.Dir, g.UUID)
		if err != nil {
			continue // it may own any
		}
		if journal.Boot != e.Boot {
			journal.Owned = nil // no instance outlives its boot
		}
		for j := range g.MIGDevices {
			d := &g.MIGDevices[j]
			if d.Start == nil {
				continue
			}
			d.Owner = gpu.Foreign
			if slices.ContainsFunc(journal.Owned, func(o Owned) bool { return o.Start == *d.Start }) {
				d.Owner = gpu.Ours
			}
		}
	}
	return inv
}
