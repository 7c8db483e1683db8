package elastic

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// Jobs is the job table; jobs.Table is the real one.
type Jobs interface {
	// Unknown says which job has a GPU that is not known; empty if there is none.
	Unknown() string
	// Look shows the jobs of one time.
	Look(at func(v *jobs.View))
}

// Slots are HTCondor's own ads of its slots.
type Slots interface {
	// Slots are those of a startd; an empty name is HTCondor's own.
	Slots(ctx context.Context, startd string) ([]condor.Slot, error)
}

// Events keeps what happened; history.Writer is the real one.
type Events interface{ Event(e history.Event) }

// Options are what a Group works with.
type Options struct {
	Jobs   Jobs
	Slots  Slots
	Events Events
	Log    *slog.Logger
}

// Group are the node's elastic GPUs. All methods may be called by several goroutines at a
// time. What decides on a side and what lets a job in must see the same jobs, so the job
// table's lock is taken before that of the group: Refuse is called by who has the view.
type Group struct {
	Options

	mu    sync.Mutex
	order []gpu.UUID
	state State
	// ready are those whose control daemon has ended and whose compute mode is back.
	ready map[gpu.UUID]bool
	// heard is when the startd's monitor was told of state, changed when it last changed.
	heard, changed time.Time
}

// NewGroup returns a group without GPUs. Follow gives it those of a plan.
func NewGroup(o Options) *Group { return &Group{Options: o} }

func (g *Group) index(u gpu.UUID) int { return slices.Index(g.order, u) }

// whole says whether a GPU serves whole jobs. The caller holds mu.
func (g *Group) whole(u gpu.UUID) bool {
	i := g.index(u)
	return i >= 0 && g.state.Sides[i] == Whole
}

// Follow takes over the elastic GPUs of a plan; those that are known stay on their
// sides, others are where was has them. It returns the plan as it is in force.
func (g *Group) Follow(p, was plan.Plan, now time.Time) plan.Plan {
	g.mu.Lock()
	defer g.mu.Unlock()
	if order := p.ElasticGPUs(); !slices.Equal(order, g.order) {
		before := func(i int) bool {
			old, known := was.GPU(order[i])
			return g.whole(order[i]) || g.index(order[i]) < 0 && known && old.Elastic && old.Mode == config.ModeWhole
		}
		g.state = New(len(order), before, now)
		g.order, g.ready, g.heard, g.changed = order, map[gpu.UUID]bool{}, time.Time{}, time.Time{}
	}
	return p.Turn(g.whole)
}

// SetUp notes which GPUs on the whole side are set up for it.
func (g *Group) SetUp(ready func(gpu.UUID) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, u := range g.order {
		g.ready[u] = g.whole(u) && ready(u)
	}
}

// members are the GPUs of the group now. The caller holds mu.
func (g *Group) members(running *jobs.View, held, broken func(gpu.UUID) bool) []GPU {
	out := make([]GPU, len(g.order))
	for i, u := range g.order {
		m := GPU{Ready: g.ready[u], Broken: broken(u), Held: held(u)}
		for _, j := range running.On(u) {
			m.Whole = m.Whole || j.EnforcedBy == jobs.EnforcedByWhole
			m.Shared = m.Shared || j.EnforcedBy != jobs.EnforcedByWhole
		}
		out[i] = m
	}
	return out
}

func never(gpu.UUID) bool { return false }

// Side is why a GPU takes no shared jobs; empty if it may, and for GPUs that are
// not elastic.
func (g *Group) Side(u gpu.UUID) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := g.index(u)
	switch {
	case i < 0 || g.state.Sides[i] == Shared:
		return ""
	case g.state.Sides[i] == Leaving:
		return "it is elastic and goes to whole jobs when its last shared job has ended: " + g.state.Why
	}
	return "it is elastic and serves whole jobs now"
}

// Refuse holds a job to the side that its elastic GPUs are on: it is the last to see
// that no GPU serves both. Whole is a job that has its GPUs alone.
func (g *Group) Refuse(
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
		planned, ok := p.GPU(u)
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

// Round lets the group go one step, and says whether a GPU has changed sides: then its
// control daemon and compute mode must follow. Nothing is decided while the GPU of a job is
// not known. Broken says of a GPU that it takes no jobs at all.
func (g *Group) Round(
	ctx context.Context, site config.Elastic, demand Demand, broken func(gpu.UUID) bool,
) (turned bool) {
	g.mu.Lock()
	order, moving := g.order, g.state.Moving()
	g.mu.Unlock()
	if len(order) == 0 || g.Jobs.Unknown() != "" {
		return false
	}
	held := never
	if moving {
		held = g.heldBySlots(ctx)
	}
	out := map[gpu.UUID]bool{}
	for _, u := range order {
		out[u] = broken(u)
	}
	var before, after State
	decided := false
	g.Jobs.Look(func(running *jobs.View) {
		g.mu.Lock()
		defer g.mu.Unlock()
		if decided = slices.Equal(order, g.order); !decided {
			return // another plan came meanwhile: the next round is for that
		}
		now := Now{At: time.Now(), Heard: g.heard, Demand: demand}
		now.GPUs = g.members(running, held, func(u gpu.UUID) bool { return out[u] })
		before, after = g.state, Decide(RulesOf(site, len(g.order)), g.state, now)
		g.state = after
		if after.Open != before.Open || after.Least != before.Least || !slices.Equal(after.Sides, before.Sides) {
			g.changed = now.At
		}
	})
	return decided && g.noted(order, before, after)
}

// noted notes what changed, and says whether a GPU changed sides.
func (g *Group) noted(order []gpu.UUID, before, after State) (turned bool) {
	if before.Target != after.Target {
		g.Log.Info("elastic GPUs", "whole", after.Target, "of", len(after.Sides), "reason", after.Why)
	}
	for i, u := range order {
		was, is := before.Sides[i], after.Sides[i]
		if was == is {
			continue
		}
		text := map[Side]string{
			Shared: "It serves shared jobs.", Whole: "It serves whole jobs.",
			Leaving: "It takes no new shared jobs, and goes to whole ones: " + after.Why + ".",
		}[is]
		g.Events.Event(history.Event{Kind: history.EventPlan, GPU: u, By: history.ByAgent, Text: text})
		turned = turned || (was == Whole) != (is == Whole)
	}
	return turned
}

// RulesOf are a site's rules for n GPUs.
func RulesOf(c config.Elastic, n int) Rules {
	most := n
	if c.MaxWhole > 0 {
		most = min(n, c.MaxWhole)
	}
	return Rules{Min: min(c.MinWhole, most), Max: most, Patience: c.Patience, Stay: c.Stay, Offer: c.Offer}
}

// slotsTimeout bounds the question for HTCondor's slots.
const slotsTimeout = 5 * time.Second

// heldBySlots are the GPUs of dynamic slots, also of those whose jobs have not come
// to the hook yet: their input may take long. Without HTCondor's word all are.
func (g *Group) heldBySlots(ctx context.Context) func(gpu.UUID) bool {
	ctx, cancel := context.WithTimeout(ctx, slotsTimeout)
	defer cancel()
	slots, err := g.Slots.Slots(ctx, "")
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

// Open answers the startd's monitor: which GPUs take whole jobs, none for a reason while
// jobs are unknown. It returns nil where no GPU is elastic.
func (g *Group) Open() *api.WholeGPUs {
	unknown := g.Jobs.Unknown()
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
