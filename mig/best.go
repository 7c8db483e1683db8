package mig

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
)

// The best layouts of all GPUs together. Only the numbers of instances that all GPUs
// serve of each need couple them. So the dynamic programme joins GPU after GPU:
//
//   - A state is the vector of numbers served so far, none above its demand. Of the
//     layouts that reach one vector only the best are kept.
//   - Prices (price.go) give an upper bound of the score of all plans. The score of a plan
//     is this bound less its losses: what each layout is worth less than the best of its
//     GPU at the prices, and what each need loses where it is served too often or too
//     rarely for its price. No loss is negative, and a score has several levels, so losses
//     are compared lexicographically.
//   - A state whose loss exceeds that of a known plan leads to no better plan and is
//     left out.
//
// Tables of narrow and wider states give known plans. The last run starts from the best of
// them. If it leaves out nothing else, its plan is proven to be the best. Up to fewGPUs have
// room for every demand that was drawn; tables of more GPUs may be a beam.
const (
	narrow, wider                = 64, 1024
	fewGPUs, fewWidth, manyWidth = 8, 160_000, 3_500
)

// search is the problem of one node.
type search struct {
	boards []board
	needs  []need
	shifts []int // where the number of each need stands in a vector
	masks  []uint64
	values [][]worth // of each number served of each need
	// excess and lacked are the losses at the prices, by number served above and below the best.
	prices         []worth
	excess, lacked [][]worth
	kinds          []kind
	bases          score // above the sums of each level of a score over all GPUs
}

// kind is GPUs in equal state: what each can do, the option with the least loss first.
type kind struct {
	options []option
	boards  []int
	most    []int // that one of them serves of each need
}

// option is the best layout of a GPU that serves some numbers.
type option struct {
	set    uint64
	index  int // of the layout
	serves []serving
	rest   int64
	loss   worth
}

// serving is a number served of one need, above zero.
type serving struct{ need, n int }

func newSearch(bs []board, needs []need) (*search, error) {
	s := &search{boards: bs, needs: needs}
	shift := 0
	for _, n := range needs {
		width := bits.Len(uint(n.wanted))
		s.shifts, s.masks = append(s.shifts, shift), append(s.masks, 1<<width-1)
		shift += width
		var values []worth
		for _, v := range n.values {
			values = append(values, worth{v[0] * fraction, v[1] * fraction, 0})
		}
		s.values = append(s.values, values)
	}
	if shift > 64 {
		return nil, errTooWide
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
	for g, b := range bs {
		k := slices.IndexFunc(s.kinds, func(kd kind) bool {
			c := bs[kd.boards[0]]
			return c.ls == b.ls && c.now == b.now && c.pinned == b.pinned
		})
		if k < 0 {
			k, s.kinds = len(s.kinds), append(s.kinds, s.newKind(g))
		}
		s.kinds[k].boards = append(s.kinds[k].boards, g)
	}
	s.price()
	return s, nil
}

// rest packs the levels of a score that do not depend on what is asked for. Sums over all
// GPUs compare as the scores do.
func (s *search) rest(v score) (n int64) {
	for i := 2; i < len(v); i++ {
		n = n*(s.bases[i]+1) + v[i]
	}
	return n * fraction
}

// newKind keeps the best layout for each vector.
func (s *search) newKind(g int) kind {
	best, most, b := map[uint64]option{}, make([]int, len(s.needs)), s.boards[g]
	for i, e := range b.candidates {
		o := option{set: e.set, index: i, rest: s.rest(b.local(e))}
		vector := uint64(0)
		for k, n := range s.needs {
			if served := min(int(count(e.set&n.places[g])), n.wanted); served > 0 {
				o.serves = append(o.serves, serving{k, served})
				vector += uint64(served) << s.shifts[k]
				most[k] = max(most[k], served)
			}
		}
		if old, known := best[vector]; !known || o.rest > old.rest {
			best[vector] = o
		}
	}
	options := slices.Collect(maps.Values(best))
	slices.SortFunc(options, func(a, b option) int { return cmp.Compare(a.index, b.index) })
	return kind{options: options, most: most}
}

// best returns the set of places for each GPU, and whether no plan is better.
func (s *search) best() (chosen []uint64, proven bool) {
	widest := fewWidth
	if len(s.boards) > fewGPUs {
		widest = manyWidth
	}
	known := worthless
	for _, width := range []int{narrow, wider, widest} {
		layers, cut := s.run(width, known)
		for i, t := range layers[len(layers)-1] {
			if loss := s.least(t, nil); loss.below(known) || chosen == nil {
				chosen, known = s.layouts(layers, i), loss
			}
		}
		if !cut {
			return chosen, true
		}
	}
	return chosen, false
}

// state is a vector that some GPUs serve together, their loss, and the state and the option
// of the last GPU that lead to it.
type state struct {
	vector       uint64
	loss         worth
	from, option int32
}

// run joins all GPUs. It returns the states before each GPU and after the last. States that
// lose more than the known plan are left out; cut says that others were, because there were
// more than width.
func (s *search) run(width int, known worth) (layers [][]state, cut bool) {
	left := make([]int, len(s.needs)) // most that the GPUs to come serve
	for _, kd := range s.kinds {
		for i, n := range kd.most {
			left[i] += n * len(kd.boards)
		}
	}
	now := []state{{}}
	for _, kd := range s.kinds {
		for range kd.boards {
			if len(now) > width {
				slices.SortFunc(now, func(a, b state) int { return a.loss.compare(b.loss) })
				now, cut = now[:width], true
			}
			layers = append(layers, now)
			next, at := []state(nil), make(map[uint64]int32, len(now))
			for i, t := range now {
				if !known.below(s.least(t, left)) {
					next = s.extend(next, at, t, int32(i), kd.options, known)
				}
			}
			now = next
			for i, n := range kd.most {
				left[i] -= n
			}
		}
	}
	return append(layers, now), cut
}

// extend adds what the next GPU can make of a state; at is where each vector stands.
func (s *search) extend(next []state, at map[uint64]int32, t state, from int32, options []option, known worth) []state {
	for i := range options {
		o := &options[i]
		loss, vector := t.loss.plus(o.loss), t.vector
		if known.below(loss) {
			break // the options that follow lose no less
		}
		for _, v := range o.serves {
			had := int(t.vector >> s.shifts[v.need] & s.masks[v.need])
			excess := s.excess[v.need]
			loss = loss.plus(excess[had+v.n]).minus(excess[had])
			vector += uint64(min(v.n, s.needs[v.need].wanted-had)) << s.shifts[v.need]
		}
		if known.below(loss) {
			continue
		}
		if n, had := at[vector]; !had {
			at[vector] = int32(len(next))
			next = append(next, state{vector, loss, from, int32(i)})
		} else if loss.below(next[n].loss) {
			next[n] = state{vector, loss, from, int32(i)}
		}
	}
	return next
}

// least is the loss of a state with what it will lack if GPUs that serve at most left come.
func (s *search) least(t state, left []int) worth {
	loss := t.loss
	for k, lacked := range s.lacked {
		n := int(t.vector >> s.shifts[k] & s.masks[k])
		if left != nil {
			n = min(n+left[k], len(lacked)-1)
		}
		loss = loss.plus(lacked[n])
	}
	return loss
}

// layouts goes back from a state after the last GPU to the layouts that lead to it.
func (s *search) layouts(layers [][]state, end int) []uint64 {
	chosen := make([]uint64, len(s.boards))
	layer := len(layers) - 1
	for _, kd := range slices.Backward(s.kinds) {
		for _, g := range slices.Backward(kd.boards) {
			t := layers[layer][end]
			chosen[g], end = kd.options[t.option].set, int(t.from)
			layer--
		}
	}
	return chosen
}
