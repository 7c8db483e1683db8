package agent

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/elastic"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
)

// group are the node's elastic GPUs, a part of the job table: what decides on a side and
// what lets a job in must see the same.
type group struct {
	order []gpu.UUID
	state elastic.State
	// ready are those whose control daemon has ended and whose compute mode is back.
	ready map[gpu.UUID]bool
	// heard is when the startd's monitor was told of state, changed when it last changed.
	heard, changed time.Time
}

func (g *group) index(u gpu.UUID) int { return slices.Index(g.order, u) }

// whole says whether a GPU serves whole jobs.
func (g *group) whole(u gpu.UUID) bool {
	i := g.index(u)
	return i >= 0 && g.state.Sides[i] == elastic.Whole
}

// regroup takes over the elastic GPUs of a plan; those that are known stay on their
// sides, others are where was has them. It returns the plan as it is in force.
func (b *jobTable) regroup(p, was plan.Plan, now time.Time) plan.Plan {
	b.mu.Lock()
	defer b.mu.Unlock()
	order, old := p.ElasticGPUs(), b.group
	if !slices.Equal(order, old.order) {
		before := func(i int) bool {
			g, known := was.GPU(order[i])
			return old.whole(order[i]) || old.index(order[i]) < 0 && known && g.Elastic && g.Mode == config.ModeWhole
		}
		b.group = group{order: order, state: elastic.New(len(order), before, now), ready: map[gpu.UUID]bool{}}
	}
	return p.Turn(b.group.whole)
}

// setUp notes which GPUs on the whole side are set up for it.
func (b *jobTable) setUp(ready func(gpu.UUID) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, u := range b.group.order {
		b.group.ready[u] = b.group.whole(u) && ready(u)
	}
}

// members are the GPUs of the group now.
func (v *jobView) members(held, broken func(gpu.UUID) bool) []elastic.GPU {
	out := make([]elastic.GPU, len(v.group.order))
	for i, u := range v.group.order {
		g := elastic.GPU{Ready: v.group.ready[u], Broken: broken(u), Held: held(u)}
		for _, r := range v.on(u) {
			g.Whole = g.Whole || r.Wall == wallWhole
			g.Shared = g.Shared || r.Wall != wallWhole
		}
		out[i] = g
	}
	return out
}

func never(gpu.UUID) bool { return false }

// sideOf is why a GPU takes no shared jobs; empty if it may, and for GPUs that are
// not elastic.
func (v *jobView) sideOf(u gpu.UUID) string {
	i := v.group.index(u)
	switch {
	case i < 0 || v.group.state.Sides[i] == elastic.Shared:
		return ""
	case v.group.state.Sides[i] == elastic.Leaving:
		return "it is elastic and goes to whole jobs when its last shared job has ended: " + v.group.state.Why
	}
	return "it is elastic and serves whole jobs now"
}

// refuseSide holds a job to the side that its elastic GPUs are on: it is the last to
// see that no GPU serves both.
func (v *jobView) refuseSide(starter starter.Starter, p *plan.Plan, gpus []gpu.UUID, whole bool) *api.Refusal {
	members := v.members(never, never)
	for _, u := range gpus {
		i := v.group.index(u)
		g, _ := find(p, u)
		if i < 0 || slices.ContainsFunc(v.on(u), func(r Running) bool { return r.Starter.Is(starter) }) {
			continue // none of the group, or the same job again
		}
		state := v.group.state
		if whole && state.AdmitsWhole(i, members[i]) && g != nil && !g.Shared() || !whole && state.AdmitsShared(i, members[i]) {
			continue
		}
		return api.Refuse(api.CodeClosed, fmt.Sprintf("%s is closed: it is elastic and serves %s jobs now: the job waits in the queue for its turn", u, map[bool]string{true: "shared", false: "whole"}[whole]))
	}
	return nil
}

// wantsWhole says whether a job on an elastic GPU came by the slot of whole jobs: as
// START has it, by what the slot was provisioned with.
func wantsWhole(job *api.Job, g *plan.GPU, rule config.WithoutRequest) bool {
	if len(job.AssignedGPUs) > 1 {
		return true
	}
	if job.ProvisionedVRAM == nil || *job.ProvisionedVRAM <= 0 {
		return rule == config.WithoutRequestWhole
	}
	return gpu.MiB(*job.ProvisionedVRAM) > g.LargestRequest
}

// turnElastic lets the group of elastic GPUs go one step, and says whether a GPU has
// changed sides: then its control daemon and compute mode must follow.
func (a *Agent) turnElastic(ctx context.Context) (turned bool) {
	v := a.view.Load()
	if len(v.plan.ElasticGPUs()) == 0 || a.jobs.unknown() != "" {
		return false
	}
	held, demand := never, a.queue.elastic(time.Now())
	if a.jobs.groupMoves() {
		held = a.heldByStartd(ctx)
	}
	now := time.Now()
	broken := func(u gpu.UUID) bool {
		g, ok := find(&v.plan, u)
		return !ok || !v.present[u] || a.closedWhole(v, g, now) != "" || a.closures.On(u).Reason() != ""
	}
	before, after := a.jobs.takeTurns(v.config.Elastic, held, broken, demand, now)
	return a.tellTurn(v, before, after)
}

// tellTurn notes what changed and says whether a GPU changed sides.
func (a *Agent) tellTurn(v *view, before, after elastic.State) (turned bool) {
	if before.Target != after.Target {
		a.log.Info("elastic GPUs", "whole", after.Target, "of", len(after.Sides), "reason", after.Why)
	}
	for i, u := range v.plan.ElasticGPUs() {
		was, is := before.Sides[i], after.Sides[i]
		if was == is {
			continue
		}
		text := map[elastic.Side]string{elastic.Shared: "It serves shared jobs.", elastic.Whole: "It serves whole jobs.",
			elastic.Leaving: "It takes no new shared jobs, and goes to whole ones: " + after.Why + "."}[is]
		a.note(history.Event{Kind: history.EventPlan, GPU: u, By: history.ByAgent, Text: text})
		turned = turned || (was == elastic.Whole) != (is == elastic.Whole)
	}
	return turned
}

// takeTurns decides which side each elastic GPU serves from now on.
func (b *jobTable) takeTurns(c config.Elastic, held, broken func(gpu.UUID) bool, demand elastic.Demand, now time.Time) (before, after elastic.State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := &b.group
	before = g.state
	g.state = elastic.Decide(rulesOf(c, len(g.order)), before,
		elastic.Now{At: now, Heard: g.heard, GPUs: b.members(held, broken), Demand: demand})
	after = g.state
	if after.Open != before.Open || after.Least != before.Least || !slices.Equal(after.Sides, before.Sides) {
		g.changed = now
	}
	return before, after
}

func (b *jobTable) groupMoves() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.group.state.Moving()
}

// rulesOf are a site's rules for n GPUs.
func rulesOf(c config.Elastic, n int) elastic.Rules {
	most := n
	if c.MaxWhole > 0 {
		most = min(n, c.MaxWhole)
	}
	return elastic.Rules{Min: min(c.MinWhole, most), Max: most, Patience: c.Patience, Stay: c.Stay, Offer: c.Offer}
}

// heldByStartd are the GPUs of dynamic slots, also of those whose jobs have not come
// to the hook yet: their input may take long. Without the startd's word all are.
func (a *Agent) heldByStartd(ctx context.Context) func(gpu.UUID) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	slots, err := a.startd.Slots(ctx, "")
	held := map[gpu.UUID]bool{}
	unknown := err != nil
	for _, s := range slots {
		unknown = unknown || s.Unreadable != ""
		for _, id := range s.AssignedGPUs {
			if s.Type != "Partitionable" {
				held[gpu.UUID(id)] = true
			}
		}
	}
	return func(u gpu.UUID) bool { return unknown || held[u] }
}

// wholeGPUs answers the startd's monitor: how many elastic GPUs take whole jobs.
func (a *Agent) wholeGPUs() *api.WholeGPUs { return a.jobs.wholeGPUs() }

func (b *jobTable) wholeGPUs() *api.WholeGPUs {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := &b.group
	if len(g.order) == 0 {
		return nil
	}
	g.heard = time.Now()
	out := &api.WholeGPUs{Open: g.state.Open, Least: g.state.Least, Time: g.heard, Since: g.changed, GPUs: []string{}}
	for _, u := range g.order[:g.state.Open] {
		out.GPUs = append(out.GPUs, string(u))
	}
	why := b.whyUnknown()
	switch {
	case why != "":
		out.Open, out.GPUs, out.Reason = 0, nil, why
	case g.state.Open == 0 && g.state.Target > 0:
		out.Reason = "GPUs are being made free for whole jobs"
	case g.state.Open == 0:
		out.Reason = "all elastic GPUs serve shared jobs now"
	}
	return out
}
