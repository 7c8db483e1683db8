package mig

import (
	"math"
	"slices"
)

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
	proofStates = 8_000
)

// best returns the set of places for each GPU, and how sure it is.
func (s *search) best() (chosen []uint64, sure certainty) {
	end := s.firstPlan()
	bound := s.start().base.plus(s.prices.rest[0])
	proof := &walk{search: s, width: proofStates, floor: end.total.times(scale), hasFloor: true}
	if better := proof.run(s.start(), s.counts()); better != nil && better.total.compare(end.total) > 0 {
		end = better
	}
	sure.flexibility = !proof.cut
	bound[flexibility] = end.total[flexibility] * scale
	sure.plan = sure.flexibility || bound.compare(end.total.times(scale)) <= 0
	if w, ok := s.lowest(s.start(), end.total); ok {
		end.way = w
	}
	return s.layouts(end.way), sure
}

// certainty is whether no plan is better, on all levels but flexibility and on
// all.
type certainty struct{ plan, flexibility bool }

// flexibility is the last level of a score.
const flexibility = len(score{}) - 1

func (s *search) start() state { return state{base: s.prices.base(0)} }

// firstPlan rounds the linear programme's solution. Where the programme
// promises a fraction more on the first level that differs, it is held to the whole number
// below and asked again: no better plan is lost, since a plan that is better
// equals this one on the levels before.
func (s *search) firstPlan() *state {
	lp := newProgramme(s)
	lp.optimise()
	var end *state
	for range 4 * len(score{}) {
		s.prices = newPrices(s, lp)
		round := &walk{search: s, width: roundWidth}
		if t := round.run(round.rounded()); end == nil || t.total.compare(end.total) > 0 {
			end = t
		}
		if !lp.tighten(end.total) {
			break
		}
	}
	return end
}

// tighten cuts off a fraction on the first level on which the programme
// promises more than a plan; false if there is none.
func (p *programme) tighten(plan score) bool {
	for level, have := range plan {
		promised := p.optimum(level)
		if promised < float64(have)+fraction {
			continue
		}
		most := math.Floor(promised + fraction)
		if promised-most < fraction {
			return false
		}
		p.cut(level, int64(most))
		return true
	}
	return false
}

// fraction is less than what a programme can promise beyond a whole number.
const fraction = 1e-4

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
	t, left = w.start(), w.counts()
	for k, options := range w.prices.taken {
		for o, n := range options {
			for range min(n, left[k]) {
				next := w.after(t, k, o)
				next.way = &way{t.way, k, o}
				t = next
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
	// local is what options add to the score, total the whole score at the end.
	local, total score
	way          *way
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
		if from = w.take(k, n, from); w.hasFloor && w.made > proofStates {
			w.cut = true
			return nil
		}
	}
	var best *state
	for i := range from {
		t := &from[i]
		t.total = w.total(*t)
		if best == nil || t.total.compare(best.total) > 0 {
			best = t
		}
	}
	return best
}

// total is the score of a state to which nothing comes any more.
func (s *search) total(t state) score {
	v := t.local
	for i, n := range s.needs {
		v = v.plus(n.values[s.number(t.served, i)])
	}
	return v
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
		if w.hasFloor && w.made > proofStates {
			return nil
		}
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
	return state{served: served, local: t.local.plus(o.score), base: t.base.plus(s.prices.less(o.score)).plus(s.prices.change(t.served, served))}
}

// extend lets one more GPU take an option.
func (w *walk) extend(to *bucket, t state, k, option int, ahead score) {
	next := w.after(t, k, option)
	if w.hopeless(next.base.plus(ahead)) {
		return
	}
	i, known := to.at[next.served]
	if known && next.local.compare(to.states[i].local) <= 0 {
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
	if len(kept) == len(b.states) && len(kept) <= w.width {
		return
	}
	if len(kept) > w.width {
		w.cut = true
		slices.SortStableFunc(kept, func(a, b state) int { return b.base.compare(a.base) })
		for _, t := range kept[w.width:] {
			delete(b.at, t.served)
		}
		kept = kept[:w.width]
	}
	for i, t := range kept {
		b.at[t.served] = i
	}
	b.states = kept
}
