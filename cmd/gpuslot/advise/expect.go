package advise

import "math"

// Expect is what a class's jobs bring now, and after the advice was followed.
type Expect struct {
	// JobsPerDay are the recorded jobs by the days of all records. It, PerGPUNow and KWhNow
	// are of the jobs since the change where there was one.
	JobsPerDay *float64 `json:"jobs_per_day,omitempty"`
	// PerGPUNow and PerGPUAfter are jobs in a day of a GPU that has no jobs of
	// another class; of a class with several GPUs a job counts on each as its part.
	PerGPUNow   Range `json:"jobs_per_gpu_day_now,omitzero"`
	PerGPUAfter Range `json:"jobs_per_gpu_day_after,omitzero"`
	// KWhNow and KWhAfter are by job. Without what a GPU draws idle there is no
	// expected value after, but bounds.
	KWhNow   Range `json:"kwh_per_job_now,omitzero"`
	KWhAfter Range `json:"kwh_per_job_after,omitzero"`
	// Saved are the reserved GPU-hours that the same jobs would not need, a day.
	Saved Range `json:"gpu_hours_saved_per_day,omitzero"`
}

const (
	secondsPerDay = 86400
	joulesPerKWh  = 3.6e6
	// mpsLoss and migLoss are the worst that the sources measured: 30 % under
	// contention through MPS (arXiv 2604.22430), 9 % by MIG mode (CERN, 2023).
	mpsLoss = 0.30
	migLoss = 0.09
)

// gains are how many jobs end where one ended before, at the least, expected, and
// at most.
type gains struct{ low, expected, high float64 }

// gain of a mode, from what one job alone keeps busy: nothing is busy more than
// all the time.
func gain(m Mode, f Fit, a activities, r Request) (gains, bool) {
	n := float64(m.Jobs)
	again := 1 + r.Seen // who needs more runs again, or is lost
	switch m.Kind {
	case Whole:
		return gains{1, 1, 1}, true
	case MPS:
		room := func(sm, dram *float64) float64 {
			out := n
			if sm != nil && *sm > 0 {
				out = min(out, 1 / *sm)
			}
			if dram != nil && *dram > 0 {
				out = min(out, mostTraffic / *dram)
			}
			return max(1, out) / again
		}
		low := (1 - mpsLoss) * room(a.sm.High, a.dram.High)
		return gains{low, room(a.sm.atBest(), a.dram.atBest()), room(a.sm.Low, a.dram.Low)}, true
	case MIG:
		// At worst its work needs all multiprocessors while it needs any.
		slow := func(busy *float64) float64 {
			if busy == nil {
				return 1 / f.MIG.Part
			}
			b := min(1, *busy)
			return 1 - b + b/f.MIG.Part
		}
		expected := n / slow(a.sm.atBest()) / again
		return gains{(1 - migLoss) * n / slow(a.sm.High) / again, expected, n / again}, true
	}
	return gains{}, false
}

// measured takes what sharing has slowed the jobs down already, where that was seen.
func (g gains) measured(c *class, n float64) gains {
	if c.before.records < fewest || c.after.records < fewest {
		return g
	}
	alone, okAlone := c.before.seconds.value()
	beside, ok := c.after.seconds.value()
	if okAlone && ok && beside > alone && alone > 0 {
		g.expected = max(g.low, min(g.expected, n*alone/beside))
	}
	return g
}

// expect looks ahead. The base are jobs that had a GPU to themselves, where there
// are enough; else all.
func expect(c *class, m Mode, f Fit, a activities, r Request, idle regression) Expect {
	now, base := c.now(), c.base()
	var out Expect
	if days := c.days(); days >= 1 {
		out.JobsPerDay = digits(now.jobs / days)
	}
	perJob := float64(c.key.GPUs)
	out.PerGPUNow = inverse(now.reserved, secondsPerDay/perJob)
	out.KWhNow = scaled(now.joules, perJob/joulesPerKWh)
	g, ok := gain(m, f, a, r)
	seconds, isKnown := base.seconds.value()
	if !ok || !isKnown || seconds <= 0 || base.records < fewest {
		return out
	}
	g = g.measured(c, float64(m.Jobs))
	perDay := secondsPerDay / seconds / perJob
	out.PerGPUAfter = rangeOf(g.low*perDay, g.expected*perDay, g.high*perDay)
	out.KWhAfter = energyAfter(base, g, perJob, idle)
	if kept, ok := now.reserved.value(); ok && out.JobsPerDay != nil {
		hours := func(g float64) float64 { return *out.JobsPerDay * perJob * (kept - seconds/g) / 3600 }
		out.Saved = rangeOf(hours(g.low), hours(g.expected), hours(g.high))
	}
	return out
}

// now are the jobs since the change, where there are enough; else all.
func (c *class) now() *tally {
	if c.after.records >= fewest {
		return &c.after
	}
	return c.all()
}

// days is how long the records are of which now is a part.
func (c *class) days() float64 {
	from := c.from
	if c.after.records >= fewest {
		from = maxTime(from, c.changed)
	}
	return c.to.Sub(from).Seconds() / secondsPerDay
}

// base are the jobs that show what one alone does.
func (c *class) base() *tally {
	if c.before.records >= fewest || c.after.records == 0 {
		return &c.before
	}
	return c.all()
}

// energyAfter: the part that work takes stays, the idle part is divided. If all
// were idle power it would shrink by the gain, if none nothing would be saved.
func energyAfter(t *tally, g gains, perJob float64, idle regression) Range {
	low, e, high, ok := t.joules.interval()
	if !ok || t.joules.n < fewest {
		return Range{}
	}
	unit := perJob / joulesPerKWh
	out := Range{Low: digits(low / max(1, g.high) * unit), High: digits(high / min(1, g.low) * unit)}
	seconds, _ := t.seconds.value()
	if watts, ok := idle.idle(); ok {
		rest := min(e, watts*seconds)
		out.Expected = digits((e - rest + rest/g.expected) * unit)
	}
	return out
}

// scaled is a mean in another unit.
func scaled(r ratio, unit float64) Range {
	low, v, high, ok := r.interval()
	if !ok {
		return Range{}
	}
	return rangeOf(low*unit, v*unit, high*unit)
}

// inverse is a number by a mean.
func inverse(r ratio, of float64) Range {
	low, v, high, ok := r.interval()
	if !ok || v <= 0 {
		return Range{}
	}
	top := math.Inf(1)
	if low > 0 {
		top = of / low
	}
	return rangeOf(of/high, of/v, top)
}
