package mig

import (
	"errors"
	"fmt"

	"github.com/gpuslot/gpuslot/gpu"
)

// PlanWant finds how one GPU comes nearest to a wanted layout, or to the first
// of several alternatives that its pinned instances allow in full; if they
// allow none, to the one of which most compute slices can be had. Instances
// that exist count as wanted ones of their profile, whoever made them; idle ones of
// ours beyond the wanted layout are destroyed. A layout that the chip cannot
// have at all is an error.
func PlanWant(c *Catalogue, g gpu.MIGGPU, wants ...Want) (Plan, error) {
	b, err := c.board(g)
	if err != nil {
		return Plan{}, err
	}
	if len(wants) == 0 {
		return Plan{}, errors.New("no MIG layout is wanted")
	}
	best, choice := scored{}, -1
	for i, w := range wants {
		if err := b.ls.possible(w); err != nil {
			return Plan{}, err
		}
		s := b.bestFor(w)
		if s.all || choice < 0 || s.score[0] > best.score[0] {
			best, choice = s, i
		}
		if s.all {
			break
		}
	}
	set := b.ls.all[best.index].set
	return Plan{
		GPUs: []GPUPlan{b.result(set)}, Steps: b.steps(set), Choice: choice, Proven: true,
		Served: b.servedOf(wants[choice], set),
	}, nil
}

// scored is a layout, by its number, with its score.
type scored struct {
	index int
	score score
	// all says that everything wanted is there.
	all bool
}

// bestFor tries every layout.
func (b board) bestFor(w Want) scored {
	best, total := scored{index: -1}, int64(w.Total())
	asked := b.ask(w)
	for i, e := range b.candidates {
		value, ok := asked.value(e.set)
		if !ok {
			continue
		}
		if s := value.plus(b.local(e)); best.index < 0 || s.compare(best.score) > 0 {
			best = scored{i, s, value[1] == total}
		}
	}
	return best
}

// asked is a wanted layout in sets of places.
type asked struct {
	placed   uint64
	profiles []askedProfile
}

type askedProfile struct {
	places uint64
	slices int64
	// wanted is the number wanted anywhere; most is how many there may be: pinned
	// instances beyond it are no fault.
	wanted, most int64
}

func (b board) ask(w Want) asked {
	var a asked
	a.placed, _ = b.ls.set(w.Placed)
	for _, p := range b.ls.chip.Profiles {
		q := askedProfile{places: b.ls.of(p.ID), slices: int64(p.Slices)}
		for _, k := range w.Counts {
			if k.Profile == p.ID {
				q.wanted = int64(k.N)
			}
		}
		q.most = max(q.wanted, count(b.pinned&q.places&^a.placed))
		a.profiles = append(a.profiles, q)
	}
	return a
}

// value is the served slices and instances; not ok if the layout has more than
// was asked for.
func (a asked) value(set uint64) (s score, ok bool) {
	for _, p := range a.profiles {
		free := count(set & p.places &^ a.placed)
		if free > p.most {
			return score{}, false
		}
		n := min(free, p.wanted) + count(set&p.places&a.placed)
		s[0] += n * p.slices
		s[1] += n
	}
	return s, true
}

// possible tells whether an empty GPU could have the wanted layout.
func (ls *Layouts) possible(w Want) error {
	if err := Legal(ls.chip, w.Placed); err != nil {
		return err
	}
	for _, k := range w.Counts {
		if _, ok := ls.chip.Profile(k.Profile); !ok {
			nowhere := gpu.Place{Profile: k.Profile}
			return Illegal{nowhere, reason(ls.chip, unknownProfile, nil, nowhere)}
		}
	}
	empty := board{ls: ls}
	if empty.bestFor(w).all {
		return nil
	}
	return Illegal{Reason: whyImpossible(ls.chip, w)}
}

// whyImpossible counts what a wanted layout takes; without pinned instances
// counting is exact but for fixed starts (enumerated for every known grid).
func whyImpossible(c gpu.Chip, w Want) string {
	text := FormatWant(c, w)
	var spent, units int
	var media gpu.Engines
	number := map[gpu.ProfileID]int{}
	for _, p := range w.Placed {
		number[p.Profile]++
	}
	for _, k := range w.Counts {
		number[k.Profile] += k.N
	}
	for _, p := range c.Profiles {
		n := number[p.ID]
		if n > p.Max {
			return fmt.Sprintf("%s has at most %d of %s, not %d", c.Model, p.Max, p.Name, n)
		}
		spent += n * p.Slices
		units += n * p.Size
		for range n {
			media = addEngines(media, p.Engines)
		}
	}
	switch {
	case spent > c.Slices():
		return fmt.Sprintf("%s takes %d compute slices; %s has %d", text, spent, c.Model, c.Slices())
	case units > c.Units():
		return fmt.Sprintf("%s takes %d units of memory; %s has %d", text, units, c.Model, c.Units())
	case !enoughEngines(media, c.Engines()):
		return fmt.Sprintf("%s takes more media engines than %s has", text, c.Model)
	}
	return fmt.Sprintf("%s cannot stand together on %s", text, c.Model)
}

// servedOf tells of each wanted profile what the layout has of it.
func (b board) servedOf(w Want, set uint64) []Served {
	var out []Served
	for _, p := range w.Placed {
		one, _ := b.ls.set(gpu.Layout{p})
		out = append(out, b.served(b.ls.chip.FormatPlace(p), 1, set, one))
	}
	placed, _ := b.ls.set(w.Placed)
	for _, k := range w.Counts {
		p, _ := b.ls.chip.Profile(k.Profile)
		out = append(out, b.served(p.Name, k.N, set, b.ls.of(k.Profile)&^placed))
	}
	return out
}

func (b board) served(name string, wanted int, set, places uint64) Served {
	s := Served{Profile: name, Wanted: wanted, Served: min(wanted, int(count(set&places)))}
	if s.Served < wanted {
		s.Why, s.Waits = whyNot([]outcome{{b, set, places}})
	}
	return s
}
