package agent

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/store"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// quiescedInventory is what the node had when it was quiesced: the plan rests
// on it until it resumes.
func quiescedInventory(p config.Paths) string { return filepath.Join(p.State, "quiesced.json") }

// withoutDriver are the options of an agent that touches no GPU.
func (o Options) withoutDriver(p config.Paths) Options {
	o.Hardware, o.WaitForHardware, o.ExpectedGPUs = Recorded{Path: quiescedInventory(p)}, false, 0
	o.Usage, o.Alarms, o.CUDA, o.Cgroups, o.MemoryLimits, o.DriverMismatch = nil, nil, nil, nil, nil, nil
	o.MIG.Hardware = nil
	return o
}

// askNode carries out an operator's verb on the whole node. What takes long the
// loop does.
func (a *Agent) askNode(req api.Request) (api.NodeStatus, error) {
	if req.Verb != api.VerbStatus {
		if err := a.view.Load().refusesObserved(); err != nil {
			return api.NodeStatus{}, err
		}
		was := a.holds.node()
		next, does, err := was.asked(req, time.Now())
		if err != nil {
			return api.NodeStatus{}, err
		}
		if next != was {
			if err := a.holds.setNode(next); err != nil {
				return api.NodeStatus{}, err
			}
			a.note(history.Event{Kind: history.EventNode, By: byOperator, Text: does})
			a.log.Warn("node", "verb", req.Verb, "phase", next.Phase, "reason", next.Reason)
			nudge(a.wake)
		}
		s := a.nodeStatus()
		s.Text = does
		return s, nil
	}
	return a.nodeStatus(), nil
}

func (a *Agent) nodeStatus() api.NodeStatus {
	n := a.holds.node()
	s := api.NodeStatus{Phase: string(n.Phase), Reason: n.Reason, Since: n.Since}
	switch {
	case n.leaving():
		f := a.nodeFacts()
		s.Jobs, s.Waits = f.jobs, n.waitsFor(f)
	case n.quiet():
		s.Holders = deviceHolders(a.books.proc.FS)
	case n.Phase == nodeResuming:
		s.Waits = a.notBack()
	}
	return s
}

// nodeFacts asks nobody but /proc and the books: since jobs on whole GPUs pass
// the hook, too, all are there.
func (a *Agent) nodeFacts() nodeFacts {
	a.sweepNow()
	return nodeFacts{now: time.Now(), jobs: bareSlots(a.books.all()), unknown: a.books.unknown()}
}

// leaveNode takes the next step of a node that is quiesced or reverted; anew
// says that this process has to end for it.
func (a *Agent) leaveNode(ctx context.Context) (anew bool) {
	n := a.holds.node()
	switch {
	case n.Phase == nodeResuming && a.quietStart:
		return true
	case n.quiet() && !a.quietStart:
		return true
	case !n.leaving() || n.waitsFor(a.nodeFacts()) != "":
		return false
	}
	v := a.view.Load()
	if err := a.letGo(ctx, v, n); err != nil {
		a.log.Error("the node cannot be quiesced; it is tried again", "err", err)
		return false
	}
	n.Phase = map[nodePhase]nodePhase{nodeQuiescing: nodeQuiesced, nodeReverting: nodeReverted}[n.Phase]
	if err := a.holds.setNode(n); err != nil {
		a.log.Error("the node cannot be quiesced; it is tried again", "err", err)
		return false
	}
	a.note(history.Event{Kind: history.EventNode, By: byAgent, Text: fmt.Sprintf("The node is %s: no control daemon runs, compute modes are as they were.", n.Phase)})
	a.log.Warn("node", "phase", n.Phase, "reason", n.Reason)
	return true
}

// letGo undoes what keeps the driver in use: control daemons, limits of cgroups,
// compute modes, and of a reverted node the files for HTCondor. NVML goes with
// this process.
func (a *Agent) letGo(ctx context.Context, v *view, n nodeState) error {
	if err := a.setAll(ctx, map[gpu.UUID]guard{}, nil); err != nil {
		return err
	}
	a.lastWanted, a.setDone = nil, false
	if err := a.releaseLimits(ctx); err != nil {
		a.log.Warn("limits of cgroups are left behind; they end with the driver", "err", err)
	}
	if err := a.keepInventory(ctx, v); err != nil {
		// A driver that does not answer is why a node is quiesced, at times. Compute
		// modes end with it.
		a.log.Warn("compute modes are not restored; they end with the driver", "err", err)
	}
	if n.Phase == nodeReverting {
		return removeGenerated(v.config)
	}
	return nil
}

// keepInventory restores compute modes and writes down what the node then has.
func (a *Agent) keepInventory(ctx context.Context, v *view) error {
	inv, _, err := a.inventory(ctx)
	if err == nil {
		err = a.returnModes(ctx, undoFile(v.config.Paths), inv, nobodys)
	}
	if err == nil {
		inv, _, err = a.inventory(ctx)
	}
	if err != nil {
		return err
	}
	return store.WriteJSON(quiescedInventory(v.config.Paths), inv)
}

// resumePace is how often a node that resumes is looked at.
const resumePace = time.Second

// resume opens a node that resumes once its control daemons are proven and its
// GPUs verified. It has a loop of its own, since clients take their time.
func (a *Agent) resume(ctx context.Context) {
	said := ""
	for ctx.Err() == nil {
		if n := a.holds.node(); n.Phase == nodeResuming && !a.quietStart {
			why := a.notBack()
			if why == "" {
				why = a.openNode(ctx, n)
			}
			if why != said && why != "" {
				a.log.Info("the node resumes", "waits", why)
			}
			said = why
		}
		pause(ctx, resumePace)
	}
}

// resumeWaits is how long a node that resumes waits for each of its GPUs; then
// it opens with those that are well.
const resumeWaits = 2 * time.Minute

// notBack says what a node that resumes waits for.
func (a *Agent) notBack() string {
	v, now := a.view.Load(), time.Now()
	switch {
	case v.closed != "":
		return v.closed
	case !v.planned || v.rounds == 0:
		return "gpuslotd makes its first round"
	case now.Sub(a.holds.node().Since) > resumeWaits:
		return ""
	}
	for _, g := range toVerify(v) {
		if why := a.unwell(v, g, now); why != "" {
			return fmt.Sprintf("GPU %d: %s", g.Index, why)
		}
	}
	return ""
}

// unwell is why jobs could not run on a shared GPU, whoever holds it.
func (a *Agent) unwell(v *view, g *plan.GPU, now time.Time) string {
	return a.pulsed(a.unverifiedHealth(v, g.UUID, now), g.UUID).Reason(now, v.config.Health.MaxAge)
}

// toVerify are the shared GPUs and MIG devices that are there.
func toVerify(v *view) []*plan.GPU {
	var out []*plan.GPU
	for i := range v.plan.GPUs {
		if g := &v.plan.GPUs[i]; g.Shared() && (g.Place == "" || g.Device != "") {
			out = append(out, g)
		}
	}
	return out
}

// openNode verifies what can be and opens the node. A GPU that does not keep its
// limits, or cannot be tried, stays closed.
func (a *Agent) openNode(ctx context.Context, n nodeState) (why string) {
	v := a.view.Load()
	var failed []Hold
	for _, g := range toVerify(v) {
		if n.Unverified || a.verifier.start == nil {
			break
		}
		found := a.resumes(ctx, v, g)
		if ctx.Err() != nil {
			return "gpuslotd is ending"
		}
		if found != "" {
			failed = append(failed, Hold{GPU: g.Physical(), Owner: OwnerNode, Since: time.Now(),
				Reason: fmt.Sprintf("%s: mend it, then: gpuslot verify %s; gpuslot gpu open %s --override", found, g.UUID, g.UUID)})
		}
	}
	if err := a.holds.serve(failed); err != nil {
		return err.Error()
	}
	if err := store.Remove(quiescedInventory(v.config.Paths)); err != nil {
		a.log.Warn("a file stays behind", "err", err)
	}
	a.note(history.Event{Kind: history.EventNode, By: byAgent, Text: fmt.Sprintf("The node serves again (driver %s); %d GPUs did not pass their verification.", v.plan.Driver, len(failed))})
	a.log.Warn("the node serves again", "driver", v.plan.Driver, "failed", len(failed))
	nudge(a.wake)
	return ""
}

// resumes verifies one GPU of a node that resumes; empty if it keeps its limits.
func (a *Agent) resumes(ctx context.Context, v *view, g *plan.GPU) (found string) {
	if why := a.unwell(v, g, time.Now()); why != "" {
		return "it was not well when the node resumed (" + foreign.Clip(why) + ")"
	}
	switch r := a.verifyGPU(ctx, g.UUID); {
	case r.Skipped != "":
		return "it could not be verified when the node resumed (" + foreign.Clip(r.Skipped) + ")"
	case !r.OK:
		return "its verification after the node resumed failed (" + foreign.Clip(r.Text) + ")"
	}
	return ""
}

// mismatch asks a fresh process whether it could use the driver: this one has
// the library of the driver that it started with. It says why not.
func (a *Agent) mismatch(ctx context.Context, v *view, reload bool) string {
	if a.driverMismatch == nil || a.driverAsked == nil && !reload && v.rounds%mismatchEvery != 1 && a.mismatched == "" {
		return a.mismatched
	}
	wait := mismatchWait
	if a.driverAsked != nil {
		wait = 0 // an earlier round has waited
	} else {
		ask, answer := a.driverMismatch, make(chan driverAnswer, 1)
		a.driverAsked = answer
		go func() {
			ctx, cancel := context.WithTimeout(ctx, mismatchTimeout)
			defer cancel()
			why, err := ask(ctx)
			answer <- driverAnswer{why, err}
		}()
	}
	answer, ok := within(wait, a.driverAsked)
	if !ok {
		a.log.Warn("a fresh process hangs in the driver; the rounds go on without its answer")
		return a.mismatched
	}
	a.driverAsked = nil
	if answer.err != nil {
		a.log.Warn("a fresh process was not asked for the driver", "err", answer.err)
	} else {
		a.healed = a.healed || a.mismatched != "" && answer.why == ""
		a.mismatched = answer.why
	}
	return a.mismatched
}

// within is an answer that is there, or comes in time.
func within(wait time.Duration, from <-chan driverAnswer) (answer driverAnswer, ok bool) {
	select {
	case answer = <-from: // also without time to wait
		return answer, true
	default:
	}
	select {
	case answer = <-from:
		return answer, true
	case <-time.After(wait):
		return driverAnswer{}, false
	}
}

// driverAnswer is what a fresh process said of the driver.
type driverAnswer struct {
	why string
	err error
}

const (
	// mismatchEvery is in how many rounds a fresh process is asked once.
	mismatchEvery = 4
	// mismatchTimeout bounds it; milliseconds are usual.
	mismatchTimeout = 10 * time.Second
	// mismatchWait is how long a round waits for it; a later round takes the answer.
	mismatchWait = 2 * time.Second
)

// sortedHolders are the processes by PID.
func sortedHolders(by map[int]api.NodeHolder) []api.NodeHolder {
	var out []api.NodeHolder
	for _, pid := range slices.Sorted(maps.Keys(by)) {
		out = append(out, by[pid])
	}
	return out
}
