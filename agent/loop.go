package agent

import (
	"context"
	"os"
	"time"

	"github.com/gpuslot/gpuslot/agent/closures"
	"github.com/gpuslot/gpuslot/agent/daemons"
	"github.com/gpuslot/gpuslot/gpu/backoff"
)

const (
	// pulse is the pace of the loop's heartbeat while it waits, and of the cheap
	// look at the control daemons and their servers.
	pulse = time.Second
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
// ends with the context, or because this process must (ErrAnew).
func (a *Agent) loop(ctx context.Context, reload <-chan os.Signal) (anew bool) {
	interval := func() time.Duration {
		if n := a.closures.Node(); n.Leaving() || n.Phase == closures.Resuming {
			return min(pulse, a.view.Load().until())
		}
		return a.view.Load().until()
	}
	round := time.NewTimer(interval())
	defer round.Stop()
	heart := time.NewTicker(pulse)
	defer heart.Stop()
	last := time.Now()
	due := last.Add(interval())
	for {
		again := false
		select {
		case <-ctx.Done():
			return false
		case <-heart.C:
			a.beat()
			if turned := a.turnElastic(ctx); !a.moved() && !turned {
				continue
			}
		case <-reload:
			again = true
			a.tell(a.manager.Reloading())
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
		a.moved() // what ended is told before the next proof forgets it
		a.apply(ctx, again)
		if a.hardware.Healed() || a.quiescer.Leave(ctx) {
			return true
		}
		if again {
			a.tell(a.manager.Ready())
		}
		last = time.Now()
		due = last.Add(interval())
		round.Reset(time.Until(due))
	}
}

// until is the time to the next round.
func (v *view) until() time.Duration {
	return daemons.Pace(v.daemons, v.config.Health.Interval, time.Now())
}

// moved says whether a control daemon or a server is no longer what the last round saw.
func (a *Agent) moved() bool { return a.keeper.Moved(a.view.Load().daemons) }

// beat notes that the loop is alive.
func (a *Agent) beat() { a.lastBeat.Store(time.Now().UnixNano()) }

// well says whether the loop has taken a step lately.
func (a *Agent) well() bool { return time.Since(time.Unix(0, a.lastBeat.Load())) < wedgedAfter }

// ping feeds the watchdog while the loop is well. It is not the loop itself
// that does, because a step may rightly take longer than the watchdog waits.
func (a *Agent) ping(ctx context.Context) {
	t := time.NewTicker(pings)
	defer t.Stop()
	for {
		if a.well() {
			a.tell(a.manager.Alive())
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// pause waits, but not longer than the context.
func pause(ctx context.Context, d time.Duration) {
	_ = backoff.Wait(ctx, d) // the callers look at the context themselves
}
