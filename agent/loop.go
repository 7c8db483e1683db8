package agent

import (
	"context"
	"time"
)

const (
	// pulse is the pace of the watchdog's pings while the loop waits.
	pulse = 5 * time.Second
	// spacing keeps jobs that are refused from driving the loop.
	spacing = 3 * time.Second
)

// loop applies again and again. The watchdog is fed from here and from the
// steps of apply, and nowhere else: a loop that hangs stops the pings.
func (a *Agent) loop(ctx context.Context, reload <-chan struct{}) {
	interval := func() time.Duration { return a.view.Load().config.Health.Interval }
	round := time.NewTimer(interval())
	defer round.Stop()
	ping := time.NewTicker(pulse)
	defer ping.Stop()
	last := time.Now()
	for {
		again := false
		select {
		case <-ctx.Done():
			return
		case <-ping.C:
			a.beat()
			continue
		case <-reload:
			again = true
			a.tell(a.manager.Reloading())
		case <-a.wake:
			pause(ctx, spacing-time.Since(last))
		case <-round.C:
		}
		a.apply(ctx, again)
		if again {
			a.tell(a.manager.Ready())
		}
		last = time.Now()
		round.Reset(interval())
	}
}

// beat tells the service manager that the loop is alive.
func (a *Agent) beat() { a.tell(a.manager.Alive()) }
