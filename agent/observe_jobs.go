package agent

import (
	"context"
	"time"

	"github.com/gpuslot/gpuslot/agent/starter"
)

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
