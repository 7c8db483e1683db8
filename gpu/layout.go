package gpu

import (
	"cmp"
	"crypto/sha1"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Place is a profile at a start: one position that an instance can have. With
// the GPU's UUID it is the stable name of a MIG device, whose own UUID may
// come again for another instance or change.
type Place struct {
	Profile ProfileID `json:"profile"`
	Start   int       `json:"start"`
}

// Compare orders places by profile, then start.
func (p Place) Compare(q Place) int {
	return cmp.Or(cmp.Compare(p.Profile, q.Profile), cmp.Compare(p.Start, q.Start))
}

// PlaceID names a place of a GPU ("3g.20gb@4") as a MIG device is named, the same for ever:
// HTCondor knows its slot by it before the device exists, and a device's own UUID is not
// proven to come again. It is a UUID of version 5 (RFC 9562) over GPU and place.
func PlaceID(u UUID, place string) UUID {
	h := sha1.Sum([]byte("gpuslot MIG place " + string(u) + " " + place))
	h[6], h[8] = h[6]&0x0f|0x50, h[8]&0x3f|0x80
	return UUID(fmt.Sprintf("MIG-%x-%x-%x-%x-%x", h[0:4], h[4:6], h[6:8], h[8:10], h[10:16]))
}

// Layout is a set of places on one GPU, ordered by profile, then start.
type Layout []Place

// NewLayout sorts the places.
func NewLayout(places ...Place) Layout {
	l := slices.Clone(places)
	slices.SortFunc(l, Place.Compare)
	return l
}

// Contains tells whether the place is one of the layout's.
func (l Layout) Contains(p Place) bool {
	_, found := slices.BinarySearchFunc(l, p, Place.Compare)
	return found
}

// Equal tells whether both have the same places.
func (l Layout) Equal(m Layout) bool { return slices.Equal(l, m) }

// Without are the places of l that m lacks.
func (l Layout) Without(m Layout) Layout {
	var rest Layout
	for _, p := range l {
		if !m.Contains(p) {
			rest = append(rest, p)
		}
	}
	return rest
}

// Compare orders layouts place by place; a layout stands before its extensions.
func (l Layout) Compare(m Layout) int { return slices.CompareFunc(l, m, Place.Compare) }

// FormatPlace is "3g.20gb@4".
func (c Chip) FormatPlace(at Place) string {
	p, ok := c.Profile(at.Profile)
	if !ok {
		return fmt.Sprintf("%d@%d", at.Profile, at.Start)
	}
	return p.Name + "@" + strconv.Itoa(at.Start)
}

// Format prints a layout in the order of its starts, as mig.ParseWant reads it:
// "3g.20gb@0,1g.5gb@4"; "none" if it has no instance.
func (c Chip) Format(l Layout) string {
	if len(l) == 0 {
		return "none"
	}
	byStart := slices.SortedFunc(slices.Values(l), func(a, b Place) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), a.Compare(b))
	})
	words := make([]string, len(l))
	for i, p := range byStart {
		words[i] = c.FormatPlace(p)
	}
	return strings.Join(words, ",")
}
