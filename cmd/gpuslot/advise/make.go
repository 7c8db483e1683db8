package advise

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/gpuslot/gpuslot/gpu"
)

// Advise makes the advice of what was added so far.
func (b *Adviser) Advise() Advice {
	a := Advice{
		Schema: Schema, Records: b.records, Twice: b.twice, Early: b.early, Nodes: len(b.nodes), Newest: stamp(b.newest),
		Risk: b.options.Risk, Confidence: Confidence, Users: []User{}, Groups: []Group{}, Classes: []*Class{},
		Settings: []Setting{},
	}
	clear(b.offers)
	for _, m := range b.models {
		m.settle()
	}
	g := growth{b.options.Config.Growth.Retries}
	users, groups := map[string]*tally{}, map[string]*tally{}
	var all spans
	for key, f := range b.families {
		for _, c := range f.classes(key, g, b.options.Config.RequestVRAM.Quantum) {
			a.Classes = append(a.Classes, b.class(&c, g))
			all.merge(&c.spans)
			mergeInto(users, key.User, c.all())
			mergeInto(groups, key.Group, c.all())
		}
	}
	slices.SortFunc(a.Classes, func(x, y *Class) int {
		return cmp.Or(cmp.Compare(y.reserved, x.reserved), compareKeys(x.Key, y.Key), slices.Compare(x.Asked, y.Asked))
	})
	for u, t := range users {
		a.Users = append(a.Users, User{u, int(math.Round(t.jobs)), t.hours()})
	}
	for g, t := range groups {
		a.Groups = append(a.Groups, Group{g, int(math.Round(t.jobs)), t.hours()})
	}
	slices.SortFunc(a.Users, func(x, y User) int {
		return cmp.Or(cmp.Compare(y.Reserved, x.Reserved), cmp.Compare(x.User, y.User))
	})
	slices.SortFunc(a.Groups, func(x, y Group) int {
		return cmp.Or(cmp.Compare(y.Reserved, x.Reserved), cmp.Compare(x.Group, y.Group))
	})
	a.From, a.To = stamp(b.from), stamp(b.to)
	a.settle(b)
	a.Comparison = all.compared(1)
	b.date(&a)
	b.note(&a)
	return a
}

func mergeInto(sums map[string]*tally, name string, t *tally) {
	if sums[name] == nil {
		sums[name] = &tally{}
	}
	sums[name].merge(t)
}

func compareKeys(a, b Key) int {
	return cmp.Or(cmp.Compare(a.User, b.User), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Program, b.Program),
		cmp.Compare(a.Batch, b.Batch), cmp.Compare(a.GPUs, b.GPUs))
}

// settle adds the lines of each model.
func (a *Advice) settle(b *Adviser) {
	for _, name := range slices.Sorted(maps.Keys(b.models)) {
		m := b.models[name]
		n, _ := m.count()
		a.GPUs += n
		var of []*Class
		for _, c := range a.Classes {
			if c.model == name {
				of = append(of, c)
			}
		}
		if len(of) > 0 {
			a.Settings = append(a.Settings, b.setting(m, of))
		}
	}
}

// date says when the change was.
func (b *Adviser) date(a *Advice) {
	if a.Comparison != nil {
		when := stamp(b.changed())
		a.Changed, a.ChangedBy = &when, "mode"
		if !b.options.Changed.IsZero() {
			a.ChangedBy = "date"
		}
	}
}

// class advises on one.
func (b *Adviser) class(c *class, g growth) *Class {
	r, all := b.options.Config.RequestVRAM, c.all()
	c.from, c.to, c.changed = b.from, b.to, b.changed()
	out := &Class{Key: c.key, Jobs: int(math.Round(all.jobs)), Grown: c.grown, Hours: all.hours(),
		Minutes: scaled(all.seconds, 1.0/60), Curve: all.curves.typical()}
	for _, asked := range c.asked {
		out.Asked = append(out.Asked, max(0, asked))
	}
	out.reserved = all.reserved.s / 3600
	base := c.base()
	out.SM, out.MemoryTraffic = activityOf(base), plainOf(base.dram)
	d := needsOf(all, r.Quantum, r.Minimum)
	out.shape(d)
	out.model = mostUsed(all.models)
	m := b.models[out.model]
	pool, largest := gpu.MiB(1), gpu.MiB(math.MaxInt32)
	as, err := b.offer(m, 0)
	if err == nil {
		pool, largest = as.Pool, as.LargestRequest
	}
	act := activities{out.SM, out.MemoryTraffic}
	out.Request = d.recommend(b.options.Risk, g, pool, largest)
	isolation := false
	if err == nil {
		f, err := b.fit(c, out.Request, d, act, m)
		if err == nil {
			out.Fit = &f
		}
		isolation = b.options.Config.For("", m.card).Isolation
	}
	if out.Fit == nil {
		out.Mode = Mode{Kind: Unknown, Contention: unknown, Why: []string{whyNoFit(err)}}
	} else {
		out.Mode = decide(c.key, out.Request, *out.Fit, act, isolation, b.options.shared(m))
		out.Expect = expect(c, out.Mode, *out.Fit, act, out.Request, m.power)
	}
	out.Verdict = verdict(c.asked[len(c.asked)-1], out.Request, d, b.options.Risk)
	out.Submit = submitLines(c.key, out.Request, out.Mode)
	out.Comparison = c.compared(c.key.GPUs)
	out.note(all, d, m)
	return out
}

// activityOf: the bounds of the attribution and the doubt of the sample.
func activityOf(t *tally) Range {
	if t.smMost.n < fewest {
		return Range{}
	}
	r := boundsOf(t.smLeast, t.sm, t.smMost)
	// Idle time bounds it too.
	if low, _, _, ok := t.idle.interval(); ok && t.idle.n >= fewest && r.High != nil && 1-low < *r.High &&
		(r.Expected == nil || 1-low > *r.Expected) {
		r.High = digits(1 - low)
	}
	return r
}

func plainOf(r ratio) Range {
	low, v, high, ok := r.interval()
	if !ok || r.n < fewest {
		return Range{}
	}
	return rangeOf(low, v, high)
}

func mostUsed(models map[string]int) string {
	best := ""
	for _, m := range slices.Sorted(maps.Keys(models)) {
		if m != "" && (best == "" || models[m] > models[best]) {
			best = m
		}
	}
	return best
}

func (t *tally) hours() Hours {
	h := Hours{Reserved: round3(t.reserved.s / 3600)}
	if t.usedMost.n == 0 {
		h.Unknown = h.Reserved
		return h
	}
	hour := func(s float64) *float64 { v := round3(max(0, s) / 3600); return &v }
	h.Unknown = *hour(t.reserved.s - t.usedMost.t)
	h.Used.High, h.Unused.Low = hour(t.usedMost.s), hour(t.usedMost.t-t.usedMost.s)
	if t.usedLeast.n > 0 {
		h.Used.Low, h.Unused.High = hour(t.usedLeast.s), hour(t.usedLeast.t-t.usedLeast.s)
	}
	if t.used.n > 0 {
		h.Used.Expected, h.Unused.Expected = hour(t.used.s), hour(t.used.t-t.used.s)
	}
	return h
}

// shape describes the distribution.
func (c *Class) shape(d needs) {
	c.StepMiB = int64(d.quantum)
	for i, b := range d.budgets {
		c.Peaks = append(c.Peaks, Peak{int64(b) * int64(d.quantum), d.counts[i]})
	}
	if m, ok := d.quantile(0.5); ok {
		l, _ := d.quantile(1)
		c.MedianMiB, c.LargestMiB = int64(m), int64(l)
	}
}

func mib(m int64) gpu.MiB { return gpu.MiB(m) }
