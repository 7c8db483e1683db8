package agent

import (
	"context"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// Startd is HTCondor on this machine.
type Startd interface {
	// Version is the installed one.
	Version(ctx context.Context) (condor.Version, error)
	// Slots are the startd's own ads of its slots.
	Slots(ctx context.Context) ([]condor.Slot, error)
	// Demand is what the pool's idle jobs wait for.
	Demand(ctx context.Context, now time.Time) (condor.Demand, error)
}

// HTCondor is the installed one, asked through its command-line programs.
type HTCondor struct{}

// Version asks condor_version.
func (HTCondor) Version(ctx context.Context) (condor.Version, error) {
	return condor.InstalledVersion(ctx)
}

// Slots asks the startd with condor_status -direct.
func (HTCondor) Slots(ctx context.Context) ([]condor.Slot, error) { return condor.Slots(ctx) }

// Demand asks the collector.
func (HTCondor) Demand(ctx context.Context, now time.Time) (condor.Demand, error) {
	return condor.PoolDemand(ctx, now)
}

// seen is what the startd said last.
type seen struct {
	at time.Time
	// err is why it could not be asked.
	err error
	// older: the startd runs with another layout than the plan's.
	older bool
}

// How often the startd is asked: soon after an admission, for many of them at
// once, and now and then for its layout.
const (
	askSoon    = time.Second
	askRetry   = 15 * time.Second
	askAnyway  = time.Minute
	askTimeout = 5 * time.Second
)

// confirm keeps the books in step with the startd's word, off the hot path.
func (a *Agent) confirm(ctx context.Context) {
	next := time.NewTimer(askAnyway)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.booked:
			pause(ctx, askSoon) // one question for a burst of admissions
			select {
			case <-a.booked:
			default:
			}
		case <-next.C:
		}
		if a.ask(ctx) {
			next.Reset(askAnyway)
		} else {
			next.Reset(askRetry)
		}
	}
}

// ask puts one question to the startd and corrects the books. It says whether
// nothing is left open.
func (a *Agent) ask(ctx context.Context) (settled bool) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	slots, err := a.startd.Slots(ctx)
	now := time.Now()
	if err != nil {
		a.startdSays.Store(&seen{at: now, err: err})
		return false
	}
	v := a.view.Load()
	truth := startdWord{
		slots: map[string]condor.Slot{},
		wall:  func(u gpu.UUID, budget gpu.MiB) string { return a.wall(v, u, budget) },
	}
	for _, s := range slots {
		truth.slots[shortName(s.Name)] = s
	}
	if a.books.unknown() != "" {
		truth.account = a.books.proc.accounts(ctx, slots)
	}
	found := a.books.settle(truth)
	for _, m := range found.mismatches {
		a.log.Error("the startd's word differs from the hook's; the startd's counts", "slot", m.slot, "gpu", m.gpu, "differs", m.text)
		a.metrics.Mismatch()
	}
	for _, s := range found.ignored {
		a.log.Warn("a condor_starter belongs to none of the startd's slots; its GPU is not known to gpuslot", "slot", s.Slot, "pid", s.PID)
	}
	a.startdSays.Store(&seen{at: now, older: a.olderLayout(v, slots)})
	return found.open == 0
}

// wall of a budget on a GPU of the plan; that of a GPU that is not shared is
// the GPU itself.
func (a *Agent) wall(v *view, u gpu.UUID, budget gpu.MiB) string {
	g, ok := find(&v.plan, u)
	switch {
	case !ok:
		return WallNone
	case g.Alone():
		return WallMIG
	case !g.Shared():
		return WallWhole
	}
	return wallOf(g.LargestRequest, budget, a.health(v, u, time.Now()))
}

// olderLayout compares the fingerprint that the startd runs with. A startd
// without one runs without gpuslot's configuration, which is to be told too
// where the agent manages it.
func (a *Agent) olderLayout(v *view, slots []condor.Slot) bool {
	if !v.planned || !v.config.HTCondor.Manage || len(slots) == 0 {
		return false
	}
	want := condor.Fingerprint(a.node(v.config, v.plan))
	return slices.ContainsFunc(slots, func(s condor.Slot) bool { return s.Plan != want })
}
