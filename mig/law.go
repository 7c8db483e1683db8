package mig

import (
	"fmt"
	"strings"
)

// Units is the size of the grid that placements count in: 8 on the seven-slice
// chips, 4 on A30, 12 on RTX PRO 6000.
func (c Chip) Units() int {
	n := 0
	for _, p := range c.Profiles {
		for _, s := range p.Starts {
			n = max(n, s+p.Size)
		}
	}
	return n
}

// Slices is the number of compute slices: those of the largest profile.
func (c Chip) Slices() int {
	n := 0
	for _, p := range c.Profiles {
		n = max(n, p.Slices)
	}
	return n
}

// Engines are those of the whole GPU. NVML does not tell them; they are as many
// as the most instances that it allows of one profile have.
func (c Chip) Engines() Engines {
	var e Engines
	for _, p := range c.Profiles {
		e.Decoders = max(e.Decoders, p.Max*p.Engines.Decoders)
		e.Encoders = max(e.Encoders, p.Max*p.Engines.Encoders)
		e.JPEG = max(e.JPEG, p.Max*p.Engines.JPEG)
		e.OFA = max(e.OFA, p.Max*p.Engines.OFA)
	}
	return e
}

// Whole is the profile that takes all compute slices, the plainest of them.
func (c Chip) Whole() (Profile, bool) {
	n := c.Slices()
	var whole Profile
	for _, p := range c.Profiles {
		if p.Slices == n && (whole.Name == "" || len(p.Name) < len(whole.Name)) {
			whole = p
		}
	}
	return whole, whole.Name != ""
}

func (e Engines) plus(f Engines) Engines {
	return Engines{e.Decoders + f.Decoders, e.Encoders + f.Encoders, e.JPEG + f.JPEG, e.OFA + f.OFA}
}

func (e Engines) within(f Engines) bool {
	return e.Decoders <= f.Decoders && e.Encoders <= f.Encoders && e.JPEG <= f.JPEG && e.OFA <= f.OFA
}

// Check tells why no law can be made of what is told of a chip.
func (c Chip) Check() error {
	seen, places := map[ProfileID]bool{}, 0
	for _, p := range c.Profiles {
		if seen[p.ID] {
			return fmt.Errorf("%s has two MIG profiles with the id %d", c.Model, p.ID)
		}
		if p.Slices < 1 || p.Size < 1 || p.Max < 1 || p.Max > maxUnits || p.Size > maxUnits {
			return fmt.Errorf("%s: MIG profile %s has %d slices, %d units, at most %d instances", c.Model, p.Name, p.Slices, p.Size, p.Max)
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
	Place Place
	// Reason is a clause: "1g.5gb@3 and 3g.20gb@0 overlap".
	Reason string
}

func (e Illegal) Error() string { return "no such layout: " + e.Reason }

// Legal tells whether the layout can exist on an otherwise empty GPU; if not,
// the error is Illegal.
func (c Chip) Legal(l Layout) error {
	r := newRoom(c)
	for i, p := range l {
		if no := r.add(p); no != fits {
			return Illegal{p, c.reason(no, l[:i], p)}
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
	chip     Chip
	profiles map[ProfileID]Profile
	slices   int
	budget   Engines

	units   uint64
	spent   int
	engines Engines
	count   map[ProfileID]int
}

func newRoom(c Chip) *room {
	r := &room{chip: c, slices: c.Slices(), budget: c.Engines(), profiles: map[ProfileID]Profile{}, count: map[ProfileID]int{}}
	for _, p := range c.Profiles {
		r.profiles[p.ID] = p
	}
	return r
}

// add takes a place if it fits.
func (r *room) add(at Place) refusal {
	p, known := r.profiles[at.Profile]
	engines := r.engines.plus(p.Engines)
	switch {
	case !known:
		return unknownProfile
	case !p.startsAt(at.Start):
		return impossibleStart
	case r.units&p.mask(at.Start) != 0:
		return overlap
	case r.count[p.ID] >= p.Max:
		return tooMany
	case r.spent+p.Slices > r.slices:
		return slicesSpent
	case !engines.within(r.budget):
		return enginesSpent
	case r.apart(p.ID):
		return keptApart
	}
	r.units |= p.mask(at.Start)
	r.count[p.ID]++
	r.spent += p.Slices
	r.engines = engines
	return fits
}

// remove takes back what add took.
func (r *room) remove(at Place) {
	p := r.profiles[at.Profile]
	r.units &^= p.mask(at.Start)
	r.count[p.ID]--
	r.spent -= p.Slices
	r.engines = r.engines.plus(Engines{-p.Engines.Decoders, -p.Engines.Encoders, -p.Engines.JPEG, -p.Engines.OFA})
}

func (r *room) apart(id ProfileID) bool {
	for _, pair := range r.chip.Apart {
		if pair[0] == id && r.count[pair[1]] > 0 || pair[1] == id && r.count[pair[0]] > 0 {
			return true
		}
	}
	return false
}

// mask is the set of units that an instance at the start takes.
func (p Profile) mask(start int) uint64 { return (1<<p.Size - 1) << start }

func (p Profile) startsAt(start int) bool {
	for _, s := range p.Starts {
		if s == start {
			return true
		}
	}
	return false
}

// reason words a refusal of a place beside others.
func (c Chip) reason(no refusal, beside Layout, at Place) string {
	p, _ := c.Profile(at.Profile)
	name := c.FormatPlace(at)
	switch no {
	case unknownProfile:
		return fmt.Sprintf("%s has no MIG profile with the id %d", c.Model, at.Profile)
	case impossibleStart:
		return fmt.Sprintf("%s cannot start at %d, only at %s", p.Name, at.Start, joinInts(p.Starts))
	case overlap:
		return fmt.Sprintf("%s and %s overlap", name, c.FormatPlace(c.overlapping(beside, at)))
	case tooMany:
		return fmt.Sprintf("more than %d of %s", p.Max, p.Name)
	case slicesSpent:
		return fmt.Sprintf("no %d of the %d compute slices are left for %s", p.Slices, c.Slices(), name)
	case enginesSpent:
		return fmt.Sprintf("the media engines that %s needs are taken", name)
	case keptApart:
		return fmt.Sprintf("this driver does not make %s beside %s", p.Name, c.partner(beside, at.Profile))
	}
	return ""
}

func (c Chip) overlapping(l Layout, at Place) Place {
	p, _ := c.Profile(at.Profile)
	for _, o := range l {
		if q, ok := c.Profile(o.Profile); ok && q.mask(o.Start)&p.mask(at.Start) != 0 {
			return o
		}
	}
	return at
}

// partner names the profile that keeps another away.
func (c Chip) partner(l Layout, id ProfileID) string {
	for _, pair := range c.Apart {
		for _, o := range l {
			if pair == [2]ProfileID{id, o.Profile} || pair == [2]ProfileID{o.Profile, id} {
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
