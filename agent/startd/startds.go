package startd

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// HTCondor answers for the startds of this machine; Programs is the real one.
type HTCondor interface {
	// Slots are a startd's own ads of its slots; an empty name is HTCondor's own startd.
	Slots(ctx context.Context, startd string) ([]condor.Slot, error)
	// Restart lets a startd restart when its jobs have ended, and ends none.
	Restart(ctx context.Context, startd string) error
	// Reconfigure lets all daemons read their configuration again.
	Reconfigure(ctx context.Context) error
}

// Local says which startds run on this machine besides HTCondor's own; starter.Node is
// the real one.
type Local interface{ Startds() []string }

// Events keep what happens; history.Writer is the real one.
type Events interface{ Event(e history.Event) }

// Options are what Startds work with.
type Options struct {
	HTCondor HTCondor
	Local    Local
	Events   Events
	Log      *slog.Logger
	// Wanted is what the startds are to run now.
	Wanted func() Wanted
	// Settle corrects the job table by the ads of all slots. It says whether nothing is
	// left to be asked.
	Settle func(ctx context.Context, slots []condor.Slot) (settled bool)
}

// Wanted is what the startds are to run.
type Wanted struct {
	// Observe: no hook reports jobs, so that the startds are asked sooner.
	Observe bool
	// Compare: the startds are to run Node. Written: its files are there, so that orders
	// have an effect.
	Compare, Written bool
	Node             condor.Node
	Policy           config.Changes
	// Overridden are settings of the site that take something away from Node.
	Overridden []condor.Override
}

// Said is what the startds said last.
type Said struct {
	At time.Time
	// Err is why they could not be asked; Answers is since when they could.
	Err     error
	Answers time.Time
	// Startds are those that answered, Changes what they do not run yet of the plan.
	Startds []api.StatusStartd
	Changes []api.Change
	// Unreadable says of which slots the ads cannot be read.
	Unreadable []string
	// Draining are the GPUs of startds that are to restart.
	Draining map[gpu.UUID]bool
}

// Older says whether a startd runs with another layout than the plan's.
func (s *Said) Older() bool {
	return slices.ContainsFunc(s.Changes, func(c api.Change) bool { return c.Need != api.NeedReconfig })
}

// Pending is what HTCondor does not run yet of the plan, for the slots' ads.
func (s *Said) Pending() string {
	var says []string
	for _, c := range s.Changes {
		says = append(says, c.Says)
	}
	return strings.Join(says, " ")
}

// How often the startds are asked: soon after an admission, for many of them at once, and
// now and then for their layout. An answer is the ads of all its slots (condor.Slots): with
// 64 jobs two of them took 60 ms of CPU, 40 of these the startd's. A stream of jobs keeps the pace.
const (
	askSoon   = time.Second
	askPace   = 15 * time.Second
	askRetry  = 5 * time.Second
	askAnyway = time.Minute
	// AskTimeout bounds one question to HTCondor.
	AskTimeout = 5 * time.Second
)

// Restarts is why a GPU takes no jobs while its startd is to restart.
const Restarts = "its startd restarts for the new plan when the jobs on it have ended"

// Startds are the startds of this node. Run and Ask belong to one goroutine; all may call
// the other methods.
type Startds struct {
	o    Options
	said atomic.Pointer[Said]
	// entered and rewritten wake Run: jobs were admitted, or HTCondor's configuration was
	// written.
	entered, rewritten chan struct{}
	// ordered are the orders that have not shown their effect.
	ordered orders
}

// New returns startds that were not asked yet.
func New(o Options) *Startds {
	s := &Startds{o: o, entered: make(chan struct{}, 1), rewritten: make(chan struct{}, 1), ordered: orders{}}
	s.said.Store(&Said{})
	return s
}

// Said is what they said last. The caller must not change it.
func (s *Startds) Said() *Said { return s.said.Load() }

// Entered lets the startds be asked soon, because the job table changed.
func (s *Startds) Entered() { wake(s.entered) }

// Rewritten lets the startds be asked soon, because their configuration was written.
func (s *Startds) Rewritten() { wake(s.rewritten) }

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it is woken already
	}
}

// Run keeps the job table in step with the startds' ads, until the context ends.
func (s *Startds) Run(ctx context.Context) {
	next := time.NewTimer(askAnyway)
	defer next.Stop()
	asked := time.Now().Add(-askPace)
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.entered:
			due := next.C
			if said := s.Said(); said.Err == nil && len(said.Changes) == 0 {
				due = nil // only jobs of the stream are open
			}
			s.gather(ctx, max(s.soon(askSoon), s.soon(askPace)-time.Since(asked)), due)
		case <-s.rewritten:
			s.awaitReading(ctx)
		case <-next.C:
		}
		select {
		case <-s.entered: // the question is about these, too
		default:
		}
		asked = time.Now()
		if s.Ask(ctx) {
			next.Reset(askAnyway)
		} else {
			next.Reset(s.soon(askRetry))
		}
	}
}

// soon is shorter on an observed node: only the startd's answer reports a job, and a short
// job ends before it.
func (s *Startds) soon(d time.Duration) time.Duration {
	if s.o.Wanted().Observe {
		return d / 5
	}
	return d
}

// awaitReading gives HTCondor the time to read a configuration that was just written.
func (s *Startds) awaitReading(ctx context.Context) {
	t := time.NewTimer(askSoon)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// gather lets the admissions of a while come together for one question. Due ends it.
func (s *Startds) gather(ctx context.Context, d time.Duration, due <-chan time.Time) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-due:
	case <-s.rewritten:
		s.awaitReading(ctx)
	}
}

// Ask asks the startds once, corrects the job table, and orders what is due. It says
// whether nothing is left open.
func (s *Startds) Ask(ctx context.Context) (settled bool) {
	w, last := s.o.Wanted(), s.said.Load()
	all, err := s.Slots(ctx)
	now := time.Now()
	said := &Said{At: now, Err: err, Startds: statusOf(all), Answers: now}
	if last.Err == nil && !last.Answers.IsZero() {
		said.Answers = last.Answers
	}
	if len(said.Startds) == 0 && err != nil {
		s.said.Store(said)
		return false
	}
	var slots []condor.Slot
	for _, one := range all {
		slots = append(slots, one.Slots...)
	}
	for _, slot := range slots {
		if slot.Unreadable != "" {
			said.Unreadable = append(said.Unreadable, Unreadable(slot))
		}
	}
	settled = s.o.Settle(ctx, slots)
	if w.Compare {
		said.Changes = Explained(Changes(w.Node, said.Startds, w.Policy), w.Overridden)
		if w.Written {
			said.Draining = s.order(ctx, w.Policy, said.Changes, said.Startds, now)
		}
	}
	for _, text := range said.Unreadable {
		if !slices.Contains(last.Unreadable, text) {
			s.o.Log.Error("what a slot has is not known", "err", text)
		}
	}
	s.report(last.Changes, said.Changes)
	s.said.Store(said)
	return settled && (len(said.Changes) == 0 || w.Policy == config.ChangesNever)
}

// report notes what HTCondor has yet to take up, and when it has.
func (s *Startds) report(before, now []api.Change) {
	has := func(all []api.Change, c api.Change) bool {
		return slices.ContainsFunc(all, func(o api.Change) bool {
			return o.Daemon == c.Daemon && o.Need == c.Need && o.Plan == c.Plan
		})
	}
	for _, c := range now {
		if !has(before, c) {
			s.o.Events.Event(history.Event{Kind: history.EventPlan, By: history.ByAgent, Text: c.Says})
			s.o.Log.Warn("HTCondor runs an older plan", "change", c.Says)
		}
	}
	for _, c := range before {
		if !has(now, c) && !slices.ContainsFunc(now, func(o api.Change) bool { return o.Daemon == c.Daemon }) {
			s.o.Events.Event(history.Event{
				Kind: history.EventPlan, By: history.ByAgent, Text: c.Daemon + " runs as planned.",
			})
			s.o.Log.Info("HTCondor runs as planned", "daemon", c.Daemon)
		}
	}
}

// Answer is the slots of one startd, or why it did not answer.
type Answer struct {
	Name  string
	Slots []condor.Slot
	Err   error
}

// Slots asks HTCondor's own startd and those of the GPUs that run. It asks all of them,
// also after one did not answer; the error is the first one's.
func (s *Startds) Slots(ctx context.Context) (all []Answer, err error) {
	for _, name := range append([]string{""}, s.o.Local.Startds()...) {
		ctx, cancel := context.WithTimeout(ctx, AskTimeout)
		slots, e := s.o.HTCondor.Slots(ctx, name)
		cancel()
		if e != nil && name != "" {
			e = fmt.Errorf("%s: %w", condor.Startd{Name: name}.Daemon(), e)
		}
		if e != nil && err == nil {
			err = e
		}
		all = append(all, Answer{name, slots, e})
	}
	return all, err
}

// Ads are the slots of all startds together.
type Ads struct{ *Startds }

// Slots are the startds' own ads of their slots.
func (a Ads) Slots(ctx context.Context) (all []condor.Slot, err error) {
	answers, err := a.Startds.Slots(ctx)
	for _, one := range answers {
		all = append(all, one.Slots...)
	}
	return all, err
}

// statusOf are the startds that answered.
func statusOf(all []Answer) []api.StatusStartd {
	var out []api.StatusStartd
	for _, s := range all {
		if s.Err != nil || len(s.Slots) == 0 {
			continue
		}
		now := api.StatusStartd{Name: s.Name, Daemon: condor.Startd{Name: s.Name}.Daemon()}
		for _, slot := range s.Slots {
			now.Plans, now.Configs = append(now.Plans, slot.Plan), append(now.Configs, slot.Config)
			now.GPUs = append(now.GPUs, slot.AssignedGPUs...)
			if slot.Layout != "" {
				now.Layout = append(now.Layout, slot.Layout)
			}
			if slot.JobID != "" {
				now.Jobs = append(now.Jobs, api.ChangeJob{
					Slot: condor.SlotName(slot.Name), ID: slot.JobID, Owner: slot.Owner(),
				})
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
