package agent

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/gpuslot/gpuslot/agent/closures"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
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
		case o := <-a.orders:
			a.carryOut(ctx, o)
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
		if a.healed || a.quiescer.Leave(ctx) {
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

// recovering is the pace of the rounds while a server is not well: jobs wait
// for the next proof.
const recovering = 3 * time.Second

// until is the time to the next round.
func (v *view) until() time.Duration {
	d := v.config.Health.Interval
	for _, g := range v.guards {
		if f := mps.FaultOf(g.err); f == mps.Busy || f == mps.Wedged {
			d = min(d, pulse) // the next attempt tells whether it is for good
		}
		if !g.servers.faulted.IsZero() || !g.servers.waiting.IsZero() {
			d = min(d, recovering)
		}
		if g.trial.hurries(time.Now()) {
			d = min(d, pulse)
		}
	}
	return d
}

// moved says whether a control daemon or a server is no longer what the last
// round saw: it ended, was suspended or goes on, by the cheap check.
func (a *Agent) moved() bool {
	moved := false
	for u, g := range a.view.Load().guards {
		if g.proof.PID == 0 {
			continue
		}
		p := a.daemons.Pulse(u, g.proof)
		now, was := mps.FaultOf(p.Err), mps.FaultOf(g.err)
		if g.err == nil && now != "" || was == mps.Suspended && now != mps.Suspended {
			moved = true
		}
		for _, s := range p.Died {
			if a.mourn(u, s) {
				moved = true
			}
		}
	}
	return moved
}

// mourn tells of a server's end, once. One without clients made way for
// another account's, most likely.
func (a *Agent) mourn(u gpu.UUID, s mps.Server) bool {
	if a.mourned[u] == s.ID {
		return false
	}
	a.mourned[u] = s.ID
	level := slog.LevelInfo
	if len(s.Clients) > 0 {
		level = slog.LevelError
		a.metrics.ServerDied(u)
	}
	if len(s.Clients) > 0 {
		a.note(history.Event{Kind: history.EventFault, GPU: u, Text: fmt.Sprintf("MPS server %d ended with %d clients.", s.PID, len(s.Clients))})
	}
	a.log.Log(context.Background(), level, "MPS server ended", "gpu", u, "pid", s.PID, "clients", s.Clients)
	return true
}

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
