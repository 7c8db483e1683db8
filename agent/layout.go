package agent

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
	"github.com/gpuslot/gpuslot/mps"
)

// layouts is what the loop knows of the MIG layouts that it makes.
type layouts struct {
	// executor changes them; without hardware nothing does.
	executor  mig.Executor
	catalogue mig.Catalogue
	// recovered: what an earlier agent left half done was ended.
	recovered bool
	// reached are the GPUs that have what was wanted, as they then were.
	reached map[gpu.UUID]string
	// leaving are devices that wait to go. The job table hear of it with the view that
	// knows what is there: until then also those stay closed that have gone.
	leaving map[gpu.UUID]string
	// waits are the GPUs that did not get what is wanted.
	waits map[gpu.UUID]bool
	// hang are the changes that were abandoned; each channel gets its end.
	hang map[gpu.UUID]chan changeEnd
}

// layOut brings the GPUs that are given out in MIG devices to their layouts, one
// after the other, and reports whether any changed. What jobs use stays as it is,
// and so does the rest of such a GPU until they end: devices that must go take no
// new jobs meanwhile.
func (a *Agent) layOut(ctx context.Context, v *view, inv gpu.Inventory, problem func(error)) (changed bool) {
	if a.layouts.executor.Hardware == nil {
		return false // the inventory is a recorded file
	}
	a.sweepNow()
	if a.planBefore(v.config.Paths) != nil {
		return false // a job's device is known by that plan alone
	}
	changed = a.recoverLayouts(ctx, v, inv, problem)
	changed = a.undivideLeft(ctx, v, inv, problem) || changed
	leaving := map[gpu.UUID]string{}
	maps.Copy(leaving, a.repartition.kept)
	a.layouts.waits = map[gpu.UUID]bool{}
	for _, g := range v.plan.MIG {
		g = a.repartition.steer(g)
		now, _ := inv.GPU(g.UUID)
		is := layoutKey(g, now)
		if len(g.Layouts) == 0 || a.layouts.reached[g.UUID] == is {
			continue
		}
		a.beat()
		out, goes, err := a.layOutGPU(ctx, v, g)
		if err != nil {
			a.layouts.waits[g.UUID] = true
			problem(err)
		}
		for _, u := range goes {
			leaving[u] = jobs.IsLeaving
		}
		switch {
		case len(out.Steps) > 0:
			changed = true
			a.log.Info("MIG layout changed", "gpu", g.UUID, "end", out.End, "steps", len(out.Steps))
		case err == nil:
			a.layouts.reached[g.UUID] = is
		}
	}
	a.layouts.leaving = leaving
	v.laidOut = map[gpu.UUID]bool{}
	for _, g := range v.plan.MIG {
		if len(g.Layouts) > 0 {
			v.laidOut[g.UUID] = !a.layouts.waits[g.UUID]
		}
	}
	return changed
}

// layoutKey changes with what is wanted of a GPU and with what it has.
func layoutKey(g plan.MIGGPU, now gpu.GPU) string {
	words := append([]string{fmt.Sprint(now.MIGEnabled)}, g.Layouts...)
	words = append(words, g.Placed...)
	for _, d := range now.MIGDevices {
		words = append(words, string(d.UUID)+d.Profile)
	}
	return strings.Join(words, "|")
}

// recoverLayouts ends, once, the changes that an earlier agent left half done.
func (a *Agent) recoverLayouts(ctx context.Context, v *view, inv gpu.Inventory, problem func(error)) (changed bool) {
	if a.layouts.recovered {
		return false
	}
	a.layouts.recovered = true
	for _, g := range inv.GPUs {
		if !g.MIGCapable {
			continue
		}
		out, err := a.changing(ctx, g.UUID, a.executor(v).Recover)
		changed = changed || len(out.Steps) > 0
		if err != nil {
			problem(err)
			a.layouts.recovered = false
		}
	}
	return changed
}

// executor is the one of the options with what only the agent knows.
func (a *Agent) executor(v *view) mig.Executor {
	e := a.layouts.executor
	e.Dir, e.Log = v.config.Paths.State, a.log
	e.Release = func(ctx context.Context, _ gpu.UUID, i gpu.Instance) error {
		u, ok := i.UUID()
		if !ok {
			return nil
		}
		return a.releaseInstance(ctx, u)
	}
	return e
}

// releaseInstance stops the control daemon of a MIG device that goes.
func (a *Agent) releaseInstance(ctx context.Context, u gpu.UUID) error {
	if a.jobs.Busy(u) {
		return fmt.Errorf("a job of HTCondor's holds %s: %w", u, gpu.ErrInUse)
	}
	if !wants(a.lastWanted, u) {
		return nil
	}
	rest := slices.DeleteFunc(slices.Clone(a.lastWanted), func(w mps.Wanted) bool { return w.GPU == u })
	ctx, cancel := context.WithTimeout(ctx, setTimeout)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return err // the change was abandoned: the loop goes on beside it
	}
	results, err := a.daemons.Set(ctx, rest)
	for _, r := range results {
		if r.GPU == u {
			err = errors.Join(err, r.Err)
		}
	}
	if err == nil {
		a.lastWanted, a.setDone = rest, false
	}
	return err
}

// layOutGPU makes one GPU's layout: the first that has room beside the instances
// of others. While jobs hold what is in its way nothing is done; goes are then the
// devices that it has no place for.
func (a *Agent) layOutGPU(ctx context.Context, v *view, g plan.MIGGPU) (out mig.Outcome, goes []gpu.UUID, err error) {
	e := a.executor(v)
	s, err := e.State(ctx, g.UUID)
	if err != nil {
		return out, nil, err
	}
	waits := func(why string) error { return fmt.Errorf("the MIG layout of %s waits: %s", g.UUID, why) }
	if !s.Capable {
		return out, nil, fmt.Errorf("MIG layout of %s: %w", g.UUID, gpu.ErrNoMIG)
	}
	if why := a.jobs.Unknown(); why != "" && len(s.Instances) > 0 {
		return out, nil, waits(why)
	}
	goal, want, err := a.goal(s, g)
	if err != nil {
		return out, nil, err
	}
	p, err := mig.PlanWant(&a.layouts.catalogue, a.claimed(v, s).MIGGPU, want)
	if err != nil {
		return out, nil, fmt.Errorf("MIG layout of %s: %w", g.UUID, err)
	}
	if why := unserved(p); why != "" {
		return out, v.keys(gone(s, goal)), waits(why)
	}
	layout := p.GPUs[0].Layout
	if held := a.jobs.Reserve(v.keys(gone(s, layout))); held != "" {
		return out, v.keys(gone(s, goal)), waits(held + " has just begun on it")
	}
	if err := noteMIGMode(undoFile(v.config.Paths), g.UUID, s.Enabled); err != nil {
		return out, nil, err // there would be no way back
	}
	out, err = a.changing(ctx, g.UUID, func(ctx context.Context, u gpu.UUID) (mig.Outcome, error) {
		return e.Apply(ctx, u, mig.WantedFrom(s, layout))
	})
	if err != nil {
		err = fmt.Errorf("MIG layout of %s: %w", g.UUID, err)
	}
	return out, nil, err
}

// goal is the first of the wanted layouts that has room beside the instances of
// others, as if no job ran.
func (a *Agent) goal(s gpu.MIGState, g plan.MIGGPU) (gpu.Layout, mig.Want, error) {
	wants, err := wantsOf(s.Chip, g)
	if err != nil {
		return nil, mig.Want{}, err
	}
	free := s.MIGGPU
	free.Instances = slices.Clone(s.Instances)
	for i := range free.Instances {
		free.Instances[i].Holders = nil
	}
	p, err := mig.PlanWant(&a.layouts.catalogue, free, wants...)
	if err != nil {
		return nil, mig.Want{}, fmt.Errorf("MIG layout of %s: %w", g.UUID, err)
	}
	if why := unserved(p); why != "" {
		return nil, mig.Want{}, fmt.Errorf("the MIG layout of %s cannot be made beside instances that gpuslot did not make: %s", g.UUID, why)
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

// claimed is the state with the jobs that hold instances, whether or not they
// compute at this moment, and with our own control daemons marked.
func (a *Agent) claimed(v *view, s gpu.MIGState) gpu.MIGState {
	running := a.jobs.Running()
	s.Instances = slices.Clone(s.Instances)
	for k := range s.Instances {
		in := &s.Instances[k]
		u, ok := in.UUID()
		if !ok {
			continue
		}
		in.Holders = slices.Clone(in.Holders)
		for n, h := range in.Holders {
			in.Holders[n].Ours = h.PID > 0 && a.ours(v, u, h.PID)
		}
		for _, r := range running {
			if r.GPU == u || a.behind(v, r) == u {
				in.Holders = append(in.Holders, gpu.Holder{Slot: r.Starter.Slot})
			}
		}
	}
	return s
}

// behind is the MIG device that a job has at a place of a layout. Of a job from
// before the agent started the plan knows it, or the one before.
func (a *Agent) behind(v *view, r jobs.Job) gpu.UUID {
	if r.Device != "" {
		return r.Device
	}
	for _, p := range []*plan.Plan{&v.plan, &a.recalled} {
		if g, ok := find(p, r.GPU); ok && g.Device != "" {
			return g.Device
		}
	}
	return ""
}

// keys are the names by which the plan and the job table know MIG devices, besides
// the devices' own.
func (v *view) keys(devices []gpu.UUID) []gpu.UUID {
	keys := slices.Clone(devices)
	for _, g := range v.plan.GPUs {
		if g.Place != "" && slices.Contains(devices, g.Device) {
			keys = append(keys, g.UUID)
		}
	}
	return keys
}

// ours: the process is the device's control daemon or one of its servers.
func (a *Agent) ours(v *view, u gpu.UUID, pid int) bool {
	p := v.guards[u].proof
	return p.PID == pid || slices.ContainsFunc(p.States, func(s mps.Server) bool { return s.PID == pid && len(s.Clients) == 0 })
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
