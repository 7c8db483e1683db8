package simulate

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// Synthetic makes jobs up, by classes: equal seeds give equal jobs.
type Synthetic struct {
	Seed uint64
	// Days is how long jobs come; 0 for those that are all there at the beginning.
	Days    float64
	Classes []Class
}

// Class is one kind of job.
type Class struct {
	Name string
	// Owners is among how many people its jobs are divided; Owner their common name.
	Owner  string
	Owners int
	Group  string
	// PerDay is how many come in a day; Hours weighs the hours of the day, nil for
	// all the same. Jobs is how many come at most; without PerDay all of them at At.
	PerDay float64
	Hours  []float64
	Jobs   int
	At     float64
	// What a job asks for and does.
	GPUs, CPUs            int
	VRAM, Memory          Variation
	Peak                  Variation
	Seconds, Dead         Variation
	Kernel, SM, Bandwidth float64
}

// Variation is how a value differs from job to job: one of several, or around a median
// by a factor (lognormal).
type Variation struct {
	// OneOf are equally likely.
	OneOf []float64
	// Median and Factor: two thirds of the values lie between median/factor and
	// median*factor. Least and Most bound them; 0 for no bound.
	Median, Factor, Least, Most float64
}

func (s Variation) draw(r *rand.Rand) float64 {
	switch {
	case len(s.OneOf) == 1:
		return s.OneOf[0]
	case len(s.OneOf) > 1:
		return s.OneOf[r.IntN(len(s.OneOf))]
	case s.Median == 0:
		return 0
	}
	v := s.Median * math.Exp(r.NormFloat64()*math.Log(max(1, s.Factor)))
	if s.Most > 0 {
		v = min(v, s.Most)
	}
	return max(v, s.Least)
}

// made is the stream of one class.
type made struct {
	Class
	number int
	owners []string
	when   *rand.Rand
	what   *rand.Rand
	next   float64
	came   int
	peak   float64
}

// stream merges the classes by time.
type stream struct {
	made []*made
	end  float64
}

// Jobs is the stream; it never ends before the jobs do.
func (s Synthetic) Jobs() Jobs {
	out := &stream{end: s.Days * 86400}
	for i, c := range s.Classes {
		m := &made{Class: c, number: i, when: rand.New(rand.NewPCG(s.Seed, uint64(2*i))),
			what: rand.New(rand.NewPCG(s.Seed, uint64(2*i+1)))}
		for k := range max(1, c.Owners) {
			name := c.Owner
			if c.Owners > 1 {
				name = fmt.Sprintf("%s%d", c.Owner, k+1)
			}
			m.owners = append(m.owners, name)
		}
		for _, h := range c.Hours {
			m.peak = max(m.peak, h)
		}
		m.next = c.At
		if c.PerDay > 0 {
			m.advance()
		}
		out.made = append(out.made, m)
	}
	return out
}

// Expected is about how many jobs come.
func (s Synthetic) Expected() (n float64) {
	for _, c := range s.Classes {
		switch come := c.PerDay * s.Days; {
		case c.PerDay == 0 || s.Days == 0:
			n += float64(c.Jobs)
		case c.Jobs > 0:
			n += min(come, float64(c.Jobs))
		default:
			n += come
		}
	}
	return n
}

// Next is the earliest job of all classes.
func (s *stream) Next() (Job, error) {
	var first *made
	for _, m := range s.made {
		done := m.Jobs > 0 && m.came >= m.Jobs || m.PerDay > 0 && s.end > 0 && m.next >= s.end || !(m.next < maxSeconds)
		if !done && (first == nil || m.next < first.next) {
			first = m
		}
	}
	if first == nil {
		return Job{}, io.EOF
	}
	return first.take(), nil
}

// take makes the job and finds when the next one comes.
func (m *made) take() Job {
	m.came++
	j := Job{
		Arrival: time.Duration(m.next * 1e9), Owner: m.owners[0], Group: m.Group, GPUs: m.GPUs, CPUs: m.CPUs,
		VRAM: gpu.MiB(m.VRAM.draw(m.what)), Memory: gpu.MiB(m.Memory.draw(m.what)), Peak: gpu.MiB(m.Peak.draw(m.what)),
		Work: Work{Seconds: m.Seconds.draw(m.what), Dead: m.Dead.draw(m.what), Kernel: m.Kernel, SM: m.SM,
			Bandwidth: m.Bandwidth},
	}
	if len(m.owners) > 1 {
		j.Owner = m.owners[m.what.IntN(len(m.owners))]
	}
	j.Name = fmt.Sprintf("%d.%d", m.number+1, m.came-1)
	if m.PerDay > 0 {
		m.advance()
	}
	return j
}

// advance draws the time of the next arrival: a Poisson process at the rate of the
// busiest hour, thinned in the others.
func (m *made) advance() {
	rate := m.PerDay / 86400
	if m.peak == 0 {
		m.next += m.when.ExpFloat64() / rate
		return
	}
	mean := 0.0
	for _, h := range m.Hours {
		mean += h / float64(len(m.Hours))
	}
	for m.next < maxSeconds {
		m.next += m.when.ExpFloat64() / (rate * m.peak / mean)
		if !(m.next < maxSeconds) {
			return
		}
		hour := int(math.Mod(m.next/3600, 24)) * len(m.Hours) / 24
		if m.when.Float64()*m.peak < m.Hours[hour] {
			return
		}
	}
}

// Check returns what is impossible.
func (s Synthetic) Check() error {
	if len(s.Classes) == 0 {
		return fmt.Errorf("there is no class of jobs")
	}
	if !within(s.Days, 0, 36525) {
		return fmt.Errorf("days is %g; it is 0 to a hundred years", s.Days)
	}
	for _, c := range s.Classes {
		if err := c.check(s.Days); err != nil {
			return fmt.Errorf("class %s: %w", c.Name, err)
		}
	}
	return nil
}

// maxPerDay is one in a millisecond.
const maxPerDay = 86_400_000

func (c Class) check(days float64) error {
	positive := func(h float64) bool { return h > 0 }
	switch {
	case !within(c.PerDay, 0, maxPerDay) || c.Jobs < 0 || c.PerDay == 0 && c.Jobs == 0:
		return fmt.Errorf("%g jobs a day and %d in all: say how many come with per_day, jobs, or both", c.PerDay, c.Jobs)
	case c.PerDay > 0 && c.Jobs == 0 && days == 0:
		return fmt.Errorf("%g jobs a day without end: say for how many days, or how many jobs", c.PerDay)
	case !within(c.At, 0, maxSeconds):
		return fmt.Errorf("at is %g seconds", c.At)
	case len(c.Hours) != 0 && len(c.Hours) != 24 ||
		slices.ContainsFunc(c.Hours, func(h float64) bool { return !within(h, 0, 1e6) }) ||
		len(c.Hours) != 0 && !slices.ContainsFunc(c.Hours, positive):
		return fmt.Errorf("hours has %d weights; it is one for each of the 24 hours, some above 0", len(c.Hours))
	case c.Owners < 0 || c.Owners > 1_000_000:
		return fmt.Errorf("%d owners", c.Owners)
	}
	for name, v := range map[string]Variation{"request_vram": c.VRAM, "request_memory": c.Memory, "vram_peak": c.Peak,
		"run_time": c.Seconds, "dead_time": c.Dead} {
		if err := v.check(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return Job{GPUs: c.GPUs, CPUs: c.CPUs, Work: Work{Kernel: c.Kernel, SM: c.SM, Bandwidth: c.Bandwidth}}.Check()
}

func (s Variation) check() error {
	for _, v := range append([]float64{s.Median, s.Least, s.Most}, s.OneOf...) {
		if !within(v, 0, maxSeconds) {
			return fmt.Errorf("%g is out of range", v)
		}
	}
	switch {
	case s.Factor != 0 && !within(s.Factor, 1, 1000):
		return fmt.Errorf("its spread is a factor of %g; it is 1 to 1000", s.Factor)
	case s.Most > 0 && s.Least > s.Most:
		return fmt.Errorf("at least %g, at most %g", s.Least, s.Most)
	case s.Factor > 1 && s.Most == 0:
		return fmt.Errorf("a spread needs the most that it can be")
	}
	return nil
}
