package simulate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

const (
	// triedJobs are the first jobs of a stream, on which static layouts are tried.
	triedJobs = 20000
	// leftOut is the part of the jobs that a layout may leave out more than that which
	// leaves out fewest: one large job in many does not make a pool of whole GPUs.
	leftOut = 0.05
)

// BestStatic chooses the layout of each model that has MIG and none in the pool's file: of as
// many instances of one profile as there can be, and of the layout in proportion to the jobs'
// VRAM and time, that with the shortest mean time from a job's arrival to its end among those
// that leave out hardly more jobs than need be. It returns the layouts of all models.
func (f File) BestStatic(ctx context.Context, jobs func() Jobs) (map[string]string, error) {
	tried, err := first(jobs(), triedJobs)
	if err != nil {
		return nil, err
	}
	layouts := maps.Clone(f.Layouts)
	if layouts == nil {
		layouts = map[string]string{}
	}
	for _, g := range f.Pool.Groups {
		one := g.Inventory.GPUs[0]
		if _, named := layouts[one.Name]; named || !one.MIGCapable {
			continue
		}
		chip, err := mig.ModelOf(one, 0)
		if err != nil {
			return nil, err
		}
		candidates := ladder(chip)
		if l := byDemand(chip, tried); l != "" {
			candidates = append(candidates, l)
		}
		if layouts[one.Name], err = f.bestOf(ctx, one.Name, candidates, layouts, tried); err != nil {
			return nil, err
		}
	}
	return layouts, nil
}

// layOut gives the static policy its best layouts, and a note of them.
func (f File) layOut(ctx context.Context, policies []Policy, jobs func() Jobs) error {
	i := slices.IndexFunc(policies, func(p Policy) bool { return p.Name == nameStatic })
	if i < 0 {
		return nil
	}
	layouts, err := f.BestStatic(ctx, jobs)
	if err != nil {
		return err
	}
	var notes []string
	for _, name := range slices.Sorted(maps.Keys(layouts)) {
		if f.Layouts[name] == "" {
			notes = append(notes, fmt.Sprintf("%s on each %s is the best static layout for these jobs", layouts[name], name))
		}
	}
	policies[i], err = StaticMIG(f.Pool, layouts)
	policies[i].Note = strings.Join(notes, "; ")
	return err
}

// bestOf tries the layouts of one model.
func (f File) bestOf(ctx context.Context, name string, candidates []string, layouts map[string]string,
	jobs []Job) (string, error) {
	var results []Result
	fewest := len(jobs)
	for _, l := range candidates {
		with := maps.Clone(layouts)
		with[name] = l
		p, err := StaticMIG(f.Pool, with)
		if err != nil {
			return "", err
		}
		r, err := Run(ctx, f.Pool, p, List(jobs...), Options{})
		if err != nil {
			return "", fmt.Errorf("static layout %s: %w", l, err)
		}
		results = append(results, r)
		fewest = min(fewest, r.Refused)
	}
	best, least := 0, math.Inf(1)
	for i, r := range results {
		took := r.Wait.Mean + r.MeanRun
		if float64(r.Refused-fewest) <= leftOut*float64(len(jobs)) && r.Ended > 0 && took < least {
			best, least = i, took
		}
	}
	return candidates[best], nil
}

// byDemand is the layout with the profiles that the jobs fit, the smallest that hold their
// VRAM: each has slices in proportion to the time of its jobs, one instance at least. Empty
// if there is none.
func byDemand(chip gpu.Chip, jobs []Job) string {
	profiles := plain(chip) // the largest first
	slicesOf, wanted, all := map[string]int{}, map[string]float64{}, 0.0
	for _, j := range jobs {
		for _, p := range slices.Backward(profiles) {
			if j.GPUs == 1 && p.Memory >= j.VRAM {
				slicesOf[p.Name] = p.Slices
				wanted[p.Name] += j.Seconds * float64(p.Slices)
				all += j.Seconds * float64(p.Slices)
				break
			}
		}
	}
	var demand []mig.Demand
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		n := int(wanted[name] / max(all, 1e-9) * float64(chip.Slices()) / float64(slicesOf[name]))
		demand = append(demand, mig.Demand{Profile: name, Count: max(1, n)})
	}
	if len(demand) == 0 {
		return ""
	}
	one := gpu.MIGGPU{UUID: "GPU-00000000-0000-4000-8000-000000000000", Chip: chip}
	p, err := mig.PlanDemand(&mig.Catalogue{}, []gpu.MIGGPU{one}, demand)
	if err != nil || len(p.GPUs) == 0 || len(p.GPUs[0].Layout) == 0 {
		return ""
	}
	return strings.ReplaceAll(chip.Format(p.GPUs[0].Layout), ",", ", ")
}

// first are so many jobs of a stream.
func first(from Jobs, n int) (out []Job, err error) {
	for len(out) < n {
		j, err := from.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		out = append(out, j)
	}
	return out, nil
}
