package mig

import (
	"math"
	"slices"
)

// The best plan of a node is found by branch and bound. A box is the plans that
// serve numbers in given ranges. The prices of its linear programme bound all
// of them; where the bound does not show that nothing in the box betters the
// best plan known, and walking through it would take too long, the box is split
// on the number served of one need.

// box is a part of the plans, and what is known of it.
type box struct {
	*search
	// low and high are ranges of numbers served, one for each need.
	low, high []int
	// first is how many GPUs have their options already, and which; left are the
	// other GPUs of each kind, and open the options that these may take.
	first *way
	left  []int
	open  [][]int

	lp     *programme
	prices *prices
}

// floor is a score to better; on the levels but flexibility, if so told.
type floor struct {
	score score
	// none: there is no such score yet.
	none bool
	// plan: flexibility does not count.
	plan bool
}

// holds tells whether a bound, in units of prices, does not better the floor.
func (f floor) holds(bound score, scale int64) bool {
	if f.none {
		return false
	}
	if scale == 0 {
		return bound.compare(score{}) < 0
	}
	if f.plan {
		bound[flexibility] = f.score[flexibility] * scale
	}
	return bound.compare(f.score.times(scale)) <= 0
}

// certainty is whether no plan is better, on all levels but flexibility and on
// all.
type certainty struct{ plan, flexibility bool }

// flexibility is the last level of a score.
const flexibility = len(score{}) - 1

// How much is searched. Hard demands on 16 GPUs take some hundreds of boxes, one
// in thousands takes some thousand; a walk is worth less than a split where it does
// not end soon. Many plans that differ in flexibility alone would take long to tell
// apart: it is given up first.
const (
	roundWidth = 48
	boxStates  = 200
	lastStates = 20_000
	flexBoxes  = 48
	planBoxes  = 100_000
)

// branching is a run of the search.
type branching struct {
	*search
	best  *state
	sure  certainty
	boxes int
}

// best returns the set of places for each GPU, and how sure it is.
func (s *search) best() (chosen []uint64, sure certainty) {
	b := &branching{search: s, sure: certainty{true, true}}
	root := s.root()
	b.visit(root)
	if w, ok := root.lowest(b.best.total); ok {
		b.best.way = w
	}
	return s.layouts(b.best.way), b.sure
}

// root is the box of all plans.
func (s *search) root() *box {
	b := &box{search: s, lp: newProgramme(s), low: make([]int, len(s.needs))}
	for _, n := range s.needs {
		b.high = append(b.high, n.wanted)
	}
	b.left = s.counts()
	for _, k := range s.kinds {
		all := make([]int, len(k.options))
		for i := range all {
			all[i] = i
		}
		b.open = append(b.open, all)
	}
	b.lp.optimise()
	b.prices = b.lp.optimal(b)
	return b
}

// start is the state before the GPUs that are left.
func (x *box) start() state { return x.along(x.first) }

func (x *box) along(w *way) state {
	if w == nil {
		return state{base: x.prices.base(0)}
	}
	return x.take(x.along(w.before), w.kind, w.option)
}

// bound is the most, in units of prices, that any plan in the box scores.
func (x *box) bound() score { return x.start().base.plus(x.prices.rest[0]) }

func (b *branching) floor() floor {
	if b.best == nil {
		return floor{none: true}
	}
	return floor{score: b.best.total, plan: !b.sure.flexibility}
}

// visit searches a box.
func (b *branching) visit(x *box) {
	if b.boxes++; b.boxes > flexBoxes {
		b.sure.flexibility = false
	}
	if b.boxes > planBoxes {
		b.giveUp(x)
		return
	}
	if b.tighten(x) {
		return
	}
	if b.walk(x, x.start(), x.left, boxStates, boxStates) {
		return
	}
	parts := x.split()
	for _, y := range parts {
		b.visit(y)
	}
	if len(parts) == 0 && !b.walk(x, x.start(), x.left, lastStates, lastStates) {
		b.giveUp(x)
	}
}

// giveUp leaves a box off: its bound may still show that it betters nothing but
// flexibility.
func (b *branching) giveUp(x *box) {
	b.sure.flexibility = false
	if !b.floor().holds(x.bound(), x.prices.scale) {
		b.sure.plan = false
	}
}

// walk goes through a box; false if that was left off.
func (b *branching) walk(x *box, from state, left []int, width, most int) bool {
	w := &walk{box: x, width: width, most: most, floor: b.floor()}
	if t := w.run(from, left); t != nil && (b.best == nil || t.total.compare(b.best.total) > 0) {
		b.best = t
	}
	return !w.cut
}

// tighten rounds the programme's solution to a plan. Where the bound promises a
// fraction more on the first level that differs, the programme is held to the
// whole number below and asked again: no better plan is lost, since a plan that
// is better equals the best known on the levels before. True if nothing in the
// box is better.
func (b *branching) tighten(x *box) bool {
	for range maxCuts {
		if b.floor().holds(x.bound(), x.prices.scale) {
			return true
		}
		if x.prices.scale == 0 {
			return false
		}
		t, left := x.rounded(x.lp.taken(x.search))
		b.walk(x, t, left, roundWidth, math.MaxInt)
		level, most, ok := x.excess(b.best.total)
		if !ok {
			break
		}
		x.reckon(x.lp.cut(level, most))
	}
	return b.floor().holds(x.bound(), x.prices.scale)
}

// maxCuts bounds the cuts of one box.
const maxCuts = 4 * len(score{})

// reckon sets the prices anew. Where the programme cannot keep a row, prices
// must show in whole numbers that nothing can; otherwise it was rounding.
func (x *box) reckon(refuted int) {
	if refuted >= 0 {
		if x.prices = x.lp.refuting(x, refuted); (floor{}).holds(x.bound(), 0) {
			return
		}
	}
	x.prices = x.lp.optimal(x)
}

// excess is the first level on which the bound promises a fraction more than a
// plan has, and the whole number below.
func (x *box) excess(plan score) (level int, most int64, ok bool) {
	bound, scale := x.bound(), x.prices.scale
	for level, have := range plan {
		if bound[level] == have*scale {
			continue
		}
		most := bound[level] / scale
		if most*scale > bound[level] {
			most--
		}
		return level, most, most*scale != bound[level] && bound[level] > have*scale
	}
	return 0, 0, false
}

// split is the box in parts: by the number served that is least whole in the
// programme's solution, or else by the number of GPUs that take one option. It
// is none where rounding left a solution that says nothing.
func (x *box) split() []*box {
	if need, n := x.lp.unevenServed(x.search); need >= 0 && x.low[need] < x.high[need] {
		n = min(max(n, x.low[need]), x.high[need]-1)
		return []*box{x.atLeast(need, n+1), x.atMost(need, n)}
	}
	kind, option, n := x.lp.unevenTaken(x.search)
	if kind < 0 || !slices.Contains(x.open[kind], option) {
		return nil
	}
	var parts []*box
	had := 0
	for w := x.first; w != nil; w = w.before {
		if w.kind == kind && w.option == option {
			had++
		}
	}
	for more := min(n+1-had, x.left[kind]); more >= 0; more-- {
		parts = append(parts, x.taking(kind, option, had, more, more == n+1-had))
	}
	return parts
}

func (x *box) atLeast(need, n int) *box {
	y := x.clone()
	y.low = slices.Clone(x.low)
	y.low[need] = n
	y.reckon(y.lp.hold(y.lp.serving(need), n, true))
	return y
}

func (x *box) atMost(need, n int) *box {
	y := x.clone()
	y.high = slices.Clone(x.high)
	y.high[need] = n
	y.reckon(y.lp.hold(y.lp.serving(need), n, false))
	return y
}

// taking lets so many more GPUs take an option, and no others, or others as well.
func (x *box) taking(kind, option, had, more int, others bool) *box {
	y := x.clone()
	y.left = slices.Clone(x.left)
	y.left[kind] -= more
	for range more {
		y.first = &way{y.first, kind, option}
	}
	columns := y.lp.taking(x.search, kind, option)
	refuted := y.lp.hold(columns, had+more, true)
	if !others {
		y.open = slices.Clone(x.open)
		y.open[kind] = slices.DeleteFunc(slices.Clone(x.open[kind]), func(o int) bool { return o == option })
		if refuted < 0 {
			refuted = y.lp.hold(columns, had+more, false)
		}
	}
	y.reckon(refuted)
	return y
}

func (x *box) clone() *box {
	y := *x
	y.lp = x.lp.clone()
	return &y
}
