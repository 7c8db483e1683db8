package bench

import (
	"cmp"
	"slices"

	"github.com/gpuslot/gpuslot/gpu"
)

// Spread is a value over repeats.
type Spread struct {
	Min, Median, Max float64
	// N is how many values there were.
	N int
}

// SpreadOf is the spread of values; false for none.
func SpreadOf(values []float64) (Spread, bool) {
	if len(values) == 0 {
		return Spread{}, false
	}
	v := slices.Sorted(slices.Values(values))
	return Spread{Min: v[0], Median: Quantile(v, 0.5), Max: v[len(v)-1], N: len(v)}, true
}

// Quantile of ascending values, between neighbours in proportion; values must
// not be empty.
func Quantile(ascending []float64, q float64) float64 {
	at := q * float64(len(ascending)-1)
	i := min(int(at), len(ascending)-1)
	next := min(i+1, len(ascending)-1)
	part := at - float64(i)
	return ascending[i]*(1-part) + ascending[next]*part
}

// Point is what the repeats of one mode and number of copies came to. Repeats
// in which a copy failed are counted and otherwise left out.
type Point struct {
	Mode    Mode
	Profile string
	Copies  int
	// Repeats are those that count, Failed the others.
	Repeats, Failed int
	// Failure is how the first copy that failed ended.
	Failure string
	// ThreadPercentage is the cap of each copy, if any.
	ThreadPercentage *float64
	// JobSeconds is the run time of all jobs of all repeats, P95 its 95th
	// percentile, Slowest each repeat's slowest job.
	JobSeconds Spread
	P95        float64
	Slowest    Spread
	// PerHour is how many jobs ended in an hour.
	PerHour Spread
	// Joules for each job and Watts, of the whole GPU; nil if not measured.
	Joules, Watts *Spread
	// SMActivity, DRAMActivity and KernelTime as in Run.
	SMActivity, DRAMActivity, KernelTime *Spread
	// JobVRAM is the largest peak of any job, GPUVRAM that of the whole GPU and
	// IdleVRAM the least that it had in use before; nil if not measured.
	JobVRAM, GPUVRAM, IdleVRAM *gpu.MiB
}

// Points sums a result up, in the order of Modes, profiles and copies.
func (r Result) Points() []Point {
	groups := map[key][]Run{}
	for _, run := range r.Runs {
		k := key{run.Mode, run.Copies, run.Profile, 0}
		groups[k] = append(groups[k], run)
	}
	var out []Point
	for _, runs := range groups {
		out = append(out, pointOf(runs))
	}
	slices.SortFunc(out, func(a, b Point) int {
		return cmp.Or(cmp.Compare(slices.Index(Modes(), a.Mode), slices.Index(Modes(), b.Mode)),
			cmp.Compare(a.Profile, b.Profile), cmp.Compare(a.Copies, b.Copies))
	})
	return out
}

func pointOf(runs []Run) Point {
	p := Point{Mode: runs[0].Mode, Profile: runs[0].Profile, Copies: runs[0].Copies,
		ThreadPercentage: runs[0].ThreadPercentage}
	var good []Run
	for _, r := range runs {
		if f := r.Failures(); len(f) > 0 {
			p.Failed++
			p.Failure = cmp.Or(p.Failure, f[0].Failed)
			continue
		}
		good = append(good, r)
	}
	p.Repeats = len(good)
	p.times(good)
	n := float64(p.Copies)
	p.Joules = measured(good, func(r Run) *float64 { return divided(r.Energy, n) })
	p.Watts = measured(good, func(r Run) *float64 { return divided(r.Energy, r.Seconds) })
	p.SMActivity = measured(good, func(r Run) *float64 { return r.SMActivity })
	p.DRAMActivity = measured(good, func(r Run) *float64 { return r.DRAMActivity })
	p.KernelTime = measured(good, func(r Run) *float64 { return r.KernelTime })
	p.memory(good)
	return p
}

func (p *Point) times(good []Run) {
	var each, slowest, perHour []float64
	for _, r := range good {
		var worst float64
		for _, j := range r.Jobs {
			each = append(each, j.Seconds)
			worst = max(worst, j.Seconds)
		}
		slowest = append(slowest, worst)
		perHour = append(perHour, float64(r.Copies)*3600/r.Seconds)
	}
	p.JobSeconds, _ = SpreadOf(each)
	p.Slowest, _ = SpreadOf(slowest)
	p.PerHour, _ = SpreadOf(perHour)
	if len(each) > 0 {
		slices.Sort(each)
		p.P95 = Quantile(each, 0.95)
	}
}

func (p *Point) memory(good []Run) {
	for _, r := range good {
		p.GPUVRAM = larger(p.GPUVRAM, r.PeakVRAM)
		if r.IdleVRAM != nil && (p.IdleVRAM == nil || *r.IdleVRAM < *p.IdleVRAM) {
			p.IdleVRAM = r.IdleVRAM
		}
		for _, j := range r.Jobs {
			p.JobVRAM = larger(p.JobVRAM, j.PeakVRAM)
		}
	}
}

// measured is the spread of what was measured in all runs: one of only some
// repeats would not belong to the throughput of all.
func measured(runs []Run, value func(Run) *float64) *Spread {
	var values []float64
	for _, r := range runs {
		v := value(r)
		if v == nil {
			return nil
		}
		values = append(values, *v)
	}
	if s, ok := SpreadOf(values); ok {
		return &s
	}
	return nil
}

func divided(v *float64, by float64) *float64 {
	if v == nil || by == 0 {
		return nil
	}
	out := *v / by
	return &out
}

func larger(a, b *gpu.MiB) *gpu.MiB {
	if a == nil || b != nil && *b > *a {
		return b
	}
	return a
}

// Ratio is a throughput as a multiple of another: Median of the medians, Min and
// Max the least and the most that their spreads allow; false without both.
func Ratio(of, to Spread) (Spread, bool) {
	if of.N == 0 || to.N == 0 || to.Min <= 0 {
		return Spread{}, false
	}
	return Spread{Min: of.Min / to.Max, Median: of.Median / to.Median, Max: of.Max / to.Min, N: min(of.N, to.N)}, true
}

// Alone is the point that all others are compared with: exclusive, whatever its
// number of copies, because one after the other each takes as long as one.
func Alone(points []Point) (Point, bool) {
	for _, p := range points {
		if p.Mode == Exclusive && p.Repeats > 0 {
			return p, true
		}
	}
	return Point{}, false
}
