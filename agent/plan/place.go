package plan

import (
	"cmp"
	"crypto/sha1"
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

// id names a place of a GPU as a MIG device is named, the same for ever: HTCondor
// knows its slot by it before the device exists, and a device's own UUID is not
// proven to come again. It is a UUID of version 5 (RFC 9562) over GPU and place.
func (p place) id(u gpu.UUID) gpu.UUID {
	h := sha1.Sum([]byte("gpuslot MIG place " + string(u) + " " + p.String()))
	h[6], h[8] = h[6]&0x0f|0x50, h[8]&0x3f|0x80
	return gpu.UUID(fmt.Sprintf("MIG-%x-%x-%x-%x-%x", h[0:4], h[4:6], h[6:8], h[8:10], h[10:16]))
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
