package agent

import (
	"context"
	"time"

	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/status"
	"github.com/gpuslot/gpuslot/agent/waiting"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// listenToPool asks the pool what waits, where something on this node changes by it.
func (a *Agent) listenToPool(ctx context.Context) {
	if a.pool == nil {
		return
	}
	interest := func() (*waiting.Interest, time.Duration) { return a.view.Load().interest() }
	a.queue.Run(ctx, a.pool, interest, func(d condor.Demand, err error) {
		a.layouts.Answered(d, err)
		nudge(a.wake)
	})
}

// interest says which waiting jobs count on this node, and when to ask for them again.
func (v *view) interest() (i *waiting.Interest, again time.Duration) {
	if !v.planned {
		return waiting.InterestOf(nil, v.config)
	}
	return waiting.InterestOf(&v.plan, v.config)
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

// reserve chooses the GPU that is closed to requests smaller than least, among those that
// jobs hear of. It is called with each answer to the startd's monitor.
func (a *Agent) reserve(s *status.Snapshot) (u gpu.UUID, least gpu.MiB) {
	if s.Plan.Observe {
		return "", 0
	}
	var rooms []waiting.Room
	for _, g := range s.GPUs {
		if g.Shared() {
			rooms = append(rooms, waiting.Room{
				GPU: g.UUID, Open: g.Reason == "", Largest: g.LargestRequest, Free: g.Pool - g.Budgeted,
			})
		}
	}
	u, least, fresh := a.queue.Reserve(rooms, s.At)
	if fresh {
		a.log.Info("GPU closed to small requests", "gpu", u, "mib", least)
		a.history.Event(history.Event{Kind: history.EventPlan, GPU: u, By: history.ByAgent,
			Text: "It takes no request_vram below " + least.String() + ": such a job has waited for long."})
	}
	return u, least
}
