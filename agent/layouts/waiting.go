package layouts

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/startd"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/mig"
)

// waits is what the pool's idle jobs want of the places of some GPUs.
type waits struct {
	// profiles are those of the places, the smallest first.
	profiles []plan.GPU
	by       []api.StatusDemand
	// other are jobs that no place serves, unserved those of them that ask for too much
	// of the host.
	other    int
	unserved []api.StatusUnserved
}

// waitsHere sums the pool's demand by the smallest profile whose slot has its VRAM, CPUs
// and memory on the GPUs of one setting, and takes this node's part.
func waitsHere(p *plan.Plan, how mig.Repartition, d condor.Demand) waits {
	w := waits{profiles: p.Profiles(func(m plan.MIGGPU) bool { return m.Repartition == how })}
	for _, class := range d.Waiting {
		if !class.ForDevice() {
			continue
		}
		serves := func(g plan.GPU) bool {
			fits, known := class.Fits(startd.Device(g), p.CUDA)
			return fits && known
		}
		i := slices.IndexFunc(w.profiles, serves)
		if i < 0 {
			w.other += class.Jobs
			asks := class
			class.CPUs, class.Memory = 0, 0
			if slices.ContainsFunc(w.profiles, serves) {
				w.unserved = append(w.unserved, tooMuch(asks, w.profiles[len(w.profiles)-1]))
			}
			continue
		}
		w.add(w.profiles[i].Profile, class)
	}
	for i := range w.by {
		s := &w.by[i]
		s.Here = mig.Share(p.Host.Name, d.Nodes, demandOf(*s, s.Jobs)).Count
	}
	return w
}

func (w *waits) add(profile string, class condor.Waiting) {
	i := slices.IndexFunc(w.by, func(s api.StatusDemand) bool { return s.Profile == profile })
	if i < 0 {
		i, w.by = len(w.by), append(w.by, api.StatusDemand{Profile: profile})
	}
	w.by[i].Jobs += class.Jobs
	w.by[i].WaitsSeconds = max(w.by[i].WaitsSeconds, class.Waits)
}

// tooMuch says what jobs ask for that no slot has.
func tooMuch(c condor.Waiting, largest plan.GPU) api.StatusUnserved {
	why := fmt.Sprintf("request_vram = %d", int64(c.VRAM))
	if c.CPUs > 0 {
		why += fmt.Sprintf(", request_cpus = %d", c.CPUs)
	}
	if c.Memory > 0 {
		why += fmt.Sprintf(", request_memory = %d", int64(c.Memory))
	}
	why += fmt.Sprintf(", which no slot has: that of the largest profile, %s, has %d CPUs and %s",
		largest.Profile, largest.Resources.CPUs, largest.Resources.Memory)
	return api.StatusUnserved{
		Jobs: c.Jobs, VRAMMiB: int64(c.VRAM), CPUs: c.CPUs, MemoryMiB: int64(c.Memory), Why: why,
	}
}

// logUnserved logs each request once, for as long as jobs with it wait.
func (l *Layouts) logUnserved(how mig.Repartition, now []api.StatusUnserved) {
	for _, u := range now {
		if !slices.ContainsFunc(l.unserved[how], func(o api.StatusUnserved) bool { return o.Why == u.Why }) {
			l.log.Warn("jobs are left out of what MIG layouts follow", "jobs", u.Jobs, "why", u.Why)
		}
	}
	l.unserved[how] = now
}

// here is this node's part, for the policy.
func (w waits) here() (ds []mig.Demand) {
	for _, s := range w.by {
		ds = append(ds, demandOf(s, s.Here))
	}
	return ds
}

func demandOf(s api.StatusDemand, count int) mig.Demand {
	return mig.Demand{Profile: s.Profile, Count: count, Age: time.Duration(s.WaitsSeconds) * time.Second}
}

// leaveLarge keeps small jobs off devices while larger ones wait: each device takes only
// jobs that no smaller profile serves than the largest that is waited for and that is not
// larger than its own.
func (l *Layouts) leaveLarge(p *plan.Plan, w waits) {
	for _, g := range p.GPUs {
		auto := func(m plan.MIGGPU) bool { return m.UUID == g.Parent && m.Repartition == mig.Auto }
		if g.Place == "" || !slices.ContainsFunc(p.MIG, auto) {
			continue
		}
		if below, ok := plan.Below(w.profiles, g.Profile, w.waited); ok {
			l.below[g.UUID] = below
		}
	}
}
