package agent

import (
	"context"
	"time"

	"github.com/gpuslot/gpuslot/agent/starter"
)

// discover takes note of the starters that came. It says whether there are any that
// the startd is to be asked about.
func (b *jobTable) discover(arrivals *starter.Arrivals, now time.Time) bool {
	found := arrivals.New(b.proc, now)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range found {
		if !b.met(s) {
			b.unplaced = append(b.unplaced, unplaced{Starter: s, fresh: true})
		}
	}
	return len(found) > 0
}

// met: the starter is in the job table, or waits for the startd's word.
func (v *jobView) met(s starter.Starter) bool {
	for _, u := range v.unplaced {
		if u.Is(s) {
			return true
		}
	}
	return len(v.held(s)) > 0 || v.elsewhere[s.ID]
}

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
			if a.jobs.discover(seen, time.Now()) {
				nudge(a.booked)
			}
		}
		pause(ctx, v.config.Usage.Interval)
	}
}
