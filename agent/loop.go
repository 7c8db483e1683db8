package agent

import (
	"context"
	"os"
	"time"
)

const (
	// pulse is the pace of the loop's heartbeat while it waits.
	pulse = 5 * time.Second
	// spacing keeps jobs that are refused from driving the loop.
	spacing = 3 * time.Second
	// wedgedAfter is longer than any step of the loop may take: each has a
	// deadline of its own.
	wedgedAfter = 3 * time.Minute
)

// loop applies again and again. The watchdog hears of it from here and from
// the steps of apply, and from nowhere else: a loop that hangs stops the pings.
func (a *Agent) loop(ctx context.Context, reload <-chan os.Signal) {
	interval := func() time.Duration { return a.view.Load().config.Health.Interval }
	round := time.NewTimer(interval())
	defer round.Stop()
	heart := time.NewTicker(pulse)
	defer heart.Stop()
	last := time.Now()
	for {
		again := false
		select {
		case <-ctx.Done():
			return
		case <-heart.C:
			a.beat()
			continue
		case <-reload:
			again = true
			a.tell(a.manager.Status("reading the configuration again"))
		case <-a.wake:
			pause(ctx, spacing-time.Since(last))
		case <-round.C:
		}
		a.apply(ctx, again)
		last = time.Now()
		round.Reset(interval())
	}
}

// beat notes that the loop is alive.
func (a *Agent) beat() { a.lastBeat.Store(time.Now().UnixNano()) }

// well says whether the loop has taken a step lately.
func (a *Agent) well() bool { return time.Since(time.Unix(0, a.lastBeat.Load())) < wedgedAfter }
