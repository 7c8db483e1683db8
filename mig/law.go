package mig

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/gpu"
)

func addEngines(e, f gpu.Engines) gpu.Engines {
	return gpu.Engines{
		Decoders: e.Decoders + f.Decoders, Encoders: e.Encoders + f.Encoders,
		JPEG: e.JPEG + f.JPEG, OFA: e.OFA + f.OFA,
	}
}

func enoughEngines(e, f gpu.Engines) bool {
	return e.Decoders <= f.Decoders && e.Encoders <= f.Encoders && e.JPEG <= f.JPEG && e.OFA <= f.OFA
}

// CheckChip tells why no law can be made of what is told of a chip.
func CheckChip(c gpu.Chip) error {
	seen, places := map[gpu.ProfileID]bool{}, 0
	for _, p := range c.Profiles {
		if seen[p.ID] {
			return fmt.Errorf("%s has two MIG profiles with the id %d", c.Model, p.ID)
		}
		if p.Slices < 1 || p.Size < 1 || p.Max < 1 || p.Max > maxUnits || p.Size > maxUnits {
			return fmt.Errorf("%s: MIG profile %s has %d slices, %d units, at most %d instances", c.Model, p.Name, p.Slices,
				p.Size, p.Max)
		}
		for i, s := range p.Starts {
			if s < 0 || s > maxUnits-p.Size || i > 0 && s <= p.Starts[i-1] {
				return fmt.Errorf("%s: MIG profile %s has placements %v of %d units", c.Model, p.Name, p.Starts, p.Size)
			}
		}
		seen[p.ID] = true
		places += len(p.Starts)
	}
	if places == 0 || places > maxUnits {
		return fmt.Errorf("%s has %d placements of MIG instances; 1 to %d can be planned", c.Model, places, maxUnits)
	}
	return nil
}

// maxUnits bounds grids and numbers of places: both are sets in 64 bits.
const maxUnits = 64

// Illegal is why a layout cannot exist on a chip.
type Illegal struct {
	// Place is the first that does not fit those before it.
	Place gpu.Place
	// Reason is a clause: "1g.5gb@3 and 3g.20gb@0 overlap".
	Reason string
}

func (e Illegal) Error() string { return "no such layout: " + e.Reason }

// Legal tells whether the layout can exist on an otherwise empty GPU; if not,
// the error is Illegal.
func Legal(c gpu.Chip, l gpu.Layout) error {
	r := newRoom(c)
	for i, p := range l {
		if no := r.add(p); no != fits {
			return Illegal{p, reason(c, no, l[:i], p)}
		}
	}
	return nil
}

// refusal is which law forbids a place.
type refusal int

const (
	fits refusal = iota
	unknownProfile
	impossibleStart
	overlap
	tooMany
	slicesSpent
	enginesSpent
	keptApart
)

// room is what a growing layout has taken of a chip.
type room struct {
	chip     gpu.Chip
	profiles map[gpu.ProfileID]gpu.Profile
	slices   int
	budget   gpu.Engines

	units   uint64
	spent   int
	engines gpu.Engines
	count   map[gpu.ProfileID]int
}

func newRoom(c gpu.Chip) *room {
	r := &room{
		chip: c, slices: c.Slices(), budget: c.Engines(),
		profiles: map[gpu.ProfileID]gpu.Profile{}, count: map[gpu.ProfileID]int{},
	}
	for _, p := range c.Profiles {
		r.profiles[p.ID] = p
	}
	return r
}

// add takes a place if it fits.
func (r *room) add(at gpu.Place) refusal {
	p, known := r.profiles[at.Profile]
	engines := addEngines(r.engines, p.Engines)
	switch {
	case !known:
		return unknownProfile
	case !slices.Contains(p.Starts, at.Start):
		return impossibleStart
	case r.units&unitsOf(p, at.Start) != 0:
		return overlap
	case r.count[p.ID] >= p.Max:
		return tooMany
	case r.spent+p.Slices > r.slices:
		return slicesSpent
	case !enoughEngines(engines, r.budget):
		return enginesSpent
	case r.apart(p.ID):
		return keptApart
	}
	r.units |= unitsOf(p, at.Start)
	r.count[p.ID]++
	r.spent += p.Slices
	r.engines = engines
	return fits
}

// remove takes back what add took.
func (r *room) remove(at gpu.Place) {
	p := r.profiles[at.Profile]
	r.units &^= unitsOf(p, at.Start)
	r.count[p.ID]--
	r.spent -= p.Slices
	e := p.Engines
	r.engines = addEngines(r.engines, gpu.Engines{Decoders: -e.Decoders, Encoders: -e.Encoders, JPEG: -e.JPEG,
		OFA: -e.OFA})
}

func (r *room) apart(id gpu.ProfileID) bool {
	for _, pair := range r.chip.Apart {
		if pair[0] == id && r.count[pair[1]] > 0 || pair[1] == id && r.count[pair[0]] > 0 {
			return true
		}
	}
	return false
}

// mask is the set of units that an instance at the start takes.
func unitsOf(p gpu.Profile, start int) uint64 { return (1<<p.Size - 1) << start }

// reason words a refusal of a place beside others.
func reason(c gpu.Chip, no refusal, beside gpu.Layout, at gpu.Place) string {
	p, _ := c.Profile(at.Profile)
	name := c.FormatPlace(at)
	switch no {
	case unknownProfile:
		return fmt.Sprintf("%s has no MIG profile with the id %d", c.Model, at.Profile)
	case impossibleStart:
		return fmt.Sprintf("%s cannot start at %d, only at %s", p.Name, at.Start, joinInts(p.Starts))
	case overlap:
		return fmt.Sprintf("%s and %s overlap", name, c.FormatPlace(overlapping(c, beside, at)))
	case tooMany:
		return fmt.Sprintf("more than %d of %s", p.Max, p.Name)
	case slicesSpent:
		return fmt.Sprintf("no %d of the %d compute slices are left for %s", p.Slices, c.Slices(), name)
	case enginesSpent:
		return fmt.Sprintf("the media engines that %s needs are taken", name)
	case keptApart:
		return fmt.Sprintf("this driver does not make %s beside %s", p.Name, partner(c, beside, at.Profile))
	}
	return ""
}

func overlapping(c gpu.Chip, l gpu.Layout, at gpu.Place) gpu.Place {
	p, _ := c.Profile(at.Profile)
	for _, o := range l {
		if q, ok := c.Profile(o.Profile); ok && unitsOf(q, o.Start)&unitsOf(p, at.Start) != 0 {
			return o
		}
	}
	return at
}

// partner names the profile that keeps another away.
func partner(c gpu.Chip, l gpu.Layout, id gpu.ProfileID) string {
	for _, pair := range c.Apart {
		for _, o := range l {
			if pair == [2]gpu.ProfileID{id, o.Profile} || pair == [2]gpu.ProfileID{o.Profile, id} {
				p, _ := c.Profile(o.Profile)
				return p.Name
			}
		}
	}
	return "another"
}

func joinInts(ns []int) string {
	words := make([]string, len(ns))
	for i, n := range ns {
		words[i] = fmt.Sprint(n)
	}
	return strings.Join(words, ", ")
}
