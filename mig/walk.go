package mig

import "slices"

// The search over a node takes the kinds of GPUs one after another, and each
// kind's options in order: how many GPUs take the first, how many the second,
// and so on. For each number served and number of GPUs left it keeps the best
// way there. The bound from prices (prices.go) cuts what cannot end better than
// a plan already known; it is sharp enough that little is left.

// Widths of the searches: the first completes the linear programme's solution,
// the second proves that there is nothing better, or gives up after so many
// states.
const (
	roundWidth  = 48
	proofStates = 30_000
)

// best returns the set of places for each GPU, and whether no better exists.
func (s *search) best() (chosen []uint64, proven bool) {
	start := state{base: s.prices.base(0)}
	round := &walk{search: s, width: roundWidth}
	end := round.run(round.rounded())
	proof := &walk{search: s, width: proofStates, floor: end.base, hasFloor: true}
	if better := proof.run(start, s.counts()); better != nil && better.base.compare(end.base) > 0 {
		end = better
	}
	if w, ok := s.lowest(start, end.base); ok {
		end.way = w
	}
	return s.layouts(end.way), !proof.cut
}

// counts is the number of GPUs of each kind.
func (s *search) counts() []int {
	n := make([]int, len(s.kinds))
	for k := range n {
		n[k] = len(s.kinds[k].gpus)
	}
	return n
}

// rounded is the state in which GPUs take what the linear programme gives them
// in full, and how many of each kind it leaves.
func (w *walk) rounded() (t state, left []int) {
	t, left = state{base: w.prices.base(0)}, w.counts()
	for k, options := range w.prices.taken {
		for o, n := range options {
			for range min(n, left[k]) {
				t = w.after(t, k, o)
				t.way = &way{t.way, k, o}
				left[k]--
			}
		}
	}
	return t, left
}

// way is a list of options taken, the last first.
type way struct {
	before       *way
	kind, option int
}

// layouts gives the options to the GPUs of their kinds, in order.
func (s *search) layouts(w *way) []uint64 {
	chosen := make([]uint64, len(s.boards))
	left := s.counts()
	for ; w != nil; w = w.before {
		left[w.kind]--
		g := s.kinds[w.kind].gpus[left[w.kind]]
		chosen[g] = s.boards[g].ls.all[s.kinds[w.kind].options[w.option].index].set
	}
	return chosen
}

// state is a number served of each need, and the best way to it.
type state struct {
	served uint64
	// base is the bound without the GPUs still to come, in units of prices.
	base score
	way  *way
}

// walk is one run over all kinds.
type walk struct {
	*search
	width    int
	floor    score
	hasFloor bool
	// cut says that states were left out that could have been better.
	cut  bool
	made int
}

// run returns the best end; nil if none was reached.
func (w *walk) run(start state, left []int) *state {
	from := []state{start}
	for k, n := range left {
		from = w.take(k, n, from)
	}
	var best *state
	for i := range from {
		t := &from[i]
		t.base = w.prices.final(*t)
		if best == nil || t.base.compare(best.base) > 0 {
			best = t
		}
	}
	return best
}

// bucket holds the states with the same number of GPUs left, each number
// served once.
type bucket struct {
	states []state
	at     map[uint64]int
}

// take goes through the options of a kind.
func (w *walk) take(k, n int, from []state) []state {
	buckets := make([]bucket, n+1)
	for i := range buckets {
		buckets[i].at = map[uint64]int{}
	}
	for _, t := range from {
		buckets[n].put(t)
	}
	usable := w.usable(k, n, from)
	for i, o := range usable {
		ahead := w.prices.most(k, usable[i:])
		rest := w.prices.rest[k+1]
		for left := n; left > 0; left-- {
			b := &buckets[left]
			w.narrow(b, ahead.times(int64(left)).plus(rest))
			for _, t := range b.states {
				w.extend(&buckets[left-1], t, k, o, ahead.times(int64(left-1)).plus(rest))
			}
		}
		w.narrow(&buckets[0], rest)
	}
	return buckets[0].states
}

// usable are the options that can be part of a better plan than the known one.
func (w *walk) usable(k, n int, from []state) (usable []int) {
	var best score
	for i, t := range from {
		if i == 0 || t.base.compare(best) > 0 {
			best = t.base
		}
	}
	all := make([]int, len(w.kinds[k].options))
	for i := range all {
		all[i] = i
	}
	others := w.prices.most(k, all).times(int64(n - 1)).plus(w.prices.rest[k+1]).plus(best)
	for _, i := range all {
		if !w.hopeless(others.plus(w.prices.at(k, i))) {
			usable = append(usable, i)
		}
	}
	return usable
}

func (w *walk) hopeless(bound score) bool { return w.hasFloor && bound.compare(w.floor) <= 0 }

// after is the state when one more GPU takes an option; the way is still to be told.
func (s *search) after(t state, k, option int) state {
	o := s.kinds[k].options[option]
	served := t.served + o.add
	for i, n := range o.serves {
		if n > 0 && s.number(t.served, i)+n > s.needs[i].wanted {
			served = s.capped(t.served, o.serves)
			break
		}
	}
	return state{served: served, base: t.base.plus(o.score.times(scale)).plus(s.prices.change(t.served, served))}
}

// extend lets one more GPU take an option.
func (w *walk) extend(to *bucket, t state, k, option int, ahead score) {
	next := w.after(t, k, option)
	if w.hopeless(next.base.plus(ahead)) {
		return
	}
	i, known := to.at[next.served]
	if known && next.base.compare(to.states[i].base) <= 0 {
		return
	}
	next.way = &way{t.way, k, option}
	if !known {
		w.made++
		to.put(next)
	} else {
		to.states[i] = next
	}
}

func (b *bucket) put(t state) {
	b.at[t.served] = len(b.states)
	b.states = append(b.states, t)
}

// narrow drops what has become hopeless, and the worst beyond the width.
func (w *walk) narrow(b *bucket, ahead score) {
	kept := b.states[:0]
	for _, t := range b.states {
		if w.hopeless(t.base.plus(ahead)) {
			delete(b.at, t.served)
		} else {
			kept = append(kept, t)
		}
	}
	width := w.width
	if w.made > proofStates {
		width = min(width, roundWidth)
	}
	if len(kept) == len(b.states) && len(kept) <= width {
		return
	}
	if len(kept) > width {
		w.cut = true
		slices.SortStableFunc(kept, func(a, b state) int { return b.base.compare(a.base) })
		for _, t := range kept[width:] {
			delete(b.at, t.served)
		}
		kept = kept[:width]
	}
	for i, t := range kept {
		b.at[t.served] = i
	}
	b.states = kept
}
