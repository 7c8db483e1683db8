package agent

import (
	"context"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/gpuslot/gpuslot/agent/closures"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/backoff"
)

const (
	// pulse is the pace of the loop's heartbeat while it waits, and of the cheap
	// look at the control daemons and their servers.
	tick = time.Second
	// pings is that of the watchdog's; the unit allows 30 s.
	pings = 5 * time.Second
	// spacing keeps jobs that are refused from driving the loop.
	spacing = 3 * time.Second
	// wedgedAfter is longer than any step of the loop may take: each has a
	// deadline of its own.
	wedgedAfter = 3 * time.Minute
)

// loop applies again and again. Its heart beats here and in the steps of apply,
// and nowhere else: a loop that hangs stops the pings, and systemd the agent. It
// ends with the context, or because this process must (ErrStartAgain).
func (a *Agent) loop(ctx context.Context, reload <-chan os.Signal) (again bool) {
	interval := func() time.Duration {
		if n := a.closures.Node(); n.Leaving() || n.Phase == closures.Resuming {
			return min(tick, a.view.Load().until())
		}
		return a.view.Load().until()
	}
	round := time.NewTimer(interval())
	defer round.Stop()
	heart := time.NewTicker(tick)
	defer heart.Stop()
	last := time.Now()
	due := last.Add(interval())
	for {
		again := false
		select {
		case <-ctx.Done():
			return false
		case <-heart.C:
			a.heart.beat()
			if turned := a.turnElastic(ctx); !a.keeper.Moved(a.view.Load().daemons) && !turned {
				continue
			}
		case <-reload:
			again = true
			a.heart.tell(a.heart.manager.Reloading())
		case o := <-a.keeper.Orders():
			a.keeper.Carry(ctx, o, &a.view.Load().plan)
			nudge(a.wake)
		case <-a.wake:
			// Soon, and the heart goes on beating until then.
			if soon := last.Add(min(spacing, interval())); soon.Before(due) {
				due = soon
				round.Reset(time.Until(due))
			}
			continue
		case <-round.C:
		}
		a.keeper.Moved(a.view.Load().daemons) // logs what ended before the next health check forgets it
		a.apply(ctx, again)
		if a.hardware.Healed() || a.quiescer.Leave(ctx) {
			return true
		}
		if again {
			a.heart.tell(a.heart.manager.Ready())
		}
		last = time.Now()
		due = last.Add(interval())
		round.Reset(time.Until(due))
	}
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

// heart shows the service manager that the loop is alive.
type heart struct {
	manager Manager
	log     *slog.Logger
	// last is when the loop last took a step, in nanoseconds since 1970.
	last atomic.Int64
}

// beat notes that the loop is alive.
func (h *heart) beat() { h.last.Store(time.Now().UnixNano()) }

// well says whether the loop has taken a step lately.
func (h *heart) well() bool { return time.Since(time.Unix(0, h.last.Load())) < wedgedAfter }

// tell logs what the service manager could not be told.
func (h *heart) tell(err error) {
	if err != nil {
		h.log.Warn("service manager not told", "err", err)
	}
}

// ping feeds the watchdog while the loop is well. It is not the loop itself
// that does, because a step may rightly take longer than the watchdog waits.
func (h *heart) ping(ctx context.Context) {
	for ctx.Err() == nil {
		if h.well() {
			h.tell(h.manager.Alive())
		}
		_ = backoff.Wait(ctx, pings) // the loop looks at the context
	}
}
