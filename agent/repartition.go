package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// following are the settings with which layouts follow the work that waits, the
// farthest first. GPUs of one setting are decided on together.
var following = []mig.Repartition{mig.Auto, mig.Suggest}

// repartition is what the agent needs to let MIG layouts follow the work that
// waits. What waits is only ever a reason to change idle devices: limits rest on
// nothing that a user's job says.
type repartition struct {
	// heard is what the pool said last; a goroutine asks it.
	heard atomic.Pointer[heard]

	// The loop's own.
	decided *heard
	saved   savedRepartition
	// kept are devices that take no new jobs for the sake of waiting work, and why.
	kept map[gpu.UUID]string
	// unserved is what was told last of jobs for which no slot has the CPUs or memory.
	unserved map[mig.Repartition][]api.StatusUnserved
}

// heard is one answer of the pool, failed the number of those in a row that were
// none.
type heard struct {
	demand condor.Demand
	err    error
	failed int
}

// listenToPool asks the pool what waits, off the loop: a collector that does not
// answer holds up nothing.
func (a *Agent) listenToPool(ctx context.Context) {
	for {
		v := a.view.Load()
		if a.pool != nil && v.planned && v.plan.Repartition() != "" {
			a.hear(ctx)
			nudge(a.wake)
		}
		pause(ctx, v.config.Repartition.Interval)
		if ctx.Err() != nil {
			return
		}
	}
}

func (a *Agent) hear(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	h := heard{}
	if h.demand, h.err = a.pool.Demand(ctx, time.Now()); h.err != nil {
		h.failed = 1
		if last := a.repartition.heard.Load(); last != nil {
			h.failed += last.failed
		}
	}
	a.repartition.heard.Store(&h)
}

// makeLayouts decides whether layouts follow the work, and makes them.
func (a *Agent) makeLayouts(ctx context.Context, v *view, inv gpu.Inventory, problem func(error)) (changed bool) {
	steered := a.follow(ctx, v, problem)
	changed = a.layOut(ctx, v, inv, problem)
	if len(steered) > 0 {
		problem(a.land(ctx, v, steered))
	}
	return changed
}

// follow decides once on each answer of the pool. The GPUs that shall have
// another layout are returned.
func (a *Agent) follow(ctx context.Context, v *view, problem func(error)) (steered []gpu.UUID) {
	r := &a.repartition
	r.forget(v.plan)
	h := r.heard.Load()
	switch {
	case a.layouts.executor.Hardware == nil || h == nil || h == r.decided || a.jobs.Unknown() != "":
		v.repartition = inForce(v.repartition, v.plan)
		return nil
	}
	r.decided, r.kept, v.repartition, v.below = h, map[gpu.UUID]string{}, nil, map[gpu.UUID]plan.GPU{}
	for _, how := range following {
		if !slices.ContainsFunc(v.plan.MIG, func(g plan.MIGGPU) bool { return g.Repartition == how }) {
			continue
		}
		said, goes, err := a.decideLayouts(ctx, v, how, h)
		if err != nil {
			said.Error = err.Error()
			if h.failed != 1 { // HTCondor starts after the agent
				problem(fmt.Errorf("repartition = %q: %w", how, err))
			}
		}
		steered = append(steered, goes...)
		v.repartition = append(v.repartition, said)
	}
	problem(r.saved.write(repartitionFile(v.config.Paths)))
	return steered
}

// inForce drops what was said of settings that no GPU has any more, and keeps a
// place for those of which nothing was said yet.
func inForce(said []api.StatusRepartition, p plan.Plan) []api.StatusRepartition {
	var out []api.StatusRepartition
	for _, how := range following {
		if !slices.ContainsFunc(p.MIG, func(g plan.MIGGPU) bool { return g.Repartition == how }) {
			continue
		}
		i := slices.IndexFunc(said, func(s api.StatusRepartition) bool { return s.Setting == string(how) })
		if i < 0 {
			out = append(out, api.StatusRepartition{Setting: string(how)})
			continue
		}
		out = append(out, said[i])
	}
	return out
}

// decideLayouts is one look at the GPUs of one setting, and what follows from it.
func (a *Agent) decideLayouts(ctx context.Context, v *view, how mig.Repartition, h *heard) (said api.StatusRepartition, steered []gpu.UUID, err error) {
	said = api.StatusRepartition{Setting: string(how), At: time.Now(), Told: h.demand.At, Nodes: h.demand.Nodes}
	past := a.repartition.saved.Past[how]
	sight, states, err := a.sight(ctx, v, how)
	if err != nil {
		return said, nil, err
	}
	if h.err != nil {
		a.keepFree(v, states, past.Reservations)
		return said, nil, fmt.Errorf("the collector does not tell what waits: %w", h.err)
	}
	waits := v.waiting(how, h.demand)
	said.Demand, said.Other, said.Unserved = waits.by, waits.other, waits.unserved
	a.tellUnserved(how, waits.unserved)
	sight.Demand = waits.here()
	d, past, err := mig.Decide(&a.layouts.catalogue, v.config.Repartition.Rules(how), past, sight)
	if err != nil {
		return said, nil, err
	}
	a.tellDecision(how, d)
	a.repartition.saved.remember(how, past)
	said.Act, said.Why = string(d.Act), d.Why
	if d.Plan != nil && d.Act != mig.Nothing {
		for _, s := range d.Plan.Steps {
			said.Steps = append(said.Steps, fmt.Sprintf("%s: %s", s.GPU, s))
		}
	}
	said.Reserved = a.keepFree(v, states, d.Reserved)
	if how == mig.Auto {
		v.guard(waits)
	}
	if d.Act == mig.Replan {
		steered = a.repartition.saved.choose(*d.Plan)
	}
	return said, steered, nil
}

// sight is how the GPUs of one setting are now. One that is being changed, or is
// not in MIG mode yet, is left out.
func (a *Agent) sight(ctx context.Context, v *view, how mig.Repartition) (mig.Sight, map[gpu.UUID]gpu.MIGState, error) {
	sight := mig.Sight{At: time.Now(), Places: map[gpu.UUID]gpu.Layout{}}
	states := map[gpu.UUID]gpu.MIGState{}
	for _, g := range v.plan.MIG {
		if g.Repartition != how || a.layouts.reached[g.UUID] == "" || a.layouts.waits[g.UUID] {
			continue
		}
		a.beat()
		s, err := a.executor(v).State(ctx, g.UUID)
		if err != nil {
			return sight, nil, err
		}
		if !s.Enabled {
			continue
		}
		places, err := placesOf(s.Chip, g)
		if err != nil {
			return sight, nil, err
		}
		s = a.claimed(v, s)
		states[g.UUID], sight.Places[g.UUID] = s, places
		sight.GPUs = append(sight.GPUs, s.MIGGPU)
	}
	return sight, states, nil
}

// placesOf are those for which HTCondor has slots.
func placesOf(chip gpu.Chip, g plan.MIGGPU) (gpu.Layout, error) {
	var all gpu.Layout
	for _, text := range g.Placed {
		w, err := mig.ParseWant(chip, text)
		if err != nil {
			return nil, fmt.Errorf("MIG layout of %s: %w", g.UUID, err)
		}
		for _, p := range w.Placed {
			if !all.Contains(p) {
				all = append(all, p)
			}
		}
	}
	return gpu.NewLayout(all...), nil
}

// keepFree closes the devices of reservations to new jobs and names their places.
func (a *Agent) keepFree(v *view, states map[gpu.UUID]gpu.MIGState, reserved []mig.Reservation) (places []string) {
	for _, r := range reserved {
		s, known := states[r.GPU]
		for _, i := range s.Instances {
			if u, ok := i.UUID(); ok && known && r.Keep.Contains(i.Place) {
				why := fmt.Sprintf("it is kept free for %s, for which jobs wait: see gpuslot mig plan", s.Chip.FormatPlace(r.Place))
				for _, key := range v.keys([]gpu.UUID{u}) {
					a.repartition.kept[key] = why
				}
				places = append(places, fmt.Sprintf("%s: %s", r.GPU, s.Chip.FormatPlace(i.Place)))
			}
		}
	}
	return places
}

// tellDecision writes into log and history what is new.
func (a *Agent) tellDecision(how mig.Repartition, d mig.Decision) {
	last := a.repartition.saved.Said[how]
	text := ""
	switch d.Act {
	case mig.Propose, mig.Reserve, mig.Replan:
		text = d.Why
	}
	if text != "" && text != last {
		a.log.Info("MIG repartition", "act", string(d.Act), "why", d.Why)
		a.note(history.Event{Kind: history.EventLayout, By: history.ByAgent, Text: fmt.Sprintf("repartition = %s: %s.", how, strings.TrimSuffix(d.Why, "."))})
	}
	a.repartition.saved.say(how, text)
}

// land notes of each steered GPU the layout that it really got: one that could
// not be made is decided on anew, it is not waited for.
func (a *Agent) land(ctx context.Context, v *view, steered []gpu.UUID) error {
	r := &a.repartition
	for _, u := range steered {
		s, err := a.executor(v).State(ctx, u)
		if err != nil {
			return err
		}
		is := s.Chip.Format(s.Layout())
		if is == r.saved.Chosen[u] {
			a.metrics.LayoutFollowed(u)
			continue
		}
		a.log.Warn("MIG layout did not follow", "gpu", u, "wanted", r.saved.Chosen[u], "is", is)
		r.saved.Chosen[u] = is
	}
	return r.saved.write(repartitionFile(v.config.Paths))
}
