package mig

import "slices"

// A walk over a box takes the kinds of GPUs one after another, and each kind's
// options in order: how many GPUs take the first, how many the second, and so
// on. For each number served and number of GPUs left it keeps the best way
// there. The bound from prices (prices.go) leaves out what cannot end better
// than a plan already known.

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
func (x *box) rounded(taken [][]int) (t state, left []int) {
	t, left = x.along(nil), x.counts()
	for k, options := range taken {
		for o, n := range options {
			for range min(n, left[k]) {
				t = x.take(t, k, o)
				left[k]--
			}
		}
	}
	return t, left
}

// take is the state when one more GPU takes an option.
func (x *box) take(t state, k, option int) state {
	next := x.after(t, k, option)
	next.way = &way{t.way, k, option}
	return next
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
	*box
	// width is the number of states kept at a time, most that of states made.
	width, most int
	// floor is what to better.
	floor floor
	// cut says that states were left out that could have been better.
	cut  bool
	made int
}

// run returns the best end; nil if none was reached.
func (w *walk) run(start state, left []int) *state {
	from := []state{start}
	for k, n := range left {
		if from = w.options(k, n, from); w.made > w.most {
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
func (x *box) total(t state) score {
	v := t.local
	for i, n := range x.needs {
		v = v.plus(n.values[x.number(t.served, i)])
	}
	return v
}

// bucket holds the states with the same number of GPUs left, each number
// served once.
type bucket struct {
	states []state
	at     map[uint64]int
}

// options goes through the options of a kind.
func (w *walk) options(k, n int, from []state) []state {
	buckets := make([]bucket, n+1)
	for i := range buckets {
		buckets[i].at = map[uint64]int{}
	}
	for _, t := range from {
		buckets[n].put(t)
	}
	usable := w.usable(k, n, from)
	for i, o := range usable {
		if w.made > w.most {
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
	others := w.prices.most(k, w.open[k]).times(int64(n - 1)).plus(w.prices.rest[k+1]).plus(best)
	for _, i := range w.open[k] {
		if !w.hopeless(others.plus(w.prices.at(k, i))) {
			usable = append(usable, i)
		}
	}
	return usable
}

func (w *walk) hopeless(bound score) bool { return w.floor.holds(bound, w.prices.scale) }

// after is the state when one more GPU takes an option; the way is still to be told.
func (x *box) after(t state, k, option int) state {
	o := x.kinds[k].options[option]
	served := t.served + o.add
	for i, n := range o.serves {
		if n > 0 && x.number(t.served, i)+n > x.high[i] {
			served = x.capped(t.served, o.serves)
			break
		}
	}
	return state{served: served, local: t.local.plus(o.score), base: t.base.plus(x.prices.less(o.score)).plus(x.prices.change(t.served, served))}
}

// capped adds; more than wanted is of no use.
func (x *box) capped(sum uint64, more []int) (out uint64) {
	for k, most := range x.high {
		out += uint64(min(x.number(sum, k)+more[k], most)) * x.strides[k]
	}
	return out
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
