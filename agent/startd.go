package agent

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/admission"
	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/closures"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/startd"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// Startd is HTCondor on this machine.
type Startd interface {
	// Version is the installed one.
	Version(ctx context.Context) (condor.Version, error)
	// Slots are a startd's own ads of its slots; an empty name is HTCondor's own.
	Slots(ctx context.Context, startd string) ([]condor.Slot, error)
	// Restart lets a startd restart when its jobs have ended, and ends none.
	Restart(ctx context.Context, startd string) error
	// Reconfigure lets all daemons read their configuration again.
	Reconfigure(ctx context.Context) error
}

// HTCondor is the installed one, asked through its command-line programs.
type HTCondor struct{}

// Version asks condor_version.
func (HTCondor) Version(ctx context.Context) (condor.Version, error) {
	return condor.InstalledVersion(ctx)
}

// Slots asks the startd with condor_status -direct.
func (HTCondor) Slots(ctx context.Context, startd string) ([]condor.Slot, error) {
	return condor.Slots(ctx, startd)
}

// Restart asks the condor_master with condor_restart -peaceful.
func (HTCondor) Restart(ctx context.Context, startd string) error { return condor.Restart(ctx, startd) }

// Reconfigure asks the condor_master with condor_reconfig.
func (HTCondor) Reconfigure(ctx context.Context) error { return condor.Reconfigure(ctx) }

// Demand asks the collector with condor_status -schedd.
func (HTCondor) Demand(ctx context.Context, now time.Time) (condor.Demand, error) {
	return condor.PoolDemand(ctx, now)
}

// seen is what the startd said last.
type seen struct {
	at time.Time
	// err is why it could not be asked; answers is since when it could.
	err     error
	answers time.Time
	// startds are those that answered, changes what they do not run yet of the plan.
	startds []api.StatusStartd
	changes []api.Change
	// unreadable says of which slots the ads cannot be read.
	unreadable []string
	// draining are the GPUs of startds that are to restart.
	draining map[gpu.UUID]bool
}

// older: a startd runs with another layout than the plan's.
func (s *seen) older() bool {
	return slices.ContainsFunc(s.changes, func(c api.Change) bool { return c.Need != api.NeedReconfig })
}

// pending is what HTCondor does not run yet of the plan, for the slots' ads.
func (s *seen) pending() string {
	var says []string
	for _, c := range s.changes {
		says = append(says, c.Says)
	}
	return strings.Join(says, " ")
}

// How often the startd is asked: soon after an admission, for many of them at
// once, and now and then for its layout. Each time it answers twice (condor.Slots), and an
// answer is the ads of all its slots: with 64 jobs 60 ms of CPU together, 40 of them the
// startd's. A stream of jobs keeps the pace.
const (
	askSoon    = time.Second
	askPace    = 5 * time.Second
	askRetry   = 5 * time.Second
	askAnyway  = time.Minute
	askTimeout = 5 * time.Second
)

// confirm keeps the job table in step with the startd's word, off the hot path.
func (a *Agent) confirm(ctx context.Context) {
	next := time.NewTimer(askAnyway)
	defer next.Stop()
	asked := time.Now().Add(-askPace)
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.booked:
			a.gather(ctx, max(a.soon(askSoon), a.soon(askPace)-time.Since(asked)), next.C)
		case <-a.rewritten:
			pause(ctx, askSoon) // HTCondor may be about to read it
		case <-next.C:
		}
		asked = time.Now()
		if a.ask(ctx) {
			next.Reset(askAnyway)
		} else {
			next.Reset(a.soon(askRetry))
		}
	}
}

// soon is shorter on an observed node: nothing but the startd's answer tells of a
// job, and a short one ends before it.
func (a *Agent) soon(d time.Duration) time.Duration {
	if a.view.Load().plan.Observe {
		return d / 5
	}
	return d
}

// gather lets the admissions of a while come together for one question. Due ends it: an
// open question is asked again.
func (a *Agent) gather(ctx context.Context, d time.Duration, due <-chan time.Time) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-due:
	case <-a.rewritten:
		pause(ctx, askSoon)
	}
	select {
	case <-a.booked:
	default:
	}
}

// ask puts one question to the startd and corrects the job table. It says whether
// nothing is left open.
func (a *Agent) ask(ctx context.Context) (settled bool) {
	v := a.view.Load()
	all, err := a.askStartds(ctx)
	now := time.Now()
	word := &seen{at: now, err: err, startds: statusStartds(all), answers: now}
	if last := a.startdSays.Load(); last.err == nil && !last.answers.IsZero() {
		word.answers = last.answers
	}
	if len(word.startds) == 0 && err != nil {
		a.startdSays.Store(word)
		return false
	}
	var slots []condor.Slot
	for _, s := range all {
		slots = append(slots, s.slots...)
	}
	truth := jobs.Ads{
		Slots: map[string]condor.Slot{},
		Wall:  a.walls(v, time.Now()),
		Budget: func(u gpu.UUID, vram int64) gpu.MiB {
			g, ok := v.plan.Find(u)
			if ok && g.Shared() && vram <= 0 && v.plan.RequestVRAM.WithoutRequest == config.WithoutRequestShare {
				return g.DefaultRequest
			}
			return gpu.MiB(vram)
		},
	}
	if v.plan.Observe {
		truth.Observed, truth.Began = resolver(&v.plan), beginning
	}
	for _, s := range slots {
		truth.Slots[condor.SlotName(s.Name)] = s
		if s.Unreadable != "" {
			word.unreadable = append(word.unreadable, startd.Unreadable(s))
		}
	}
	if a.jobs.Unknown() != "" {
		truth.Account = a.proc.JobAccounts(ctx, slots)
	}
	found := a.jobs.Settle(truth)
	for _, m := range found.Mismatches {
		a.log.Error("the startd's word differs from the hook's; the startd's counts",
			"slot", m.Slot, "gpu", m.GPU, "differs", m.Text)
		a.metrics.Mismatch()
	}
	a.takeBack(ctx, found.Taken)
	for _, s := range found.Ignored {
		a.log.Warn("a condor_starter belongs to none of the startd's slots; its GPU is not known to "+
			"gpuslot", "slot", s.Slot, "pid", s.PID)
	}
	if v.planned && !v.plan.Observe && v.config.HTCondor.Manage && a.closures.Node().Phase != closures.Reverted {
		word.changes = startd.Explained(startd.Changes(a.node(v), word.startds, v.config.HTCondor.Changes), v.overridden)
		if v.written {
			word.draining = a.change(ctx, v, word.changes, word.startds, now)
		}
	}
	for _, text := range word.unreadable {
		if !slices.Contains(a.startdSays.Load().unreadable, text) {
			a.log.Error("what a slot has is not known", "err", text)
		}
	}
	a.tellChanges(a.startdSays.Load().changes, word.changes)
	a.startdSays.Store(word)
	return found.Open == 0 && (len(word.changes) == 0 || v.config.HTCondor.Changes == config.ChangesNever)
}

// tellChanges notes what HTCondor has yet to take up, and when it has.
func (a *Agent) tellChanges(before, now []api.Change) {
	has := func(all []api.Change, c api.Change) bool {
		return slices.ContainsFunc(all, func(o api.Change) bool {
			return o.Daemon == c.Daemon && o.Need == c.Need && o.Plan == c.Plan
		})
	}
	for _, c := range now {
		if !has(before, c) {
			a.note(history.Event{Kind: history.EventPlan, By: history.ByAgent, Text: c.Says})
			a.log.Warn("HTCondor runs an older plan", "change", c.Says)
		}
	}
	for _, c := range before {
		if !has(now, c) && !slices.ContainsFunc(now, func(o api.Change) bool { return o.Daemon == c.Daemon }) {
			a.note(history.Event{Kind: history.EventPlan, By: history.ByAgent, Text: c.Daemon + " runs as planned."})
			a.log.Info("HTCondor runs as planned", "daemon", c.Daemon)
		}
	}
}

// walls says what enforces a budget on a GPU of the plan; that of a GPU that is not shared
// is the GPU itself. It looks at the GPUs' health now, and later at nothing.
func (a *Agent) walls(v *view, now time.Time) func(u gpu.UUID, budget gpu.MiB) string {
	shared := map[gpu.UUID]admission.Health{}
	for i := range v.plan.GPUs {
		if g := &v.plan.GPUs[i]; g.Shared() {
			shared[g.UUID] = a.health(v, g.UUID, now)
		}
	}
	return func(u gpu.UUID, budget gpu.MiB) string {
		g, ok := v.plan.Find(u)
		switch {
		case !ok:
			return jobs.WallNone
		case g.Observed():
			return "" // nothing of ours
		case g.Alone():
			return jobs.WallMIG
		case !g.Shared():
			return jobs.WallWhole
		}
		return admission.Enforcement(g.LargestRequest, budget, shared[u])
	}
}
