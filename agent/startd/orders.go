package startd

import (
	"context"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/gpu"
)

// How long after an order the same one is given again, the first time and at most: a startd
// that comes back as it was, because the site sets something else, must not restart for
// ever. A startd is back within restartTakes.
const (
	orderAgain   = 10 * time.Minute
	orderRarest  = 24 * time.Hour
	restartTakes = time.Minute
)

// orders are those to HTCondor that have not shown their effect.
type orders map[string]orderGiven

type orderGiven struct {
	plan  string
	at    time.Time
	again time.Duration
}

// due: the change was not ordered yet, or long ago.
func (o orders) due(c api.Change, now time.Time) bool {
	restart, ok := o[api.NeedRestart+c.Startd]
	if ok && c.Need == api.NeedStart && now.Sub(restart.at) < restartTakes {
		return false // it does not run because it restarts
	}
	last, ok := o[c.Need+c.Startd]
	return !ok || last.plan != c.Plan || now.Sub(last.at) >= last.again
}

// give notes an order; each that has no effect doubles the time to the next.
func (o orders) give(c api.Change, now time.Time) {
	again := orderAgain
	if last, ok := o[c.Need+c.Startd]; ok && last.plan == c.Plan {
		again = min(2*last.again, orderRarest)
	}
	o[c.Need+c.Startd] = orderGiven{c.Plan, now, again}
}

// forget drops the orders to startds that run as planned. One that does not answer may be
// restarting.
func (o orders) forget(changes []api.Change, running []api.StatusStartd) {
	for _, s := range running {
		if slices.ContainsFunc(changes, func(c api.Change) bool { return c.Startd == s.Name }) {
			continue
		}
		for _, need := range []string{api.NeedRestart, api.NeedReconfig, api.NeedStart, api.NeedStop} {
			delete(o, need+s.Name)
		}
	}
}

// stepOf is what to do about a change now; empty is to wait. It is pure.
func stepOf(c api.Change, policy config.Changes) string {
	idle := len(c.Jobs) == 0
	switch {
	case c.Blocked != "" || c.Need == api.NeedStop && !idle:
		return ""
	case policy == config.ChangesDrain || policy == config.ChangesWhenIdle && idle:
		return c.Need
	}
	return ""
}

// order takes the steps that are due, and returns the GPUs of startds that are drained:
// those that were told to restart, and those that are to go when their jobs have ended.
// HTCondor ends no job for any of them: a startd that is told to restart takes no new jobs
// and waits for those that run, however long.
func (s *Startds) order(
	ctx context.Context, policy config.Changes, changes []api.Change, running []api.StatusStartd, now time.Time,
) (draining map[gpu.UUID]bool) {
	for _, c := range changes {
		what := stepOf(c, policy)
		if what == "" || !s.ordered.due(c, now) {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, AskTimeout)
		var err error
		if what == api.NeedRestart {
			err = s.o.HTCondor.Restart(ctx, c.Startd)
		} else {
			err = s.o.HTCondor.Reconfigure(ctx)
		}
		cancel()
		if err != nil {
			s.o.Log.Error("HTCondor does not take up the plan", "err", err)
			continue
		}
		s.ordered.give(c, now)
		s.o.Events.Event(history.Event{Kind: history.EventPlan, By: history.ByAgent, Text: c.Says})
		s.o.Log.Info("HTCondor takes up the plan", "change", c.Says)
	}
	s.ordered.forget(changes, running)
	draining = map[gpu.UUID]bool{}
	for _, c := range changes {
		_, given := s.ordered[c.Need+c.Startd]
		if given && c.Need == api.NeedRestart || c.Need == api.NeedStop && policy == config.ChangesDrain {
			for _, u := range c.GPUs {
				draining[gpu.UUID(u)] = true
			}
		}
	}
	return draining
}
