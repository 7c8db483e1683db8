package mig

import (
	"cmp"
	"math"
	"slices"
)

// The search over a node. What couples the GPUs is only how many of each
// profile are served in all, so it goes from GPU to GPU over the numbers
// served so far, keeping for each the best way there. A bound from prices
// (prices.go) cuts what cannot end as well as a plan already known; prices are
// sharp enough that little is left.

// option is the best layout of a GPU that serves some numbers.
type option struct {
	index  int // of the layout: lower is preferred among equals
	serves []int
	add    uint64 // serves as a sum of needs' strides
	score  score
}

// search is the problem of one node.
type search struct {
	boards  []board
	needs   []need
	strides []uint64
	options [][]option // of each GPU
	prices  *prices
}

// likeness is what GPUs in equal state have in common.
type likeness struct {
	layouts     *Layouts
	now, pinned uint64
}

func (b board) likeness() likeness { return likeness{b.ls, b.now, b.pinned} }

func newSearch(bs []board, needs []need) (*search, error) {
	s := &search{boards: bs, needs: needs}
	stride := uint64(1)
	for _, n := range needs {
		s.strides = append(s.strides, stride)
		if stride > math.MaxInt64/uint64(n.wanted+1) {
			return nil, errTooWide
		}
		stride *= uint64(n.wanted + 1)
	}
	same := map[likeness][]option{}
	for g, b := range bs {
		if _, known := same[b.likeness()]; !known {
			same[b.likeness()] = s.optionsOf(g)
		}
		s.options = append(s.options, same[b.likeness()])
	}
	s.prices = newPrices(s)
	return s, nil
}

// optionsOf keeps the best layout for each numbers served, and drops options
// that serve no more than a better one.
func (s *search) optionsOf(g int) []option {
	best := map[uint64]option{}
	b := s.boards[g]
	for i, e := range b.candidates {
		o := option{index: i, score: b.local(e), serves: make([]int, len(s.needs))}
		for k, n := range s.needs {
			o.serves[k] = min(int(count(e.set&n.places[g])), n.wanted)
			o.add += uint64(o.serves[k]) * s.strides[k]
		}
		if old, known := best[o.add]; !known || o.better(old) {
			best[o.add] = o
		}
	}
	var all, kept []option
	for _, o := range best {
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b option) int { return cmp.Compare(a.index, b.index) })
	for i, o := range all {
		if !slices.ContainsFunc(all, func(p option) bool { return p.index != all[i].index && p.better(o) && p.covers(o) }) {
			kept = append(kept, o)
		}
	}
	return kept
}

func (o option) better(p option) bool {
	c := o.score.compare(p.score)
	return c > 0 || c == 0 && o.index < p.index
}

func (o option) covers(p option) bool {
	for k := range o.serves {
		if o.serves[k] < p.serves[k] {
			return false
		}
	}
	return true
}

// state is a number served of each need, and the best way to it.
type state struct {
	served uint64
	score  score // local parts only
	bound  score // what it can become at most, in units of prices
	before int32 // state of the layer before
	option int32
}

// Widths of the searches: the first finds a good plan, the second proves that
// there is none better, in a bounded time.
const (
	beamWidth  = 256
	proofWidth = 40_000
)

// best returns the set of places for each GPU, and whether no better exists.
func (s *search) best() (chosen []uint64, proven bool) {
	found := s.run(beamWidth, nil)
	if !found.whole {
		if proof := s.run(proofWidth, &found.bound); proof.whole || proof.total.compare(found.total) > 0 {
			found = proof
		}
	}
	for g, o := range found.options {
		chosen = append(chosen, s.boards[g].ls.all[o].set)
	}
	return chosen, found.whole
}

// found is the outcome of a run.
type found struct {
	options []int // the layout of each GPU
	total   score
	bound   score // total in units of prices
	whole   bool  // nothing was left out that could have been better
}

// run goes through all GPUs. It keeps at most so many states a layer, those of
// the highest bounds, and none whose bound is below the floor.
func (s *search) run(width int, floor *score) found {
	layers := [][]state{{{}}}
	whole := true
	for g := range s.boards {
		next := s.layer(g, layers[g], floor)
		if len(next) > width {
			next, whole = narrow(next, width), false
		}
		layers = append(layers, next)
	}
	return s.trace(layers, whole)
}

// layer goes on from every state by every option of a GPU. States and options
// are in the order of preference, and so is the result.
func (s *search) layer(g int, from []state, floor *score) []state {
	var next []state
	at := make(map[uint64]int32, len(from))
	served := make([]int, len(s.needs))
	for i, f := range from {
		s.split(f.served, served)
		for j, o := range s.options[g] {
			t := state{served: s.join(served, o.serves), score: f.score.plus(o.score), before: int32(i), option: int32(j)}
			k, known := at[t.served]
			if known && t.score.compare(next[k].score) <= 0 {
				continue
			}
			if known {
				t.bound = next[k].bound.plus(t.score.plus(next[k].score.times(-1)).times(scale))
				next[k] = t
				continue
			}
			t.bound = s.prices.bound(g+1, t)
			if floor == nil || t.bound.compare(*floor) >= 0 {
				at[t.served] = int32(len(next))
				next = append(next, t)
			}
		}
	}
	slices.SortFunc(next, func(a, b state) int {
		return cmp.Or(cmp.Compare(a.before, b.before), cmp.Compare(a.option, b.option))
	})
	return next
}

// split takes the number apart that join makes.
func (s *search) split(sum uint64, served []int) {
	for k, n := range s.needs {
		served[k] = int(sum / s.strides[k] % uint64(n.wanted+1))
	}
}

// join adds; more than wanted is of no use.
func (s *search) join(served, more []int) (sum uint64) {
	for k, n := range s.needs {
		sum += uint64(min(served[k]+more[k], n.wanted)) * s.strides[k]
	}
	return sum
}

// narrow keeps the states of the highest bounds, in order.
func narrow(all []state, width int) []state {
	byBound := slices.Clone(all)
	slices.SortStableFunc(byBound, func(a, b state) int { return b.bound.compare(a.bound) })
	kept := byBound[:width]
	slices.SortFunc(kept, func(a, b state) int {
		return cmp.Or(cmp.Compare(a.before, b.before), cmp.Compare(a.option, b.option))
	})
	return kept
}

// trace picks the best end and follows it back.
func (s *search) trace(layers [][]state, whole bool) found {
	last := layers[len(layers)-1]
	f := found{whole: whole}
	end, served := -1, make([]int, len(s.needs))
	for i, t := range last {
		s.split(t.served, served)
		total := t.score
		for k, n := range s.needs {
			total = total.plus(n.values[served[k]])
		}
		if end < 0 || total.compare(f.total) > 0 {
			end, f.total = i, total
		}
	}
	f.bound = f.total.times(scale)
	f.options = make([]int, len(s.boards))
	for g := len(s.boards); g > 0; g-- {
		t := layers[g][end]
		f.options[g-1] = s.options[g-1][t.option].index
		end = int(t.before)
	}
	return f
}
