package simulate

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// divided is a GPU with MIG devices.
type divided struct {
	plan.MIGGPU
	chip gpu.Chip
	// narrow is the chip for the policy; bounded: it needs the places besides.
	narrow  gpu.Chip
	bounded bool
	// first is the layout at the beginning, the preferred one; places are those of all.
	first, places gpu.Layout
	// slots are those of the places, by their number on the node.
	slots []int
}

// partsOf is what a MIG device has of its GPU.
func (n *nodePlan) partsOf(one plan.GPU) (sms, bandwidth float64, err error) {
	i := slices.IndexFunc(n.divided, func(d divided) bool { return d.UUID == one.Parent })
	if i < 0 {
		return 0, 0, fmt.Errorf("%s is no GPU of the inventory", one.Parent)
	}
	p, err := mig.ProfileNamed(n.divided[i].chip, one.Profile)
	if err != nil {
		return 0, 0, err
	}
	sms, bandwidth = n.divided[i].chip.Parts(p)
	return sms, bandwidth, nil
}

// layOut finds the layouts of the plan's MIG GPUs.
func (n *nodePlan) layOut(inv gpu.Inventory) error {
	known := map[string]gpu.Chip{}
	for _, m := range n.plan.MIG {
		parent, _ := inv.GPU(m.UUID)
		chip, seen := known[parent.Name]
		if !seen {
			var err error
			if chip, err = mig.ModelOf(parent, 0); err != nil {
				return err
			}
			known[parent.Name] = chip
		}
		d := divided{MIGGPU: m, chip: chip}
		for i, text := range m.Placed {
			w, err := mig.ParseWant(chip, text)
			if err != nil {
				return err
			}
			if i == 0 {
				d.first = gpu.NewLayout(w.Placed...)
			}
			d.places = append(d.places, w.Placed...)
		}
		slices.SortFunc(d.places, func(a, b gpu.Place) int {
			return cmp.Or(cmp.Compare(a.Profile, b.Profile), cmp.Compare(a.Start, b.Start))
		})
		d.places = slices.Compact(d.places)
		n.divided = append(n.divided, d)
	}
	return nil
}

// begins reports whether a slot of the plan can be used from the beginning: GPUs,
// and the MIG devices of the preferred layout.
func (n *nodePlan) begins(one plan.GPU) bool {
	if one.Place == "" {
		return true
	}
	for _, d := range n.divided {
		if d.UUID == one.Parent {
			return slices.ContainsFunc(d.first, func(p gpu.Place) bool { return d.chip.FormatPlace(p) == one.Place })
		}
	}
	return false
}

// findPlaces finds the slot of each place. Those for which the host has no CPUs have
// none, and are no places.
func (n *nodePlan) findPlaces() {
	for i := range n.divided {
		d := &n.divided[i]
		all := d.places
		d.places = nil
		for _, p := range all {
			name := d.chip.FormatPlace(p)
			if at := slices.IndexFunc(n.slots, func(s slotPlan) bool { return s.uuid == d.UUID && s.place == name }); at >= 0 {
				d.places, d.slots = append(d.places, p), append(d.slots, at)
			}
		}
		d.narrow = narrowed(d.chip, d.places)
		if d.narrow.Slices() != d.chip.Slices() || d.narrow.Units() != d.chip.Units() {
			d.narrow, d.bounded = d.chip, true
		}
	}
}

// narrowed is a chip that has no other places. The policy could get the places
// instead, but would then count the chip's layouts again at each look, which is only
// done where without the other places it were another chip.
func narrowed(chip gpu.Chip, places gpu.Layout) gpu.Chip {
	var profiles []gpu.Profile
	for _, p := range chip.Profiles {
		var starts []int
		for _, s := range p.Starts {
			if slices.Contains(places, gpu.Place{Profile: p.ID, Start: s}) {
				starts = append(starts, s)
			}
		}
		if p.Starts = starts; len(starts) > 0 {
			profiles = append(profiles, p)
		}
	}
	chip.Profiles = profiles
	return chip
}
