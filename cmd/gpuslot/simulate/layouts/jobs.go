package layouts

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// Job is one of a trace.
type Job struct {
	// Arrival is after the beginning of the trace.
	Arrival  time.Duration
	Duration time.Duration
	// Profile is the one that the job asks for, and no other; empty if it asks for
	// memory and SMs, which any instance with as much has.
	Profile         string
	Memory          gpu.MiB
	Multiprocessors int
}

// Trace is jobs in any order.
type Trace []Job

// job is one with its class.
type job struct {
	arrival, duration time.Duration
	class             *class
}

// class is the jobs that the same instances can serve.
type class struct {
	// profile is the smallest that will do, exact that no other will.
	profile gpu.Profile
	exact   bool
	memory  gpu.MiB
	sms     int
	// waiting are numbers of jobs, the oldest first.
	waiting []int
}

func (c *class) uses(p gpu.Profile) bool {
	if c.exact || p.ID == c.profile.ID {
		return p.ID == c.profile.ID
	}
	return p.Memory >= c.memory && p.Multiprocessors >= c.sms
}

// larger orders profiles by compute slices, memory, units, then the plainer name.
func larger(a, b gpu.Profile) bool { return compareProfiles(a, b) > 0 }

func compareProfiles(a, b gpu.Profile) int {
	return cmp.Or(cmp.Compare(a.Slices, b.Slices), cmp.Compare(a.Size, b.Size), cmp.Compare(len(a.Name), len(b.Name)),
		cmp.Compare(a.ID, b.ID))
}

// classify sorts the jobs by arrival and finds the class of each.
func (w *world) classify(t Trace) error {
	t = slices.Clone(t)
	sort.SliceStable(t, func(i, j int) bool { return t[i].Arrival < t[j].Arrival })
	known := map[Job]*class{}
	for i, j := range t {
		if err := j.check(); err != nil {
			return fmt.Errorf("job %d by arrival: %w", i+1, err)
		}
		key := Job{Profile: j.Profile, Memory: j.Memory, Multiprocessors: j.Multiprocessors}
		c, ok := known[key]
		if !ok {
			var err error
			if c, err = classOf(w.node.Chip, key); err != nil {
				return fmt.Errorf("job %d by arrival: %w", i+1, err)
			}
			known[key] = c
			w.classes = append(w.classes, c)
		}
		w.jobs = append(w.jobs, job{arrival: j.Arrival, duration: j.Duration, class: c})
	}
	return nil
}

// classOf finds the smallest profile for a job.
func classOf(chip gpu.Chip, j Job) (*class, error) {
	if j.Profile != "" {
		p, err := mig.ProfileNamed(chip, j.Profile)
		if err != nil {
			return nil, err
		}
		return &class{profile: p, exact: true, memory: p.Memory, sms: p.Multiprocessors}, nil
	}
	c := &class{memory: j.Memory, sms: j.Multiprocessors}
	found := false
	for _, p := range chip.Profiles {
		if p.Memory >= c.memory && p.Multiprocessors >= c.sms && (!found || larger(c.profile, p)) {
			c.profile, found = p, true
		}
	}
	if !found {
		return nil, fmt.Errorf("no MIG profile of %s is known to have %s and %d SMs", chip.Model, c.memory, c.sms)
	}
	return c, nil
}

// demand is what waits, summed by the smallest profile; what is older counts first.
func (w *world) demand() (ds []mig.Demand) {
	for _, c := range w.classes {
		if len(c.waiting) == 0 {
			continue
		}
		age := w.now - w.jobs[c.waiting[0]].arrival
		i := slices.IndexFunc(ds, func(d mig.Demand) bool { return d.Profile == c.profile.Name })
		if i < 0 {
			i, ds = len(ds), append(ds, mig.Demand{Profile: c.profile.Name})
		}
		ds[i].Count += len(c.waiting)
		ds[i].Age = max(ds[i].Age, age)
	}
	return ds
}

// sum ends a run.
func (w *world) sum(name string) Result {
	r := w.result
	r.Policy, r.Jobs = name, len(w.jobs)
	r.measure()
	if len(w.jobs) == 0 {
		return r
	}
	span := (w.last - w.jobs[0].arrival).Seconds()
	r.Hours = max(span, 0) / 3600
	w.utilise(&r, span)
	return r
}

// measure sums the waits.
func (r *Result) measure() {
	if len(r.waits) == 0 {
		return
	}
	sorted := slices.Sorted(slices.Values(r.waits))
	var sum float64
	for _, d := range sorted {
		sum += d.Seconds()
	}
	r.MeanWait = sum / float64(len(sorted))
	r.P95Wait = sorted[(len(sorted)*95+99)/100-1].Seconds()
}

// utilise fills in the parts of the GPUs in use. What waits for ever used nothing.
func (w *world) utilise(r *Result, span float64) {
	never := map[int]bool{}
	for _, c := range w.classes {
		for _, j := range c.waiting {
			never[j] = true
		}
	}
	whole, _ := w.node.Chip.Whole()
	var sms, memory float64
	knownSMs, knownMemory := w.node.Chip.Multiprocessors > 0, whole.Memory > 0
	for i, j := range w.jobs {
		if never[i] {
			continue
		}
		sms += float64(j.class.sms) * j.duration.Seconds()
		memory += float64(j.class.memory) * j.duration.Seconds()
		knownSMs = knownSMs && (!j.class.exact || j.class.sms > 0)
		knownMemory = knownMemory && (!j.class.exact || j.class.memory > 0)
	}
	all := span * float64(w.node.GPUs)
	if knownSMs && all > 0 {
		x := sms / all / float64(w.node.Chip.Multiprocessors)
		r.SMs = &x
	}
	if knownMemory && all > 0 {
		x := memory / all / float64(whole.Memory)
		r.Memory = &x
	}
}
