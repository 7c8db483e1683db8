package layouts

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
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
		l.beat()
		out, goes, err := l.makeOne(ctx, n, g)
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
	if why := l.jobs.Unknown(); why != "" && (len(s.Instances) > 0 || !s.Enabled) {
		return out, nil, waits(why)
	}
	goal, want, err := l.goal(s, g)
	if err != nil {
		return out, nil, err
	}
	p, err := mig.PlanWant(&l.catalogue, l.withJobs(n, s).MIGGPU, want)
	if err != nil {
		return out, nil, fmt.Errorf("MIG layout of %s: %w", g.UUID, err)
	}
	if why := unserved(p); why != "" {
		return out, n.keys(gone(s, goal)), waits(why)
	}
	layout := p.GPUs[0].Layout
	lost := gone(s, layout)
	if !s.Enabled {
		lost = append(lost, g.UUID) // a job has all of it, whether or not it has opened it yet
	}
	if slot := l.jobs.Reserve(n.keys(lost)); slot != "" {
		return out, n.keys(gone(s, goal)), waits(slot + " has a job there")
	}
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
func (l *Layouts) withJobs(n *Node, s gpu.MIGState) gpu.MIGState {
	running := l.jobs.Running()
	s.Instances = slices.Clone(s.Instances)
	for k := range s.Instances {
		in := &s.Instances[k]
		u, ok := in.UUID()
		if !ok {
			continue
		}
		in.Holders = slices.Clone(in.Holders)
		for h, by := range in.Holders {
			in.Holders[h].Ours = by.PID > 0 && l.daemons.Owns(u, by.PID)
		}
		for _, j := range running {
			if j.GPU == u || DeviceOf(j, &n.Plan, &n.Before) == u {
				in.Holders = append(in.Holders, gpu.Holder{Slot: j.Starter.Slot})
			}
		}
	}
	return s
}

// DeviceOf is the MIG device that a job has at a place of a layout; empty if it has none.
// That of a job from before the agent started is in the plan, or in the one before.
func DeviceOf(j jobs.Job, plans ...*plan.Plan) gpu.UUID {
	if j.Device != "" {
		return j.Device
	}
	for _, p := range plans {
		if g, ok := p.GPU(j.GPU); ok && g.Device != "" {
			return g.Device
		}
	}
	return ""
}

// keys are the names by which the plans and the job table have MIG devices, besides the
// devices' own.
func (n *Node) keys(devices []gpu.UUID) []gpu.UUID {
	keys := slices.Clone(devices)
	for _, g := range slices.Concat(n.Plan.GPUs, n.InForce.GPUs) {
		if g.Place != "" && slices.Contains(devices, g.Device) && !slices.Contains(keys, g.UUID) {
			keys = append(keys, g.UUID)
		}
	}
	return keys
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

// gone are the devices that a layout does not have.
func gone(s gpu.MIGState, l gpu.Layout) []gpu.UUID {
	var out []gpu.UUID
	for _, i := range s.Instances {
		if u, ok := i.UUID(); ok && !l.Contains(i.Place) {
			out = append(out, u)
		}
	}
	return out
}
