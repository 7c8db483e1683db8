package layouts

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/backoff"
	"github.com/gpuslot/gpuslot/mig"
)

// makeAll brings each GPU to its layout, and says whether any changed. Devices that must
// go but are in use take no new jobs meanwhile.
func (l *Layouts) makeAll(ctx context.Context, n *Node, problem func(error)) (changed bool) {
	leaving := maps.Clone(l.kept)
	if leaving == nil {
		leaving = map[gpu.UUID]string{}
	}
	l.waits = map[gpu.UUID]bool{}
	for _, g := range n.Plan.MIG {
		g = l.saved.steer(g)
		now, _ := n.Inventory.GPU(g.UUID)
		is := wantedAndHas(g, now)
		if len(g.Layouts) == 0 || l.reached[g.UUID] == is {
			continue
		}
		wants := fmt.Sprint(g.Layouts, g.Placed)
		last := l.failed[g.UUID]
		if last.wants == wants && time.Now().Before(last.until) {
			l.waits[g.UUID] = true
			problem(last.err)
			continue
		}
		l.beat()
		out, goes, err := l.makeOne(ctx, n, g)
		switch {
		case err == nil:
			delete(l.failed, g.UUID)
		case out.End == mig.ReachedFormer || out.End == mig.EndDegraded:
			l.failed[g.UUID] = last.again(wants, err)
		}
		if err != nil {
			l.waits[g.UUID] = true
			problem(err)
		}
		for _, u := range goes {
			leaving[u] = jobs.IsLeaving
		}
		switch {
		case len(out.Steps) > 0:
			changed = true
			l.log.Info("MIG layout changed", "gpu", g.UUID, "end", out.End, "steps", len(out.Steps))
		case err == nil:
			l.reached[g.UUID] = is
		}
	}
	maps.Copy(leaving, l.ending)
	l.leaving = leaving
	return changed
}

// failure is a change of a layout that took steps in vain. Until then the same layout is not tried again.
type failure struct {
	wants string
	times int
	until time.Time
	err   error
}

// again is the next failure, with a longer pause if the same was wanted.
func (f failure) again(wants string, err error) failure {
	if f.wants != wants {
		f.times = 0
	}
	pause := backoff.Doubling{First: 30 * time.Second, Longest: 5 * time.Minute}
	return failure{wants, f.times + 1, time.Now().Add(pause.After(f.times + 1)), err}
}

// wantedAndHas changes with what is wanted of a GPU and with what it has.
func wantedAndHas(g plan.MIGGPU, now gpu.GPU) string {
	words := append([]string{fmt.Sprint(now.MIGEnabled)}, g.Layouts...)
	words = append(words, g.Placed...)
	for _, d := range now.MIGDevices {
		words = append(words, string(d.UUID)+d.Profile)
	}
	return strings.Join(words, "|")
}

// makeOne makes one GPU's layout: the first that has room beside the instances of others.
// While jobs use what is in its way nothing is done; goes are then the devices that it has
// no place for.
func (l *Layouts) makeOne(
	ctx context.Context, n *Node, g plan.MIGGPU,
) (out mig.Outcome, goes []gpu.UUID, err error) {
	s, err := l.executor.State(ctx, g.UUID)
	if err != nil {
		return out, nil, err
	}
	waits := func(why string) error { return fmt.Errorf("the MIG layout of %s waits: %s", g.UUID, why) }
	if !s.Capable {
		return out, nil, fmt.Errorf("MIG layout of %s: %w", g.UUID, gpu.ErrNoMIG)
	}
	if why := n.unknown(l.jobs); why != "" && (len(s.Instances) > 0 || !s.Enabled) {
		return out, nil, waits(why)
	}
	goal, want, err := l.goal(s, g)
	if err != nil {
		return out, nil, err
	}
	p, err := mig.PlanWant(&l.catalogue, l.withJobs(s).MIGGPU, want)
	if err != nil {
		return out, nil, fmt.Errorf("MIG layout of %s: %w", g.UUID, err)
	}
	if why := unserved(p); why != "" {
		return out, gone(s, goal), waits(why)
	}
	layout := p.GPUs[0].Layout
	lost := gone(s, layout)
	if !s.Enabled {
		lost = append(lost, g.UUID) // a job has all of it, whether or not it has opened it yet
	}
	if slot := l.jobs.Reserve(lost); slot != "" {
		return out, gone(s, goal), waits(slot + " has a job there")
	}
	l.ending.add(lost)
	if err := noteMode(l.paths, g.UUID, s.Enabled); err != nil {
		return out, nil, err // there would be no way back
	}
	out, err = l.change(ctx, n, g.UUID, func(ctx context.Context, u gpu.UUID) (mig.Outcome, error) {
		return l.executor.Apply(ctx, u, mig.WantedFrom(s, layout))
	})
	if err != nil {
		err = fmt.Errorf("MIG layout of %s: %w", g.UUID, err)
	}
	return out, nil, err
}

// goal is the first of the wanted layouts that has room beside the instances of others, as
// if no job ran.
func (l *Layouts) goal(s gpu.MIGState, g plan.MIGGPU) (gpu.Layout, mig.Want, error) {
	wants, err := wantsOf(s.Chip, g)
	if err != nil {
		return nil, mig.Want{}, err
	}
	free := s.MIGGPU
	free.Instances = slices.Clone(s.Instances)
	for i := range free.Instances {
		free.Instances[i].Holders = nil
	}
	p, err := mig.PlanWant(&l.catalogue, free, wants...)
	if err != nil {
		return nil, mig.Want{}, fmt.Errorf("MIG layout of %s: %w", g.UUID, err)
	}
	if why := unserved(p); why != "" {
		return nil, mig.Want{}, fmt.Errorf(
			"the MIG layout of %s cannot be made beside instances that gpuslot did not make: %s", g.UUID, why)
	}
	return p.GPUs[0].Layout, wants[p.Choice], nil
}

// wantsOf reads the layouts that the chip has by the driver's word.
func wantsOf(chip gpu.Chip, g plan.MIGGPU) ([]mig.Want, error) {
	var wants []mig.Want
	var errs []error
	texts := g.Placed // slots exist for these places
	if len(texts) == 0 {
		texts = g.Layouts
	}
	for _, text := range texts {
		w, err := mig.ParseWant(chip, text)
		if err != nil {
			errs = append(errs, fmt.Errorf("MIG layout of %s: %w", g.UUID, err))
			continue
		}
		wants = append(wants, w)
	}
	if len(wants) == 0 {
		return nil, errors.Join(errs...)
	}
	return wants, nil
}

// withJobs is the state with the jobs that have instances, whether or not they compute at
// this moment, and with our own control daemons marked.
func (l *Layouts) withJobs(s gpu.MIGState) gpu.MIGState {
	running := l.jobs.Running()
	s.Instances = slices.Clone(s.Instances)
	for k := range s.Instances {
		in := &s.Instances[k]
		in.Holders = slices.Clone(in.Holders)
		u, one := in.UUID()
		for h, by := range in.Holders {
			in.Holders[h].Ours = one && by.PID > 0 && l.daemons.Owns(u, by.PID)
		}
		names := s.Names(*in)
		for _, j := range running {
			if slices.Contains(names, j.GPU) || slices.Contains(names, j.Device) {
				in.Holders = append(in.Holders, gpu.Holder{Slot: j.Starter.Slot})
			}
		}
	}
	return s
}

// unknown says which job has a MIG device that is not known; empty if there is none. A job from before the agent
// started has the name of a place, which a GPU that does not answer has not.
func (n *Node) unknown(table Jobs) string {
	var known []gpu.UUID
	for _, g := range n.Inventory.GPUs {
		for _, d := range g.MIGDevices {
			known = append(known, d.Names(g.UUID)...)
		}
	}
	for _, j := range table.Running() {
		if j.GPU.IsMIG() && !slices.Contains(known, j.GPU) && !slices.Contains(known, j.Device) {
			return fmt.Sprintf("%s has the MIG device %s, which no GPU that answers has", j.Starter.Slot, j.GPU)
		}
	}
	return table.Unknown()
}

// unserved says why a plan does not give all that is wanted; empty if it does.
func unserved(p mig.Plan) string {
	var why []string
	for _, s := range p.Served {
		if s.Why != "" {
			why = append(why, fmt.Sprintf("%d of %d %s: %s", s.Served, s.Wanted, s.Profile, s.Why))
		}
	}
	return strings.Join(why, "; ")
}

// gone are the names of the devices that a layout does not have.
func gone(s gpu.MIGState, l gpu.Layout) []gpu.UUID {
	var out []gpu.UUID
	for _, i := range s.Instances {
		if !l.Contains(i.Place) {
			out = append(out, s.Names(i)...)
		}
	}
	return out
}
