package agent

import (
	"time"

	"github.com/gpuslot/gpuslot/agent/admission"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/gpu"
)

// health is what admission rests on, but for the cheap check and for who holds
// the GPU closed.
func (a *Agent) health(v *view, u gpu.UUID, now time.Time) admission.Health {
	h := a.unverifiedHealth(v, u, now)
	if h.Closed == "" {
		h.Closed = a.unverified(v, u)
	}
	return h
}

// unverifiedHealth is the view's, with what servers, events and samples add.
func (a *Agent) unverifiedHealth(v *view, u gpu.UUID, now time.Time) admission.Health {
	h, n := v.health(u), a.samplingNode(v)
	if h.Closed == "" {
		h.Closed = v.daemons[u].Servers.Explain(a.troubles.Verdict(v.physical(u), now))
	}
	if h.Closed == "" {
		h.Closed = v.daemons[u].Servers.Closed(now)
	}
	if h.Closed == "" {
		h.Closed = a.sampling.Blocked(n, u)
	}
	if h.Closed == "" {
		h.Closed = a.sampling.Unseen(n, u, now)
	}
	unlisted := a.sampling.Unlisted(n, u, now)
	h.Unlisted = unlisted.Taken
	if h.Closed == "" && unlisted.Eaten > 0 {
		h.Closed = unlisted.String()
	}
	h.Watched = a.sampling.Enforces(n, u)
	h.CgroupLimits = a.limited(v, u)
	return h
}

// weaker orders walls.
func weaker(a, b string) bool {
	order := map[string]int{
		jobs.WallNone: 0, jobs.WallWatch: 1, jobs.WallDaemon: 2, jobs.WallCgroup: 3, jobs.WallWhole: 4, jobs.WallMIG: 4,
	}
	return order[a] < order[b]
}
