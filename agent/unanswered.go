package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// A control daemon serves one connection at a time, and reads one log pipe. A job that keeps
// them open, or passes them on to another job of its account, keeps the daemon from answering
// after its own end. A restart ends both for good (mps TestKeptConnection), and harms nobody
// while the GPU has no jobs.

const (
	// unansweredFor is how long a daemon that answers nobody is left alone on an idle GPU.
	unansweredFor = time.Minute
	// unansweredAgain is the time from one such restart to the next: a driver that hangs
	// keeps the new daemon from answering, too.
	unansweredAgain = 10 * time.Minute
)

// restartUnanswered restarts the daemons that have answered nobody for a while, on GPUs
// without jobs.
func (a *Agent) restartUnanswered(ctx context.Context, p *plan.Plan, guards map[gpu.UUID]guard, now time.Time) {
	for u, g := range guards {
		f := mps.FaultOf(g.err)
		switch {
		case f != mps.Busy && f != mps.Wedged:
			g.restartAt = time.Time{}
		case g.restartAt.IsZero():
			g.restartAt = now.Add(unansweredFor)
		case !now.Before(g.restartAt) && a.unused(p, u, now):
			g = a.restartOne(ctx, u, g)
			g.restartAt = now.Add(unansweredAgain)
		}
		guards[u] = g
	}
}

func (a *Agent) restartOne(ctx context.Context, u gpu.UUID, g guard) guard {
	why := g.err
	ctx, cancel := context.WithTimeout(ctx, restartTimeout)
	defer cancel()
	r := a.daemons.Restart(ctx, g.wanted)
	if r.Err != nil {
		a.log.Error("a control daemon that answers nobody was not restarted", "gpu", u, "err", r.Err)
	} else {
		a.note(history.Event{Kind: history.EventRestart, GPU: u, By: history.ByAgent,
			Text: fmt.Sprintf("Its control daemon was restarted: it had not answered for %s, and no job was there.", unansweredFor)})
		a.log.Warn("a control daemon that answered nobody was restarted", "gpu", u, "pid", r.Proof.PID, "why", why)
	}
	return g.next(g.wanted, r.Proof, r.Err)
}

// unused says for certain that no job is on a GPU, and no process but MPS servers.
func (a *Agent) unused(p *plan.Plan, u gpu.UUID, now time.Time) bool {
	g, ok := find(p, u)
	if !ok || a.sampler == nil || a.jobs.Busy(u) || a.jobs.Unknown() != "" {
		return false
	}
	snap := a.sampler.Snapshot()
	d, ok := snap.Device(site{}.device(g))
	if !ok || !d.Processes.Known || now.Sub(d.At) > staleAfter*a.view.Load().config.Usage.Interval {
		return false
	}
	for _, p := range d.Processes.Value {
		if p.Owner != usage.OwnerServer {
			return false
		}
	}
	return true
}
