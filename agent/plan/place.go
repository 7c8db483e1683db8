package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpuslot/gpuslot/gpu"
)

// place is where a layout wants an instance.
type place struct {
	profile gpu.Profile
	start   int
}

func (p place) String() string { return fmt.Sprintf("%s@%d", p.profile.Name, p.start) }

// merge adds the places of one more layout.
func merge(places []place, chip gpu.Chip, l gpu.Layout) []place {
	for _, at := range l {
		profile, _ := chip.Profile(at.Profile)
		p := place{profile, at.Start}
		if !slices.ContainsFunc(places, func(o place) bool { return o.String() == p.String() }) {
			places = append(places, p)
		}
	}
	// Which layout is preferred makes no other slots.
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.profile.ID, b.profile.ID))
	})
	return places
}

// in finds the device at the place.
func (p place) in(devices []gpu.MIGDevice) (gpu.MIGDevice, bool) {
	for _, d := range devices {
		if d.Profile == p.profile.Name && d.Start != nil && *d.Start == p.start {
			return d, true
		}
	}
	return gpu.MIGDevice{}, false
}
