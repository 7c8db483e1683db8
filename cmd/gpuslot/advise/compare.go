package advise

import (
	"math"
	"time"
)

// Period is a class, or all, before the change or after it.
type Period struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	Jobs int       `json:"jobs"`
	// PerGPUDay are jobs by the day of a reserved GPU.
	PerGPUDay Range `json:"jobs_per_gpu_day,omitzero"`
	// Minutes is the run time, GPUHours what a job reserved, UsedPart how much of it
	// the multiprocessors were busy.
	Minutes  Range `json:"run_minutes,omitzero"`
	GPUHours Range `json:"reserved_gpu_hours_per_job,omitzero"`
	UsedPart Range `json:"used_part,omitzero"`
	KWh      Range `json:"kwh_per_job,omitzero"`
	// Limited needed more VRAM than they had, Held were held for another reason.
	Limited int `json:"jobs_over_their_limit"`
	Held    int `json:"jobs_held"`
}

// Comparison is a period before the change beside one after it. Each factor is
// after divided by before, with 95 % bounds: 2 jobs per GPU-day are twice as many.
type Comparison struct {
	Before    Period `json:"before"`
	After     Period `json:"after"`
	PerGPUDay Range  `json:"jobs_per_gpu_day_factor,omitzero"`
	Minutes   Range  `json:"run_time_factor,omitzero"`
	KWh       Range  `json:"kwh_per_job_factor,omitzero"`
	// Enough: both have the jobs that a factor needs.
	Enough bool `json:"enough_data"`
}

// fewestCompared is how many jobs each side needs: the bounds take means of them
// for normal.
const fewestCompared = 10

// compared is nil where one side is empty.
func (s *spans) compared(gpus int) *Comparison {
	b, a := &s.before, &s.after
	if b.records == 0 || a.records == 0 {
		return nil
	}
	c := Comparison{Before: b.period(gpus), After: a.period(gpus)}
	if b.records < fewestCompared || a.records < fewestCompared {
		return &c
	}
	c.Enough = true
	c.PerGPUDay = factor(b.reserved, a.reserved, -1)
	c.Minutes = factor(b.seconds, a.seconds, 1)
	c.KWh = factor(b.joules, a.joules, 1)
	return &c
}

func (t *tally) period(gpus int) Period {
	p := Period{From: stamp(t.first), To: stamp(t.last), Jobs: int(math.Round(t.jobs)), Limited: t.limited, Held: t.held}
	n := float64(gpus)
	p.PerGPUDay = inverse(t.reserved, secondsPerDay/n)
	p.Minutes, p.GPUHours, p.KWh = scaled(t.seconds, 1.0/60), scaled(t.reserved, n/3600), scaled(t.joules, n/joulesPerKWh)
	p.UsedPart = boundsOf(t.usedLeast, t.used, t.usedMost)
	return p
}

// stamp is a time as the advice prints it.
func stamp(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// boundsOf joins what is certain with the doubt of a sample.
func boundsOf(least, middle, most ratio) Range {
	var r Range
	if low, _, _, ok := least.interval(); ok {
		r.Low = digits(low)
	}
	if v, ok := middle.value(); ok {
		r.Expected = digits(v)
	}
	if _, _, high, ok := most.interval(); ok {
		r.High = digits(high)
	}
	return r
}

// factor is after by before, or its inverse, with bounds on the scale of
// logarithms (delta method).
func factor(before, after ratio, power float64) Range {
	b, okB := before.value()
	a, okA := after.value()
	if !okB || !okA || b <= 0 || a <= 0 || before.n < fewestCompared || after.n < fewestCompared {
		return Range{}
	}
	middle := power * math.Log(a/b)
	d := twoSided * math.Hypot(before.deviation()/b, after.deviation()/a)
	return rangeOf(math.Exp(middle-d), math.Exp(middle), math.Exp(middle+d))
}

// Verdict is what a class's present request is worth.
type Verdict string

// The verdicts.
const (
	TooSmall  Verdict = "too small"
	TooLarge  Verdict = "too large"
	JustRight Verdict = "fits"
	NoRequest Verdict = "none"
	NotKnown  Verdict = "not enough data"
)

// generous is how much larger than recommended a request may be.
const generous = 1.25

// verdict on the last request. It is too small only if that is certain.
func verdict(asked int64, r Request, d needs, risk float64) Verdict {
	switch {
	case asked == noRequest:
		return NoRequest
	case d.n >= fewestCompared && lowerLimit(d.above(mib(asked)), d.n, 1-Confidence) > risk:
		return TooSmall
	case r.MiB == 0:
		return NotKnown
	case float64(asked) > generous*float64(r.MiB) && asked-r.MiB >= 2*int64(d.quantum):
		return TooLarge
	case asked < r.MiB && float64(d.above(mib(asked))) > risk*float64(d.n):
		return NotKnown // it looks too small, and could be chance
	}
	return JustRight
}
