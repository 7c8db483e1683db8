package agent

import (
	"context"
	"time"

	"github.com/gpuslot/gpuslot/agent/starter"
)

// sampledLately: the sampling loop goes on, and looks after each sample for jobs that
// ended, so that a job's record has its last seconds. Nobody waits for its GPU.
func (a *Agent) sampledLately(v *view, now time.Time) bool {
	return v.plan.Observe && a.sampler != nil && now.Sub(a.sampler.Snapshot().At) <= staleAfter*v.config.Usage.Interval
}

// discoverJobs follows the jobs of an observed node. It has a loop of its own, as
// the sampling has, at the same pace.
func (a *Agent) discoverJobs(ctx context.Context) {
	seen := &starter.Arrivals{}
	for ctx.Err() == nil {
		v := a.view.Load()
		if v.plan.Observe {
			found := seen.New(a.proc, time.Now())
			a.jobs.Discover(found)
			if len(found) > 0 {
				a.startds.Entered()
			}
		}
		pause(ctx, v.config.Usage.Interval)
	}
}
