package mig

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// view is one look with what is remembered and allowed.
type view struct {
	rules  Rules
	past   Past
	now    time.Time
	boards []board
	// demand with the names of the first chip that has the profile, the most
	// worth first.
	demand []Demand
	notes  []string
}

func newView(c *Catalogue, r Rules, past Past, now Sight) (*view, error) {
	bs, err := c.boards(now.GPUs)
	if err != nil {
		return nil, err
	}
	within(bs, now.Places)
	v := &view{rules: r, past: past, now: now.At, boards: bs}
	for _, d := range now.Demand {
		name, ok := v.name(d.Profile)
		if d.Count <= 0 {
			continue
		}
		if !ok {
			v.notes = append(v.notes, d.Profile+" is a profile of no GPU here")
			continue
		}
		d.Profile, d.Age = name, min(max(d.Age, 0), maxAge)
		v.demand = append(v.demand, d)
	}
	slices.SortStableFunc(v.demand, func(a, b Demand) int {
		return cmp.Or(cmp.Compare(max(b.Weight, 1), max(a.Weight, 1)), cmp.Compare(b.Age, a.Age))
	})
	return v, nil
}

// within keeps of each board's layouts those of the allowed places, and of what
// exists. GPUs in equal state go on sharing theirs, which planning lives by.
func within(bs []board, places map[gpu.UUID]gpu.Layout) {
	type key struct {
		ls  *Layouts
		set uint64
	}
	known := map[key]*Layouts{}
	for i, b := range bs {
		allowed, named := places[b.gpu.UUID]
		if !named {
			continue
		}
		k := key{b.ls, b.sets(allowed) | b.now}
		if known[k] == nil {
			known[k] = b.ls.only(func(set uint64) bool { return set&^k.set == 0 })
		}
		bs[i].ls = known[k]
	}
}

// name is one name for a profile, however it is written.
func (v *view) name(text string) (string, bool) {
	for _, b := range v.boards {
		if p, err := ProfileNamed(b.ls.chip, text); err == nil {
			return p.Name, true
		}
	}
	return "", false
}

// profileOn finds a profile on a GPU by its name.
func (b board) profileOn(name string) (gpu.Profile, uint64, bool) {
	p, err := ProfileNamed(b.ls.chip, name)
	return p, b.ls.of(p.ID), err == nil
}

// idle is the number of instances of a profile that a job can start on.
func (v *view) idle(name string) (n int) {
	for _, b := range v.boards {
		if _, places, ok := b.profileOn(name); ok {
			n += int(count(v.free(b) & places))
		}
	}
	return n
}

// free are the instances of a GPU that a job can start on.
func (v *view) free(b board) uint64 { return b.now &^ b.pinned &^ v.kept(b) }

// any tells whether an instance of a profile exists that is or was a job's to use.
func (v *view) any(name string) bool {
	return slices.ContainsFunc(v.boards, func(b board) bool {
		_, places, ok := b.profileOn(name)
		return ok && b.now&^b.foreign()&^v.kept(b)&places != 0
	})
}

// foreign are the instances that gpuslot did not make.
func (b board) foreign() (set uint64) {
	for _, in := range b.gpu.Instances {
		if in.Owner != gpu.Ours {
			set |= b.one(in.Place)
		}
	}
	return set
}

// plan is the best for a demand within the rules.
func (v *view) plan(demand []Demand) (Plan, error) {
	bs, spared := make([]board, len(v.boards)), v.spared(demand)
	for i, b := range v.boards {
		bs[i] = v.restrict(b, spared[i])
	}
	return planBoards(bs, demand)
}

// spared are, of each board, the idle instances that work which has waited long
// can start on: what is worth more does not take them away under its eyes.
func (v *view) spared(demand []Demand) []uint64 {
	sets := make([]uint64, len(v.boards))
	for _, d := range demand {
		if v.waited(d) < v.rules.ReserveAfter {
			continue
		}
		left := d.Count
		for i, b := range v.boards {
			_, places, ok := b.profileOn(d.Profile)
			for idle := v.free(b) & places &^ sets[i]; ok && idle != 0 && left > 0; left-- {
				sets[i] |= idle & -idle
				idle &= idle - 1
			}
		}
	}
	return sets
}

// restrict leaves of a GPU's layouts those that the rules allow now.
func (v *view) restrict(b board, spared uint64) board {
	all, must := b.ls, v.young(b)|spared
	r, reserved := v.reservation(b.gpu.UUID)
	kept, place := b.sets(r.Keep)&b.now, b.one(r.Place)
	ready := reserved && v.ready(b, r)
	switch {
	case ready:
		must |= place
	case reserved:
		must, b.pinned = must|kept, b.pinned|kept
	}
	if v.past.changes(b.gpu.UUID) >= v.rules.PerHour {
		v.note(fmt.Sprintf("GPU %d has had its %d changes of the hour", b.gpu.Index, v.rules.PerHour))
		b.ls = all.only(func(set uint64) bool { return set == b.now })
	} else if must&^b.pinned != 0 || reserved {
		b.ls = all.only(func(set uint64) bool {
			return set&must == must && (!reserved || all.legal(set&^kept|place))
		})
	}
	return b
}

func (v *view) note(s string) {
	if !slices.Contains(v.notes, s) {
		v.notes = append(v.notes, s)
	}
}

// young are the instances that have not been there for long enough.
func (v *view) young(b board) (set uint64) {
	for _, in := range b.gpu.Instances {
		if t, ok := v.past.since(b.gpu.UUID, in.Place); !ok || v.now.Sub(t) < v.rules.Dwell {
			set |= b.one(in.Place)
		}
	}
	return set
}

// made is what a plan serves more than the idle instances do.
func (v *view) made(plan Plan, steady []Demand) (u Unmet) {
	for _, s := range plan.Served {
		wanted := 0
		for _, d := range steady {
			if d.Profile == s.Profile {
				wanted += d.Count
			}
		}
		if n := s.Served - min(wanted, v.idle(s.Profile)); n > 0 {
			u = append(u, Short{s.Profile, n})
		}
	}
	return u
}

// one is a place as a set.
func (b board) one(p gpu.Place) uint64 {
	set, _ := b.ls.set(gpu.Layout{p})
	return set
}

// sets is the set of those places that exist.
func (b board) sets(l gpu.Layout) (set uint64) {
	for _, p := range l {
		set |= b.one(p)
	}
	return set
}

func (ls *Layouts) legal(set uint64) bool {
	_, ok := ls.index[set]
	return ok
}

// only are the layouts that pass, in their order, valued as before.
func (ls *Layouts) only(pass func(set uint64) bool) *Layouts {
	some := &Layouts{chip: ls.chip, places: ls.places, index: map[uint64]int{}}
	for _, e := range ls.all {
		if pass(e.set) {
			some.index[e.set] = len(some.all)
			some.all = append(some.all, e)
		}
	}
	return some
}
