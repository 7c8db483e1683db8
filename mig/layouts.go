package mig

import (
	"fmt"
	"iter"
	"math/bits"
	"slices"

	"github.com/gpuslot/gpuslot/gpu"
)

// maxLayouts stops an enumeration that no chip asks for: the most that any
// known one has is 2,319.
const maxLayouts = 1 << 16

// Layouts are all legal layouts of a chip, the empty one first, in the order
// of Layout.Compare. They are made once per chip and never change.
type Layouts struct {
	chip   gpu.Chip
	places []gpu.Place // all that exist, ordered
	all    []entry
	index  map[uint64]int
}

// entry is a layout as a set of places, and what it leaves possible.
type entry struct {
	set uint64
	// flexibility is the number of maximal layouts that contain it.
	flexibility int
	// waste is the compute slices that no instance can ever use beside it. Memory does not
	// count: a 1g at the end always strands the last unit, and yet it leaves the most possible.
	waste   int
	maximal bool // nothing can be added
}

// Enumerate finds every layout of the chip by trying every place.
func Enumerate(c gpu.Chip) (*Layouts, error) {
	if err := CheckChip(c); err != nil {
		return nil, err
	}
	ls := &Layouts{chip: c, index: map[uint64]int{}}
	for _, p := range c.Profiles {
		for _, s := range p.Starts {
			ls.places = append(ls.places, gpu.Place{Profile: p.ID, Start: s})
		}
	}
	slices.SortFunc(ls.places, gpu.Place.Compare)
	maximal, err := ls.grow()
	if err != nil {
		return nil, err
	}
	ls.measure(maximal)
	return ls, nil
}

// sum is a layout and the slices that it takes.
type sum struct {
	set    uint64
	slices int
}

// grow visits each layout once: every place in order, taken or not. It returns
// the layouts to which nothing can be added.
func (ls *Layouts) grow() (maximal []sum, err error) {
	r := newRoom(ls.chip)
	var visit func(set uint64, from int) error
	visit = func(set uint64, from int) error {
		if len(ls.all) == maxLayouts {
			return fmt.Errorf("%s has more than %d MIG layouts; are its properties right?", ls.chip.Model, maxLayouts)
		}
		ls.index[set] = len(ls.all)
		ls.all = append(ls.all, entry{set: set})
		if ls.full(r, set) {
			maximal = append(maximal, sum{set, r.spent})
		}
		for i := from; i < len(ls.places); i++ {
			if r.add(ls.places[i]) != fits {
				continue
			}
			if err := visit(set|1<<i, i+1); err != nil {
				return err
			}
			r.remove(ls.places[i])
		}
		return nil
	}
	return maximal, visit(0, 0)
}

// full tells whether no place can be added.
func (ls *Layouts) full(r *room, set uint64) bool {
	for i, p := range ls.places {
		if set&(1<<i) == 0 && r.add(p) == fits {
			r.remove(p)
			return false
		}
	}
	return true
}

// measure fills in what each layout leaves possible.
func (ls *Layouts) measure(maximal []sum) {
	all := ls.chip.Slices()
	for i := range ls.all {
		e := &ls.all[i]
		most := 0
		for _, m := range maximal {
			if m.set&e.set == e.set {
				e.flexibility++
				most = max(most, m.slices)
			}
		}
		e.waste = all - most
		e.maximal = slices.ContainsFunc(maximal, func(m sum) bool { return m.set == e.set })
	}
}

// Len is the number of layouts, the empty one included.
func (ls *Layouts) Len() int { return len(ls.all) }

// All yields the layouts in order, each with the number of maximal layouts
// that contain it: 1 for a maximal one.
func (ls *Layouts) All() iter.Seq2[gpu.Layout, int] {
	return func(yield func(gpu.Layout, int) bool) {
		for _, e := range ls.all {
			if !yield(ls.layout(e.set), e.flexibility) {
				return
			}
		}
	}
}

// Maximal yields the layouts to which nothing can be added, in order.
func (ls *Layouts) Maximal() iter.Seq[gpu.Layout] {
	return func(yield func(gpu.Layout) bool) {
		for _, e := range ls.all {
			if e.maximal && !yield(ls.layout(e.set)) {
				return
			}
		}
	}
}

func (ls *Layouts) layout(set uint64) gpu.Layout {
	l := make(gpu.Layout, 0, bits.OnesCount64(set))
	for ; set != 0; set &= set - 1 {
		l = append(l, ls.places[bits.TrailingZeros64(set)])
	}
	return l
}

// set is the layout as a set of places, if all of them exist.
func (ls *Layouts) set(l gpu.Layout) (set uint64, ok bool) {
	for _, p := range l {
		i, found := slices.BinarySearchFunc(ls.places, p, gpu.Place.Compare)
		if !found {
			return 0, false
		}
		set |= 1 << i
	}
	return set, true
}

// of is the set of the places of one profile.
func (ls *Layouts) of(id gpu.ProfileID) (set uint64) {
	for i, p := range ls.places {
		if p.Profile == id {
			set |= 1 << i
		}
	}
	return set
}
