package agent

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/elastic"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
)

// elasticGroup are the node's elastic GPUs. Methods that take a view are called while it
// shows the job table: what decides on a side and what lets a job in must see the same.
// The job table's lock is always taken before that of the group.
type elasticGroup struct {
	mu    sync.Mutex
	order []gpu.UUID
	state elastic.State
	// ready are those whose control daemon has ended and whose compute mode is back.
	ready map[gpu.UUID]bool
	// heard is when the startd's monitor was told of state, changed when it last changed.
	heard, changed time.Time
}

func (g *elasticGroup) index(u gpu.UUID) int { return slices.Index(g.order, u) }

// whole says whether a GPU serves whole jobs.
func (g *elasticGroup) whole(u gpu.UUID) bool {
	i := g.index(u)
	return i >= 0 && g.state.Sides[i] == elastic.Whole
}

// regroup takes over the elastic GPUs of a plan; those that are known stay on their
// sides, others are where was has them. It returns the plan as it is in force.
func (g *elasticGroup) regroup(p, was plan.Plan, now time.Time) plan.Plan {
	g.mu.Lock()
	defer g.mu.Unlock()
	if order := p.ElasticGPUs(); !slices.Equal(order, g.order) {
		before := func(i int) bool {
			old, known := was.GPU(order[i])
			return g.whole(order[i]) || g.index(order[i]) < 0 && known && old.Elastic && old.Mode == config.ModeWhole
		}
		g.state = elastic.New(len(order), before, now)
		g.order, g.ready, g.heard, g.changed = order, map[gpu.UUID]bool{}, time.Time{}, time.Time{}
	}
	return p.Turn(g.whole)
}

// setUp notes which GPUs on the whole side are set up for it.
func (g *elasticGroup) setUp(ready func(gpu.UUID) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, u := range g.order {
		g.ready[u] = g.whole(u) && ready(u)
	}
}

// members are the GPUs of the group now. The caller holds mu.
func (g *elasticGroup) members(running *jobs.View, held, broken func(gpu.UUID) bool) []elastic.GPU {
	out := make([]elastic.GPU, len(g.order))
	for i, u := range g.order {
		m := elastic.GPU{Ready: g.ready[u], Broken: broken(u), Held: held(u)}
		for _, r := range running.On(u) {
			m.Whole = m.Whole || r.Wall == jobs.WallWhole
			m.Shared = m.Shared || r.Wall != jobs.WallWhole
		}
		out[i] = m
	}
	return out
}

func never(gpu.UUID) bool { return false }

// sideOf is why a GPU takes no shared jobs; empty if it may, and for GPUs that are
// not elastic.
func (g *elasticGroup) sideOf(u gpu.UUID) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := g.index(u)
	switch {
	case i < 0 || g.state.Sides[i] == elastic.Shared:
		return ""
	case g.state.Sides[i] == elastic.Leaving:
		return "it is elastic and goes to whole jobs when its last shared job has ended: " + g.state.Why
	}
	return "it is elastic and serves whole jobs now"
}

// refuse holds a job to the side that its elastic GPUs are on: it is the last to see
// that no GPU serves both.
func (g *elasticGroup) refuse(
	running *jobs.View, job starter.Starter, p *plan.Plan, gpus []gpu.UUID, whole bool,
) *api.Refusal {
	g.mu.Lock()
	defer g.mu.Unlock()
	members := g.members(running, never, never)
	for _, u := range gpus {
		i := g.index(u)
		if i < 0 || running.Has(job, u) {
			continue // none of the group, or the same job again
		}
		planned, ok := find(p, u)
		if whole && g.state.AdmitsWhole(i, members[i]) && ok && !planned.Shared() ||
			!whole && g.state.AdmitsShared(i, members[i]) {
			continue
		}
		serves := "whole"
		if whole {
			serves = "shared"
		}
		return api.Refuse(api.CodeClosed, fmt.Sprintf(
			"%s is closed: it is elastic and serves %s jobs now: the job waits in the queue for its turn", u, serves))
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
	if len(v.plan.ElasticGPUs()) == 0 || a.jobs.Unknown() != "" {
		return false
	}
	held, demand := never, a.queue.elastic(time.Now())
	if a.elastic.moves() {
		held = a.heldByStartd(ctx)
	}
	now := time.Now()
	broken := func(u gpu.UUID) bool {
		g, ok := find(&v.plan, u)
		return !ok || !v.present[u] || a.closedWhole(v, g, now) != "" || a.closures.On(u).Reason() != ""
	}
	var before, after elastic.State
	a.jobs.Look(func(running *jobs.View) {
		before, after = a.elastic.takeTurns(running, v.config.Elastic, held, broken, demand, now)
	})
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
func (g *elasticGroup) takeTurns(
	running *jobs.View, c config.Elastic, held, broken func(gpu.UUID) bool, demand elastic.Demand, now time.Time,
) (before, after elastic.State) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before = g.state
	g.state = elastic.Decide(rulesOf(c, len(g.order)), before,
		elastic.Now{At: now, Heard: g.heard, GPUs: g.members(running, held, broken), Demand: demand})
	after = g.state
	if after.Open != before.Open || after.Least != before.Least || !slices.Equal(after.Sides, before.Sides) {
		g.changed = now
	}
	return before, after
}

// moves says whether a GPU is between two sides.
func (g *elasticGroup) moves() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state.Moving()
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
func (a *Agent) wholeGPUs() *api.WholeGPUs { return a.elastic.open(a.jobs.Unknown()) }

// open are the GPUs that take whole jobs; none while jobs are unknown, for a reason. It
// returns nil where no GPU is elastic.
func (g *elasticGroup) open(unknown string) *api.WholeGPUs {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.order) == 0 {
		return nil
	}
	g.heard = time.Now()
	out := &api.WholeGPUs{Open: g.state.Open, Least: g.state.Least, Time: g.heard, Since: g.changed, GPUs: []string{}}
	for _, u := range g.order[:g.state.Open] {
		out.GPUs = append(out.GPUs, string(u))
	}
	switch {
	case unknown != "":
		out.Open, out.GPUs, out.Reason = 0, nil, unknown
	case g.state.Open == 0 && g.state.Target > 0:
		out.Reason = "GPUs are being made free for whole jobs"
	case g.state.Open == 0:
		out.Reason = "all elastic GPUs serve shared jobs now"
	}
	return out
}
