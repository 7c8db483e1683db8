package mig

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// The best layouts of all GPUs together. Only the numbers of instances that all GPUs
// serve of each need couple them. So a table has, for each vector of numbers that
// some GPUs serve together, the best rest of the score; GPU after GPU joins it.
// A bound leaves out vectors from which no better plan than a known one can follow.

// Widths of a table. A plan found with firstWidth bounds the search that follows. Its
// tables of up to fewGPUs have fewWidth each: it comes to its end for any model, whatever
// is asked for. Those of more GPUs have manyWidth together, which takes seconds for 16.
const (
	firstWidth = 64
	fewGPUs    = 8
	fewWidth   = 160_000
	manyWidth  = 640_000
)

// worth is a score in three numbers, the first difference decides: value and age of what
// is served, and the rest as search.rest packs it.
type worth struct{ value, age, rest int64 }

func (w worth) plus(v worth) worth { return worth{w.value + v.value, w.age + v.age, w.rest + v.rest} }

func (w worth) times(n int64) worth { return worth{w.value * n, w.age * n, w.rest * n} }

func (w worth) below(v worth) bool {
	if w.value != v.value {
		return w.value < v.value
	}
	return w.age < v.age || w.age == v.age && w.rest < v.rest
}

// search is the problem of one node.
type search struct {
	boards []board
	needs  []need
	// A vector of numbers is the sum of numbers times strides.
	strides []uint64
	// kinds are what GPUs in equal state can do, kindOf is the kind of each board.
	kinds  [][]option
	kindOf []int
	// bases are above the sums of each level of a score over all GPUs.
	bases score
}

// option is the best layout of a GPU that serves some numbers.
type option struct {
	set    uint64
	index  int // of the layout: the lower is preferred among equals
	serves []serving
	rest   int64
}

// serving is a number served of one need, above zero.
type serving struct{ need, n int }

// likeness is what GPUs in equal state have in common.
type likeness struct {
	layouts     *Layouts
	now, pinned uint64
}

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
	for _, b := range bs {
		most := score{}
		for _, e := range b.candidates {
			for i, v := range b.local(e) {
				most[i] = max(most[i], v, -v)
			}
		}
		s.bases = s.bases.plus(most)
	}
	seen := map[likeness]int{}
	for g, b := range bs {
		like := likeness{b.ls, b.now, b.pinned}
		k, known := seen[like]
		if !known {
			k = len(s.kinds)
			seen[like], s.kinds = k, append(s.kinds, s.optionsOf(g))
		}
		s.kindOf = append(s.kindOf, k)
	}
	return s, nil
}

// rest packs the levels of a score that do not depend on what is asked for. Sums over all
// GPUs compare as the scores do.
func (s *search) rest(v score) (n int64) {
	for i := 2; i < len(v); i++ {
		n = n*(s.bases[i]+1) + v[i]
	}
	return n
}

// optionsOf keeps the best layout for each vector, in the order of layouts, and drops
// options that serve no more than a better one.
func (s *search) optionsOf(g int) []option {
	best := map[uint64]option{}
	b := s.boards[g]
	for i, e := range b.candidates {
		o := option{set: e.set, index: i, rest: s.rest(b.local(e))}
		vector := uint64(0)
		for k, n := range s.needs {
			if most := min(int(count(e.set&n.places[g])), n.wanted); most > 0 {
				o.serves = append(o.serves, serving{k, most})
				vector += uint64(most) * s.strides[k]
			}
		}
		if old, known := best[vector]; !known || o.better(old) {
			best[vector] = o
		}
	}
	var all []option
	for _, o := range best {
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b option) int { return cmp.Compare(a.index, b.index) })
	return slices.DeleteFunc(slices.Clone(all), func(o option) bool {
		return slices.ContainsFunc(all, func(p option) bool { return p.index != o.index && p.better(o) && p.covers(o) })
	})
}

func (o option) better(p option) bool {
	return o.rest > p.rest || o.rest == p.rest && o.index < p.index
}

// covers reports whether o serves at least what p serves.
func (o option) covers(p option) bool {
	for _, v := range p.serves {
		if !slices.ContainsFunc(o.serves, func(w serving) bool { return w.need == v.need && w.n >= v.n }) {
			return false
		}
	}
	return true
}

// best returns the set of places for each GPU, and whether no plan is better.
func (s *search) best() (chosen []uint64, proven bool) {
	tables, most, _ := s.run(firstWidth, worth{value: -1})
	width := fewWidth
	if len(s.boards) > fewGPUs {
		width = manyWidth / len(s.boards)
	}
	wider, last, cut := s.run(width, most)
	if !last.below(most) {
		tables, most = wider, last
	}
	return s.layouts(tables, most), !cut
}

// run joins all GPUs, the last one first. It returns the table before each step, the one
// of all GPUs, and the best score there. Vectors that cannot reach floor are left out;
// cut says that others were, because there were more than width.
func (s *search) run(width int, floor worth) (tables []*table, most worth, cut bool) {
	now := newTable()
	now.put(0, 0)
	tables = append(tables, now)
	for g := len(s.boards) - 1; g >= 0; g-- {
		here := s.place(s.kindOf[:g+1])
		from := now.tallies
		if len(from) > width {
			var more bool
			from, more = here.best(from, width, floor)
			cut = cut || more
		}
		next := newTable()
		for _, t := range from {
			bound, gpu := here.bound(t)
			if bound.below(floor) {
				continue
			}
			others := bound.plus(gpu.times(-1))
			for _, o := range here.options {
				if !others.plus(here.added(o)).below(floor) {
					next.put(t.vector+s.more(here.counts, o), t.rest+o.rest)
				}
			}
		}
		now = next
		tables = append(tables, now)
	}
	here := s.place(nil)
	most = worth{value: -1} // of a table that was cut until nothing was left
	for _, t := range now.tallies {
		if total, _ := here.bound(t); most.below(total) {
			most = total
		}
	}
	return tables, most, cut
}

// place is a vector, the kinds of GPUs that still come, and what they can add to it.
type place struct {
	*search
	gpus    []int64  // the number of GPUs of each kind
	options []option // of the next GPU
	counts  []int
	// gains are what so many more of each need add to the score.
	gains [][]worth
}

func (s *search) place(left []int) *place {
	p := &place{search: s, gpus: make([]int64, len(s.kinds)), counts: make([]int, len(s.needs))}
	for _, k := range left {
		p.gpus[k]++
		p.options = s.kinds[k]
	}
	for _, n := range s.needs {
		p.gains = append(p.gains, make([]worth, n.most+1))
	}
	return p
}

// bound is the most that a plan from a vector can score, and the most that the next GPU
// adds to it. The worth of one more instance never grows with the number served. So no
// GPU adds more than it would add if it came next.
func (p *place) bound(t tally) (most, next worth) {
	p.count(t.vector, p.counts)
	for k, gains := range p.gains {
		values, had := p.needs[k].values, p.counts[k]
		for n := range gains {
			has := values[min(had+n, len(values)-1)]
			gains[n] = worth{value: has[0] - values[had][0], age: has[1] - values[had][1]}
		}
	}
	most = p.value(p.counts)
	most.rest = t.rest
	for k, n := range p.gpus {
		if n == 0 {
			continue
		}
		gpu := p.added(p.kinds[k][0])
		for _, o := range p.kinds[k][1:] {
			if w := p.added(o); gpu.below(w) {
				gpu = w
			}
		}
		most = most.plus(gpu.times(n))
		if &p.kinds[k][0] == &p.options[0] {
			next = gpu
		}
	}
	return most, next
}

// added is what an option adds to the score.
func (p *place) added(o option) worth {
	w := worth{rest: o.rest}
	for _, v := range o.serves {
		gain := &p.gains[v.need][v.n]
		w.value += gain.value
		w.age += gain.age
	}
	return w
}

// best keeps the tallies with the best bounds, and says whether it left out others that
// reach floor.
func (p *place) best(all []tally, width int, floor worth) (kept []tally, cut bool) {
	type bounded struct {
		tally
		bound worth
	}
	var some []bounded
	for _, t := range all {
		if bound, _ := p.bound(t); !bound.below(floor) {
			some = append(some, bounded{t, bound})
		}
	}
	slices.SortStableFunc(some, func(a, b bounded) int {
		return cmp.Or(-cmp.Compare(a.bound.value, b.bound.value), -cmp.Compare(a.bound.age, b.bound.age),
			-cmp.Compare(a.bound.rest, b.bound.rest))
	})
	for _, b := range some[:min(width, len(some))] {
		kept = append(kept, b.tally)
	}
	return kept, len(some) > width
}

// count takes a vector apart.
func (s *search) count(vector uint64, counts []int) {
	for k, n := range s.needs {
		counts[k] = int(vector / s.strides[k] % uint64(n.wanted+1))
	}
}

// more is what an option adds to the vector of counts: never above what is wanted.
func (s *search) more(counts []int, o option) (vector uint64) {
	for _, v := range o.serves {
		vector += uint64(min(v.n, s.needs[v.need].wanted-counts[v.need])) * s.strides[v.need]
	}
	return vector
}

// value is the worth of serving so many.
func (s *search) value(counts []int) (w worth) {
	for k, n := range s.needs {
		w.value += n.values[counts[k]][0]
		w.age += n.values[counts[k]][1]
	}
	return w
}

// layouts goes back from the best score to layouts: of the plans that reach it the one
// whose first GPU has the first layout, then the second GPU, and so on.
func (s *search) layouts(tables []*table, most worth) (chosen []uint64) {
	counts := make([]int, len(s.needs))
	on := map[uint64]int64{} // vectors that a best plan reaches, and their rest
	for _, e := range tables[len(s.boards)].tallies {
		s.count(e.vector, counts)
		if s.value(counts).plus(worth{rest: e.rest}) == most {
			on[e.vector] = e.rest
		}
	}
	for g := range s.boards {
		options := s.kinds[s.kindOf[g]]
		first, before := len(options), map[uint64]int64{}
		for _, t := range tables[len(s.boards)-1-g].tallies {
			s.count(t.vector, counts)
			for i, o := range options[:min(first+1, len(options))] {
				if rest, ok := on[t.vector+s.more(counts, o)]; !ok || t.rest+o.rest != rest {
					continue
				}
				if i < first {
					first = i
					clear(before)
				}
				before[t.vector] = t.rest
				break
			}
		}
		on, chosen = before, append(chosen, options[first].set)
	}
	return chosen
}

// table has the best rest for each vector, in the order in which the vectors came. It finds
// a vector by open addressing: Go's map takes most of the time of a search.
type table struct {
	tallies []tally
	slots   []int32 // number of the tally, from 1
}

type tally struct {
	vector uint64
	rest   int64
}

func newTable() *table { return &table{slots: make([]int32, 1<<8)} }

func (t *table) put(vector uint64, rest int64) {
	i := t.slot(vector)
	if n := t.slots[i]; n > 0 {
		t.tallies[n-1].rest = max(t.tallies[n-1].rest, rest)
		return
	}
	t.tallies = append(t.tallies, tally{vector, rest})
	if t.slots[i] = int32(len(t.tallies)); 2*len(t.tallies) > len(t.slots) {
		t.slots = make([]int32, 4*len(t.slots))
		for n, e := range t.tallies {
			t.slots[t.slot(e.vector)] = int32(n + 1)
		}
	}
}

// slot is the vector's, or the free one for it.
func (t *table) slot(vector uint64) int {
	mask := len(t.slots) - 1
	i := int(vector*0x9e3779b97f4a7c15>>(64-bits.Len(uint(mask)))) & mask // Fibonacci hashing
	for t.slots[i] > 0 && t.tallies[t.slots[i]-1].vector != vector {
		i = (i + 1) & mask
	}
	return i
}
