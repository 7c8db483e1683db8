package layouts

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// following are the settings with which layouts follow the work that waits, the one with
// the most rights first. GPUs of one setting are decided on together.
var following = []mig.Repartition{mig.Auto, mig.Suggest}

func follows(p *plan.Plan, how mig.Repartition) bool {
	return slices.ContainsFunc(p.MIG, func(g plan.MIGGPU) bool { return g.Repartition == how })
}

// answer is one answer of the pool.
type answer struct {
	demand condor.Demand
	err    error
	// failed counts the answers in a row that were errors.
	failed int
}

// Answered takes over an answer of the pool, on which the next round decides.
func (l *Layouts) Answered(d condor.Demand, err error) {
	a := answer{demand: d, err: err}
	if last := l.answer.Load(); err != nil {
		a.failed = 1
		if last != nil {
			a.failed += last.failed
		}
	}
	l.answer.Store(&a)
}

// follow decides once on each answer of the pool. The GPUs that shall have another layout
// are returned.
func (l *Layouts) follow(ctx context.Context, n *Node, problem func(error)) (steered []gpu.UUID) {
	l.forget(&n.Plan)
	a := l.answer.Load()
	if l.executor.Hardware == nil || a == nil || a == l.decided {
		l.repartition = inForce(l.repartition, &n.Plan)
		return nil
	}
	if why := n.unknown(l.jobs); why != "" { // reservations end then: nothing would end them in time
		l.kept, l.below = nil, nil
		l.repartition = inForce(l.repartition, &n.Plan)
		if l.decided != nil { // at the start jobs are not known yet
			problem(fmt.Errorf("MIG layouts do not follow the waiting work: %s", why))
		}
		return nil
	}
	l.decided, l.repartition = a, nil
	l.kept, l.below = map[gpu.UUID]string{}, map[gpu.UUID]plan.GPU{}
	for _, how := range following {
		if !follows(&n.Plan, how) {
			continue
		}
		status, goes, err := l.decide(ctx, n, how, a)
		if err != nil {
			status.Error = err.Error()
			if a.failed != 1 { // HTCondor starts after the agent
				problem(fmt.Errorf("repartition = %q: %w", how, err))
			}
		}
		steered = append(steered, goes...)
		l.repartition = append(l.repartition, status)
	}
	problem(l.write())
	return steered
}

// inForce drops the statuses of settings that no GPU has any more, and has an empty one for
// those on which nothing was decided yet.
func inForce(old []api.StatusRepartition, p *plan.Plan) []api.StatusRepartition {
	var out []api.StatusRepartition
	for _, how := range following {
		if !follows(p, how) {
			continue
		}
		i := slices.IndexFunc(old, func(s api.StatusRepartition) bool { return s.Setting == string(how) })
		if i < 0 {
			out = append(out, api.StatusRepartition{Setting: string(how)})
			continue
		}
		out = append(out, old[i])
	}
	return out
}

// decide looks once at the GPUs of one setting, and takes over what follows from it.
func (l *Layouts) decide(
	ctx context.Context, n *Node, how mig.Repartition, a *answer,
) (status api.StatusRepartition, steered []gpu.UUID, err error) {
	status = api.StatusRepartition{Setting: string(how), At: time.Now(), Told: a.demand.At, Nodes: a.demand.Nodes}
	past := l.saved.Past[how]
	sight, states, err := l.sight(ctx, n, how)
	if err != nil {
		return status, nil, err
	}
	if a.err != nil {
		l.keepFree(states, past.Reservations)
		return status, nil, fmt.Errorf("the collector does not tell what waits: %w", a.err)
	}
	w := waitsHere(&n.Plan, how, a.demand)
	status.Demand, status.Other, status.Unserved = w.by, w.other, w.unserved
	l.logUnserved(how, w.unserved)
	var rest, late []string
	if how == mig.Auto {
		w.by = slices.Clone(w.by) // the status has what waits, whether it counts or not
		if rest, late = l.offers.look(n, states, &w, sight.At); len(late) > 0 {
			l.log.Info("no job came to an idle MIG device: its profile does not count for a while", "profiles", late)
		}
	}
	sight.Demand = w.here()
	d, past, err := mig.Decide(&l.catalogue, n.Config.Repartition.Rules(how), past, sight)
	if err != nil {
		return status, nil, err
	}
	l.logDecision(how, d)
	l.saved.remember(how, past)
	status.Act, status.Why = string(d.Act), d.Why
	if len(rest) > 0 {
		status.Why += "; jobs for " + strings.Join(rest, ", ") +
			" do not count for a while: they did not come to an idle device"
	}
	if d.Plan != nil && d.Act != mig.Nothing {
		for _, s := range d.Plan.Steps {
			status.Steps = append(status.Steps, fmt.Sprintf("%s: %s", s.GPU, s))
		}
	}
	status.Reserved = l.keepFree(states, d.Reserved)
	if how == mig.Auto {
		l.leaveLarge(&n.Plan, w)
	}
	if d.Act == mig.Replan {
		steered = l.saved.choose(*d.Plan)
	}
	return status, steered, nil
}

// sight is how the GPUs of one setting are now. One that is being changed, or is not in MIG
// mode yet, is left out.
func (l *Layouts) sight(
	ctx context.Context, n *Node, how mig.Repartition,
) (mig.Sight, map[gpu.UUID]gpu.MIGState, error) {
	sight := mig.Sight{At: time.Now(), Places: map[gpu.UUID]gpu.Layout{}}
	states := map[gpu.UUID]gpu.MIGState{}
	for _, g := range n.Plan.MIG {
		if g.Repartition != how || l.reached[g.UUID] == "" || l.waits[g.UUID] {
			continue
		}
		l.beat()
		s, err := l.executor.State(ctx, g.UUID)
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
		s = l.withJobs(s)
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
		all = append(all, w.Placed...)
	}
	return gpu.NewLayout(all...), nil
}

// keepFree closes the devices of reservations to new jobs and names their places.
func (l *Layouts) keepFree(states map[gpu.UUID]gpu.MIGState, reserved []mig.Reservation) (places []string) {
	for _, r := range reserved {
		s := states[r.GPU]
		for _, i := range s.Instances {
			if _, ok := i.UUID(); !ok || !r.Keep.Contains(i.Place) {
				continue
			}
			why := fmt.Sprintf("it is kept free for %s, for which jobs wait: see gpuslot mig plan",
				s.Chip.FormatPlace(r.Place))
			for _, name := range s.Names(i) {
				l.kept[name] = why
			}
			places = append(places, fmt.Sprintf("%s: %s", r.GPU, s.Chip.FormatPlace(i.Place)))
		}
	}
	return places
}

// logDecision writes into log and history what is new.
func (l *Layouts) logDecision(how mig.Repartition, d mig.Decision) {
	text := ""
	switch d.Act {
	case mig.Propose, mig.Reserve, mig.Replan:
		text = d.Why
	}
	if text != "" && text != l.saved.Said[how] {
		l.log.Info("MIG repartition", "act", string(d.Act), "why", d.Why)
		l.events.Event(history.Event{
			Kind: history.EventLayout, By: history.ByAgent,
			Text: fmt.Sprintf("repartition = %s: %s.", how, strings.TrimSuffix(d.Why, ".")),
		})
	}
	if l.saved.Said == nil {
		l.saved.Said = map[mig.Repartition]string{}
	}
	l.saved.Said[how] = text
}

// land notes of each steered GPU the layout that it really got: one that could not be made
// is decided on again, it is not waited for.
func (l *Layouts) land(ctx context.Context, steered []gpu.UUID) error {
	for _, u := range steered {
		s, err := l.executor.State(ctx, u)
		if err != nil {
			return err
		}
		is := s.Chip.Format(s.Layout())
		if is == l.saved.Chosen[u] {
			l.metrics.LayoutFollowed(u)
			continue
		}
		l.log.Warn("MIG layout did not follow", "gpu", u, "wanted", l.saved.Chosen[u], "is", is)
		l.saved.Chosen[u] = is
	}
	return l.write()
}
