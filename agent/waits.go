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
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// Waiting asks with condor_q -global.
func (HTCondor) Waiting(ctx context.Context, constraint string, limit int) ([]condor.WaitingJob, error) {
	return condor.IdleJobs(ctx, constraint, limit)
}

const (
	askQueueMost  = 30 * time.Second
	askQueueLeast = 2 * time.Second
)

// idle says which jobs to ask for, empty where it makes no difference, and when to ask
// again: that follows the shortest wait that is to be noticed.
func (v *view) idle() (want condor.Idle, again time.Duration) {
	c := v.config
	again = c.Elastic.Patience
	if l := c.Placement.LargeAfter; l > 0 {
		again = min(again, l)
	}
	again = min(max(again/2, askQueueLeast), askQueueMost)
	if c.Elastic.Demand != config.DemandQueue {
		return condor.Idle{}, again
	}
	rules := elastic.RulesOf(c.Elastic, len(v.plan.ElasticGPUs()))
	n := startd.Node(v.plan, c)
	return n.Idle(c.Elastic.Patience, c.Placement.LargeAfter, rules.Max, int64(v.largeRequest())), again
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
	return a.elastic.Round(ctx, v.config.Elastic, a.queue.Elastic(now), func(u gpu.UUID) bool {
		g, ok := find(&v.plan, u)
		return !ok || !v.present[u] || a.closedWhole(v, g, now) != "" || a.closures.On(u).Reason() != ""
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
		a.note(history.Event{Kind: history.EventPlan, GPU: u, By: history.ByAgent,
			Text: "It takes no request_vram below " + least.String() + ": such a job has waited for long."})
	}
	return u, least
}
