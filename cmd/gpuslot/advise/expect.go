package advise

import (
	"math"
	"slices"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/sharing"
)

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
)

// gains are how many jobs end where one ended before: in the worst of sharing's cases with
// the most activity, as expected, and in the best case with the least activity.
type gains struct{ low, expected, high float64 }

// gain of a mode, from what one job alone keeps busy.
func gain(m Mode, f Fit, a activities, r Request) (gains, bool) {
	var takes func(c sharing.Case, sms, bandwidth float64) float64
	n := float64(m.Jobs)
	switch m.Kind {
	case Whole:
		return gains{1, 1, 1}, true
	case MPS, TimeSlice:
		takes = func(c sharing.Case, sms, bandwidth float64) float64 {
			kernel := max(sms, bandwidth)
			if m.Kind == TimeSlice && c == sharing.Worst {
				kernel = 1 // small kernels leave multiprocessors idle and keep the others waiting
			}
			parts := slices.Repeat([]sharing.Part{{Host: 1 - kernel, Kernel: kernel, SMs: sms, Bandwidth: bandwidth}}, m.Jobs)
			return (1-kernel)*c.Host(n*f.cpus, threadsPerCore) + kernel*c.Contention(parts, m.Kind == TimeSlice)
		}
	case MIG:
		takes = func(c sharing.Case, sms, bandwidth float64) float64 {
			return c.OnDevice(sms, bandwidth, f.MIG.sms, f.MIG.bandwidth, c.Host(n*f.cpus, threadsPerCore))
		}
	default:
		return gains{}, false
	}
	again := 1 + r.Seen // who needs more runs again, or is lost
	of := func(c sharing.Case, sms, dram *float64) float64 {
		return n / takes(c, part(sms, 1), part(dram, sharing.MostTraffic)) / again
	}
	traffic := a.dram.High
	if traffic == nil {
		traffic = a.sm.High // the memory interface is not busier than the multiprocessors
	}
	return gains{
		low:      of(sharing.Worst, a.sm.High, traffic),
		expected: of(sharing.Expected, a.sm.atBest(), a.dram.atBest()),
		high:     of(sharing.Best, a.sm.Low, a.dram.Low),
	}, true
}

// threadsPerCore is how many CPUs of a node are taken for one core.
const threadsPerCore = 2

// part is an activity by the most that there is, 0 where it is not known.
func part(activity *float64, most float64) float64 {
	if activity == nil {
		return 0
	}
	return min(1, *activity/most)
}

// measured takes what sharing has slowed the jobs down already, where that was seen: what
// happened is never below the lower bound.
func (g gains) measured(c *class, n float64) gains {
	if c.before.records < fewest || c.after.records < fewest {
		return g
	}
	alone, okAlone := c.before.seconds.value()
	beside, ok := c.after.seconds.value()
	if okAlone && ok && beside > alone && alone > 0 {
		g.expected = min(g.expected, n*alone/beside)
		g.low = min(g.low, g.expected)
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
