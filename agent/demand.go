package agent

import (
	"cmp"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// waits is what the pool's idle jobs want of the places of some GPUs.
type waits struct {
	// profiles are those of the places, the smallest first.
	profiles []plan.GPU
	by       []api.StatusDemand
	other    int
}

// waiting sums the pool's demand by the smallest profile that serves it here, and
// takes this node's part.
func (v *view) waiting(how mig.Repartition, d condor.Demand) waits {
	w := waits{profiles: v.profiles(how)}
	for _, class := range d.Waiting {
		i := slices.IndexFunc(w.profiles, func(g plan.GPU) bool {
			fits, known := class.Fits(device(g), v.plan.CUDA)
			return fits && known
		})
		if i < 0 {
			w.other += class.Jobs
			continue
		}
		w.add(w.profiles[i].Profile, class)
	}
	for i := range w.by {
		s := &w.by[i]
		s.Here = mig.Share(v.plan.Host.Name, d.Nodes, demandOf(*s, s.Jobs)).Count
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

// here is this node's part, for the policy.
func (w waits) here() (ds []mig.Demand) {
	for _, s := range w.by {
		if s.Here > 0 {
			ds = append(ds, demandOf(s, s.Here))
		}
	}
	return ds
}

func demandOf(s api.StatusDemand, count int) mig.Demand {
	return mig.Demand{Profile: s.Profile, Count: count, Age: time.Duration(s.WaitsSeconds) * time.Second}
}

// profiles are one place of each profile for which there are slots, the smallest
// profile first.
func (v *view) profiles(how mig.Repartition) (one []plan.GPU) {
	for _, m := range v.plan.MIG {
		if m.Repartition != how {
			continue
		}
		for _, g := range v.plan.GPUs {
			known := slices.ContainsFunc(one, func(o plan.GPU) bool { return o.Profile == g.Profile })
			if g.Parent == m.UUID && g.Place != "" && !known {
				one = append(one, g)
			}
		}
	}
	slices.SortFunc(one, func(a, b plan.GPU) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Multiprocessors, b.Multiprocessors), cmp.Compare(a.Profile, b.Profile))
	})
	return one
}

// guard keeps small jobs off devices while larger ones wait: each device takes only
// jobs that no smaller profile serves than the largest that is waited for and that
// is not larger than its own.
func (v *view) guard(w waits) {
	for _, g := range v.plan.GPUs {
		if g.Place == "" || !slices.ContainsFunc(v.plan.MIG, func(m plan.MIGGPU) bool { return m.UUID == g.Parent && m.Repartition == mig.Auto }) {
			continue
		}
		if above := w.above(g.Pool); above > 0 {
			v.above[g.UUID] = above
		}
	}
}

// above is the VRAM up to which a smaller profile serves a request than the
// largest one waited for that a device with this pool is; 0 if there is none.
func (w waits) above(pool gpu.MiB) (above gpu.MiB) {
	var largest gpu.MiB
	for _, p := range w.profiles {
		waited := slices.ContainsFunc(w.by, func(s api.StatusDemand) bool { return s.Profile == p.Profile && s.Jobs > 0 })
		if waited && p.Pool <= pool {
			largest = max(largest, p.Pool)
		}
	}
	for _, p := range w.profiles {
		if p.Pool < largest {
			above = max(above, p.Pool)
		}
	}
	return above
}
