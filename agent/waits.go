package agent

import (
	"context"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/elastic"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/startd"
	"github.com/gpuslot/gpuslot/agent/waiting"
	"github.com/gpuslot/gpuslot/gpu"
)

// The time between two questions to the pool, and how long one may take.
const (
	askPoolMost  = time.Minute
	askPoolLeast = 2 * time.Second
)

// listenToPool asks the pool what waits, where something on this node changes by it. It is
// no part of the loop: a collector that does not answer delays nothing else.
func (a *Agent) listenToPool(ctx context.Context) {
	for ctx.Err() == nil {
		v := a.view.Load()
		interest, again := v.interest()
		if a.pool != nil && interest != nil {
			asking, cancel := context.WithTimeout(ctx, startd.AskTimeout)
			a.layouts.Answered(a.queue.Ask(asking, a.pool, *interest))
			cancel()
			nudge(a.wake)
		}
		pause(ctx, again)
	}
}

// interest says which waiting jobs count here, nil where nothing changes by them, and when
// to ask again: that follows the shortest wait that is to be noticed. Access points count
// once a minute.
func (v *view) interest() (i *waiting.Interest, again time.Duration) {
	c := v.config
	again = askPoolMost
	if !v.planned {
		return nil, askPoolLeast
	}
	if v.plan.Repartition() != "" {
		i, again = &waiting.Interest{}, c.Repartition.Interval
	}
	group := v.plan.ElasticGPUs()
	large := c.Placement.LargeAfter
	if c.Elastic.Demand != config.DemandQueue || len(group) == 0 && large == 0 {
		return i, again
	}
	if large > 0 {
		again = min(again, large)
	}
	if len(group) > 0 {
		again = min(again, c.Elastic.Patience)
	}
	return &waiting.Interest{
		Node: startd.Node(v.plan, c), Rules: elastic.RulesOf(c.Elastic, len(group)),
		Large: v.largeRequest(), LargeAfter: large,
	}, max(again, askPoolLeast)
}

// largeRequest is from which request_vram on a job is a large one.
func (v *view) largeRequest() gpu.MiB {
	if n := v.config.Placement.LargeRequest; n > 0 {
		return n
	}
	var largest gpu.MiB
	for _, g := range v.plan.GPUs {
		if g.Shared() {
			largest = max(largest, g.LargestRequest)
		}
	}
	return largest / 2
}

// turnElastic lets the elastic GPUs go one step, and says whether one has changed sides:
// then its control daemon and compute mode must follow.
func (a *Agent) turnElastic(ctx context.Context) (turned bool) {
	v, now := a.view.Load(), time.Now()
	gpus := a.gpus(v)
	return a.elastic.Round(ctx, v.config.Elastic, a.queue.Elastic(now), func(u gpu.UUID) bool {
		g, ok := v.plan.Find(u)
		return !ok || !v.present[u] || gpus.Whole(g, now) != "" || a.closures.On(u).Reason() != ""
	})
}

// wholeGPUs answers the startd's monitor: how many elastic GPUs take whole jobs.
func (a *Agent) wholeGPUs() *api.WholeGPUs { return a.elastic.Open() }

// reserve chooses the GPU that is closed to requests smaller than least, among those that
// jobs hear of. It is called with each answer to the startd's monitor.
func (a *Agent) reserve(judged map[gpu.UUID]judgement, p *plan.Plan, now time.Time) (u gpu.UUID, least gpu.MiB) {
	var rooms []waiting.Room
	for _, g := range p.GPUs {
		if j, ok := judged[g.UUID]; ok && g.Shared() {
			rooms = append(rooms, waiting.Room{
				GPU: g.UUID, Open: j.reason == "", Largest: g.LargestRequest, Free: g.Pool - j.used,
			})
		}
	}
	u, least, fresh := a.queue.Reserve(rooms, now)
	if fresh {
		a.log.Info("GPU closed to small requests", "gpu", u, "mib", least)
		a.history.Event(history.Event{Kind: history.EventPlan, GPU: u, By: history.ByAgent,
			Text: "It takes no request_vram below " + least.String() + ": such a job has waited for long."})
	}
	return u, least
}
