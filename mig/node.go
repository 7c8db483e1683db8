package mig

import (
	"cmp"
	"math"
	"slices"
)

// The problem of a node. What couples the GPUs is only how many of each profile
// are served in all, and GPUs in equal state are interchangeable: it is enough
// to know how many of each kind take which option. branch.go searches that.

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
	kinds   []kind
}

// kind is a number of GPUs in equal state, and what each of them can do.
type kind struct {
	gpus    []int // numbers of boards, ascending
	options []option
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
	seen := map[likeness]int{}
	for g, b := range bs {
		k, known := seen[b.likeness()]
		if !known {
			k = len(s.kinds)
			seen[b.likeness()], s.kinds = k, append(s.kinds, kind{options: s.optionsOf(g)})
		}
		s.kinds[k].gpus = append(s.kinds[k].gpus, g)
	}
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

// number is how many of a need are served.
func (s *search) number(sum uint64, k int) int {
	return int(sum / s.strides[k] % uint64(s.needs[k].wanted+1))
}
