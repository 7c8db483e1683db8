package mig

// lowestSteps bounds the search for the lowest among equally good plans.
const lowestSteps = 20_000

// lowest finds, among the plans of a known best score, the one whose GPUs take
// the lowest options first. It tries options in order, as many GPUs as possible
// taking the first, and leaves a branch when the bound says that the score
// cannot be reached. Not ok if that takes too long: then any plan of the score
// will do.
type lowest struct {
	*box
	score  score
	bound  score // score in units of prices
	usable [][]int
	// ahead is, for each kind and usable option, the most that it and later ones gain.
	ahead  [][]score
	failed map[point]score
	steps  int
}

// point is where the search stands: kind, option, GPUs left, served.
type point struct {
	kind, option, left int
	served             uint64
}

func (x *box) lowest(best score) (*way, bool) {
	l := &lowest{box: x, score: best, failed: map[point]score{}, bound: best.times(x.prices.scale)}
	for k := range x.kinds {
		l.admit(k, x.bound())
	}
	if len(x.kinds) == 0 {
		return nil, true
	}
	return l.find(point{left: len(x.kinds[0].gpus)}, x.start())
}

// admit lists the options of a kind that one GPU can take without losing the
// score: all GPUs together gain bound at most.
func (l *lowest) admit(k int, bound score) {
	most := l.prices.most(k, l.open[k])
	var usable []int
	for o, gain := range l.prices.gain[k] {
		if bound.plus(gain).plus(most.times(-1)).compare(l.bound) >= 0 {
			usable = append(usable, o)
		}
	}
	ahead := make([]score, len(usable))
	for i := range usable {
		ahead[i] = l.prices.most(k, usable[i:])
	}
	l.usable, l.ahead = append(l.usable, usable), append(l.ahead, ahead)
}

// find goes on from a state; it calls itself once for each GPU and option at most.
func (l *lowest) find(at point, t state) (*way, bool) {
	if at.left == 0 {
		at = point{kind: at.kind + 1}
		if at.kind == len(l.kinds) {
			return t.way, l.total(t).compare(l.score) >= 0
		}
		at.left = len(l.kinds[at.kind].gpus)
	}
	if at.option == len(l.usable[at.kind]) || l.hopeless(at, t) {
		return nil, false
	}
	o := l.usable[at.kind][at.option]
	more := l.after(t, at.kind, o)
	more.way = &way{t.way, at.kind, o}
	fewer := at
	fewer.left--
	if w, ok := l.find(fewer, more); ok {
		return w, true
	}
	next := at
	next.option++
	if w, ok := l.find(next, t); ok {
		return w, true
	}
	at.served = t.served
	l.failed[at] = t.local
	return nil, false
}

// hopeless tells whether the score cannot be reached from here, or was not
// before, or the search has taken too long.
func (l *lowest) hopeless(at point, t state) bool {
	l.steps++
	bound := t.base.plus(l.ahead[at.kind][at.option].times(int64(at.left))).plus(l.prices.rest[at.kind+1])
	at.served = t.served
	before, known := l.failed[at]
	return l.steps > lowestSteps || bound.compare(l.bound) < 0 || known && t.local.compare(before) <= 0
}
