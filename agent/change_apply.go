package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// How long after an order the same one is given again, the first time and at
// most: a startd that comes back as it was, because the site sets something
// else, must not restart for ever. A startd is back within restartTakes.
const (
	orderAgain   = 10 * time.Minute
	orderRarest  = 24 * time.Hour
	restartTakes = time.Minute
)

// ordered are the orders to HTCondor that have not shown their effect.
type ordered map[string]orderGiven

type orderGiven struct {
	plan  string
	at    time.Time
	again time.Duration
}

// due: the change was not ordered yet, or long ago.
func (o ordered) due(c api.Change, now time.Time) bool {
	if restart, ok := o[api.NeedRestart+c.Startd]; ok && c.Need == api.NeedStart && now.Sub(restart.at) < restartTakes {
		return false // it does not run because it restarts
	}
	last, ok := o[c.Need+c.Startd]
	return !ok || last.plan != c.Plan || now.Sub(last.at) >= last.again
}

// give books an order; each that has no effect doubles the time to the next.
func (o ordered) give(c api.Change, now time.Time) {
	again := orderAgain
	if last, ok := o[c.Need+c.Startd]; ok && last.plan == c.Plan {
		again = min(2*last.again, orderRarest)
	}
	o[c.Need+c.Startd] = orderGiven{c.Plan, now, again}
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

// change takes the steps that are due, and says which GPUs are being drained.
// HTCondor ends no job for any of them: a startd that is told to restart takes
// no new jobs and waits for those that run, however long.
func (a *Agent) change(ctx context.Context, v *view, changes []api.Change, running []api.StatusStartd, now time.Time) (draining map[gpu.UUID]bool) {
	policy := v.config.HTCondor.Changes
	for _, c := range changes {
		what := stepOf(c, policy)
		if what == "" || !a.ordered.due(c, now) {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		err := a.order(ctx, c, what)
		cancel()
		if err != nil {
			a.log.Error("HTCondor does not take up the plan", "err", err)
			continue
		}
		a.ordered.give(c, now)
		a.note(history.Event{Kind: history.EventPlan, By: history.ByAgent, Text: c.Says})
		a.log.Info("HTCondor takes up the plan", "change", c.Says)
	}
	a.ordered.forget(changes, running)
	return a.drained(changes, policy)
}

func (a *Agent) order(ctx context.Context, c api.Change, what string) error {
	if what == api.NeedRestart {
		return a.startd.Restart(ctx, c.Startd)
	}
	return a.startd.Reconfigure(ctx)
}

// forget drops the orders to startds that run as planned. One that does not
// answer may be restarting.
func (o ordered) forget(changes []api.Change, running []api.StatusStartd) {
	for _, s := range running {
		if slices.ContainsFunc(changes, func(c api.Change) bool { return c.Startd == s.Name }) {
			continue
		}
		for _, need := range []string{api.NeedRestart, api.NeedReconfig, api.NeedStart, api.NeedStop} {
			delete(o, need+s.Name)
		}
	}
}

// drained are the GPUs of the startds that were told to restart, and of those
// that are to go when their jobs have ended.
func (a *Agent) drained(changes []api.Change, policy config.Changes) map[gpu.UUID]bool {
	out := map[gpu.UUID]bool{}
	for _, c := range changes {
		_, told := a.ordered[c.Need+c.Startd]
		if told && c.Need == api.NeedRestart || c.Need == api.NeedStop && policy == config.ChangesDrain {
			for _, u := range c.GPUs {
				out[gpu.UUID(u)] = true
			}
		}
	}
	return out
}

// startdRestarts is why a GPU takes no jobs while its startd is to restart.
const startdRestarts = "its startd restarts for the new plan when the jobs on it have ended"

// statusStartds are the startds as they answered.
func statusStartds(said []startdSlots) []api.StatusStartd {
	var out []api.StatusStartd
	for _, s := range said {
		if s.err != nil || len(s.slots) == 0 {
			continue
		}
		now := api.StatusStartd{Name: s.name, Daemon: condor.Startd{Name: s.name}.Daemon()}
		for _, slot := range s.slots {
			now.Plans, now.Configs = append(now.Plans, slot.Plan), append(now.Configs, slot.Config)
			now.GPUs = append(now.GPUs, slot.AssignedGPUs...)
			if slot.Layout != "" {
				now.Layout = append(now.Layout, slot.Layout)
			}
			if slot.JobID != "" {
				now.Jobs = append(now.Jobs, api.ChangeJob{Slot: condor.SlotName(slot.Name), ID: slot.JobID, Owner: slot.Owner()})
			}
		}
		for _, list := range []*[]string{&now.Plans, &now.Configs, &now.GPUs} {
			slices.Sort(*list)
			*list = slices.Compact(*list)
		}
		slices.Sort(now.Layout)
		slices.SortFunc(now.Jobs, func(a, b api.ChangeJob) int { return strings.Compare(a.Slot, b.Slot) })
		out = append(out, now)
	}
	return out
}

// startdSlots are the slots of one startd, or why it did not tell.
type startdSlots struct {
	name  string
	slots []condor.Slot
	err   error
}

// askStartds asks HTCondor's own, and the GPUs' that run. One that does not
// answer keeps no other from being heard; the error is the first one's.
func (a *Agent) askStartds(ctx context.Context) (all []startdSlots, err error) {
	for _, name := range append([]string{""}, a.proc.Startds()...) {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		slots, e := a.startd.Slots(ctx, name)
		cancel()
		if e != nil && name != "" {
			e = fmt.Errorf("%s: %w", condor.Startd{Name: name}.Daemon(), e)
		}
		if e != nil && err == nil {
			err = e
		}
		all = append(all, startdSlots{name, slots, e})
	}
	return all, err
}
