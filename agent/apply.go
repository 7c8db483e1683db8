package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/gpuslot/gpuslot/agent/closures"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/daemons"
	"github.com/gpuslot/gpuslot/agent/isolation"
	"github.com/gpuslot/gpuslot/agent/modes"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/startd"
	"github.com/gpuslot/gpuslot/agent/store"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// apply is one round: it reads what is wanted and what is, decides, and makes
// the node so, in the only order that is safe. A compute mode is set before
// the control daemon that opens the device; a control daemon is proven before
// HTCondor is told of the GPU, because a job may start as soon as the resource
// is advertised; MIG devices come before all of it. Repeating it without a change writes nothing. It is long
// because it is straight: each step needs the ones before it.
func (a *Agent) apply(ctx context.Context, reload bool) {
	start := time.Now()
	last := a.view.Load()
	v := *last
	v.rounds++
	v.problems, v.laidOut = nil, nil
	problem := func(err error) {
		if err != nil {
			v.problems = append(v.problems, err.Error())
		}
	}

	// Read: the configuration, only when told to.
	if reload {
		a.modes.TryAgain()
		problem(a.closures.ReadAgain())
		v.configRead = start
		read, err := config.Load(a.configFile)
		if err == nil {
			err = fixedPaths(last.config, read)
		}
		if err == nil {
			v.next, v.pending, v.configOK, v.configError = read, true, true, ""
		} else {
			v.reject(err)
		}
	}

	// Read: the hardware and HTCondor's version.
	a.beat()
	inv, unreadable, errInv := a.hardware.Inventory(ctx)
	for _, err := range unreadable {
		problem(fmt.Errorf("a GPU does not answer: %w", err))
	}
	v.closed = a.hardware.Missing(inv, errInv)
	if v.closed == "" {
		v.closed = a.hardware.Unusable(ctx, v.rounds, reload)
	}
	a.beat()
	if reload || v.condorStale() {
		v.condor = a.condorVersion(ctx, problem)
	}
	if reload || v.condorStale() || len(last.overridden) > 0 || len(a.startds.Said().Changes) > 0 {
		a.readSettings(ctx, &v, problem)
	}
	refused := ""
	if !wantsToObserve(&v) {
		refused = checkCondor(v.condor, problem)
	}
	// A node that was set up for an earlier HTCondor keeps its control daemons, since jobs
	// may run; one that was not stays as it is.
	untouched := refused != "" && !setUp(v.next.Paths)
	a.beat()
	if !a.quiescer.Quiet && !untouched && !wantsToObserve(&v) { // a trial of the control daemon opens the driver
		v.can = a.prober.Next(ctx, last.can, v.next.Paths.ControlDaemon, v.rounds)
	}

	// Decide. MIG devices come before everything that is built on them; what they
	// then are is planned again.
	if errInv == nil {
		a.replan(&v, inv, start, problem)
	}
	if v.plan.Observe {
		a.observe(ctx, &v, start, problem)
		return
	}
	if v.closed == "" {
		v.closed = refused
	}
	if errInv == nil && refused == "" {
		changed := v.planned && a.makeLayouts(ctx, &v, inv, problem)
		if changed {
			a.beat()
			if inv, unreadable, errInv = a.hardware.Inventory(ctx); errInv == nil {
				a.replan(&v, inv, start, problem)
			}
			problem(errors.Join(append(unreadable, errInv)...))
		}
	}
	v.accounts = accounts(ctx, v.plan, last.accounts, reload)
	if !v.planned || untouched || a.closures.Node().Phase == closures.Reverted {
		a.publish(&v, start)
		return
	}

	// Act: compute modes, then control daemons, then compute modes back.
	var wanted []mps.Wanted
	returned := false
	if !a.quiescer.Quiet {
		wanted = a.keeper.Wanted(&v.plan)
	}
	if errInv == nil && !a.quiescer.Quiet {
		a.beat()
		var err error
		v.modes, err = a.modes.Borrow(ctx, v.plan, inv)
		problem(err)
	}
	lost := a.planBefore(v.config.Paths)
	problem(lost)
	states, errs := a.keeper.Round(ctx, daemons.Node{
		Plan: &v.plan, Paths: v.config.Paths, Wanted: wanted, Last: last.daemons, Accounts: v.accounts,
		Deadline: config.ReplyDeadline, Keep: lost != nil,
	})
	v.daemons = states
	problem(errors.Join(errs...))
	a.beat()
	problem(a.troubles.Look(ctx, v.physicals(), v.serverActive))
	problem(a.verifier.Revise(a.verificationFacts(&v, time.Now())))
	problem(a.reopenAccess(last.daemons, v.daemons))
	if errInv == nil && !a.quiescer.Quiet && lost == nil {
		a.beat()
		err := a.modes.Return(ctx, inv, func(u gpu.UUID) bool { return daemons.Wants(wanted, u) })
		returned = err == nil
		problem(err)
	}

	// Act: files. The plan for our own tools, then HTCondor's: the inventory
	// first, because the configuration names it.
	a.beat()
	if lost == nil {
		problem(writePlan(v.config.Paths, v.plan))
	}
	if refused == "" {
		err := a.writeCondor(ctx, &v)
		v.written = err == nil
		problem(err)
		v.overridden = v.overrides()
		if len(v.overridden) > 0 && len(last.overridden) == 0 { // read before this was written
			a.readSettings(ctx, &v, problem)
			v.overridden = v.overrides()
		}
	}
	a.publish(&v, start)
	a.elastic.SetUp(func(u gpu.UUID) bool { return returned && a.keeper.Settled() && !daemons.Wants(wanted, u) })
}

// setUp says that an agent has changed this node since the last gpuslotd --release.
func setUp(p config.Paths) bool {
	for _, file := range []string{modes.File(p), startd.ClosedFile(p), p.PlanFile()} {
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return false
}

func writePlan(paths config.Paths, p plan.Plan) error {
	b, err := p.Encode()
	if err != nil {
		return err
	}
	_, err = store.WriteIfChanged(paths.PlanFile(), b)
	return err
}

// replan makes the plan anew; one that cannot be made leaves the last in force.
func (a *Agent) replan(v *view, inv gpu.Inventory, start time.Time, problem func(error)) {
	inv.Host = v.settings.Within(inv.Host)
	p, err := plan.Build(v.next, a.layouts.Owned(a.withServers(v, inv)))
	if err == nil {
		p = a.elastic.Follow(p, a.recalled, start)
	}
	if err == nil && v.can.Tried {
		err = p.Check(v.can.MPS)
	}
	if err == nil {
		err = a.sameDuty(v, p)
	}
	switch {
	case err == nil:
		if !v.planned || !samePlan(v.plan, p) {
			v.applied = start
			a.jobs.NewPlan()
		}
		v.config, v.plan, v.planned, v.pending = v.next, p, true, false
	case v.pending:
		v.reject(err)
	default:
		problem(err)
	}
	v.present, v.instances = presence(inv), isolation.InstancesOf(inv)
	for _, g := range v.plan.GPUs {
		if g.Place != "" {
			v.present[g.UUID] = g.Device != ""
		}
	}
}

// withServers is the inventory with the VRAM that MPS servers use, as the last sample and
// the plan in force have it.
func (a *Agent) withServers(v *view, inv gpu.Inventory) gpu.Inventory {
	inForce := v.plan
	if !v.planned {
		inForce, _ = plan.Read(v.next.Paths.PlanFile()) // none after a boot
	}
	return plan.WithServers(inv, inForce.Servers(), a.sampling.Servers())
}

// reopenAccess gives the accounts of running jobs their access back where a
// control daemon is another process than before: with a stopped unit systemd
// removes the pipe directory and its ACL. Files that a daemon made since the last
// round, or before an agent restricted them, are taken from all other accounts.
func (a *Agent) reopenAccess(old, new map[gpu.UUID]daemons.State) error {
	var errs []error
	for u, g := range new {
		if err := a.pipes.Restrict(u); err != nil {
			errs = append(errs, fmt.Errorf("restrict the pipe directory of %s: %w", u, err))
		}
		if g.Err == nil && g.Proof.Process() != old[u].Proof.Process() {
			errs = append(errs, a.access.Reopen(u))
		}
	}
	return errors.Join(errs...)
}

// publish makes a round's result the one that admission rests on.
func (a *Agent) publish(v *view, start time.Time) {
	now := time.Now()
	for _, g := range v.plan.GPUs {
		if g.Shared() {
			a.metrics.Expect(g.UUID)
		}
	}
	v.reasons = make(map[gpu.UUID]string, len(v.daemons))
	gpus := a.gpus(v)
	for u := range v.daemons {
		v.reasons[u] = gpus.Seen(u, now).Reason(now, v.config.Health.MaxAge)
	}
	v.held = map[gpu.UUID]bool{}
	for i := range v.plan.GPUs {
		g := &v.plan.GPUs[i]
		if g.Alone() {
			v.reasons[g.UUID] = gpus.Alone(g, now)
		}
		v.held[g.UUID] = len(a.closedBy(g)) > 0
	}
	v.took, v.roundOK = time.Since(start), len(v.problems) == 0 && v.closed == "" && v.configError == ""
	a.reportChanges(a.view.Load(), v)
	a.view.Store(v)
	a.nodes.Wake()
	a.jobs.Leave(a.layouts.Leaving())
	a.beat()
}

// fixedPaths refuses what only a restart can change: sockets, daemons and
// journals are below these directories.
func fixedPaths(old, new config.Config) error {
	if old.Paths.Run != "" && (old.Paths.Run != new.Paths.Run || old.Paths.State != new.Paths.State) {
		return errors.New("paths.run and paths.state cannot change while gpuslotd runs: stop it, run gpuslotd --release " +
			"with the old file, then start it with the new one")
	}
	return nil
}

// samePlan ignores warnings.
func samePlan(a, b plan.Plan) bool { return len(plan.Diff(a, b)) == 0 }

func presence(inv gpu.Inventory) map[gpu.UUID]bool {
	m := make(map[gpu.UUID]bool, len(inv.GPUs))
	for _, g := range inv.GPUs {
		m[g.UUID] = true
		for _, d := range g.MIGDevices {
			m[d.UUID] = true
		}
	}
	return m
}

// planBefore says why the plan of the agent before this one is not known, while
// jobs from then run. Until they have ended no control daemon is started or
// stopped, no compute mode is given back, and no other plan takes the file's place.
func (a *Agent) planBefore(p config.Paths) error {
	if a.lostPlan == nil {
		return nil
	}
	runs := a.jobs.Unknown()
	for _, r := range a.jobs.Running() {
		if r.Adopted {
			runs = r.Starter.Slot + " runs since before gpuslotd started"
		}
	}
	if runs != "" {
		return fmt.Errorf("which control daemons the jobs use is not known, so none is started or stopped until they have "+
			"ended: %s: %w", runs, a.lostPlan)
	}
	if err := store.Aside(p.PlanFile()); err != nil {
		return err
	}
	a.lostPlan = nil
	return nil
}
