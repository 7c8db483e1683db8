package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gpuslot/gpuslot/agent/access"
	"github.com/gpuslot/gpuslot/agent/admission"
	"github.com/gpuslot/gpuslot/agent/closures"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/daemons"
	"github.com/gpuslot/gpuslot/agent/isolation"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/release"
	"github.com/gpuslot/gpuslot/agent/store"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// apply is one round: it reads what is wanted and what is, decides, and makes the node so, in the only order that is
// safe. A compute mode is set before the control daemon that opens the device. A control daemon is proven before
// HTCondor is told of the GPU, because a job may start as soon as the resource is advertised. MIG devices come before
// all of it. Repeating it without a change writes nothing. It is long because it is straight: each step needs the
// ones before it.
func (a *Agent) apply(ctx context.Context, reload bool) {
	start := time.Now()
	last := a.view.Load()
	next := *last
	v := &next
	v.rounds++
	v.problems, v.laidOut = nil, nil

	// Read: the configuration, only when told to.
	if reload {
		a.modes.TryAgain()
		v.problem(a.closures.ReadAgain())
		v.readConfig(a.configFile, start)
	}

	// Read: the hardware and HTCondor's version.
	a.heart.beat()
	inv, unreadable, errInv := a.hardware.Inventory(ctx)
	if ctx.Err() != nil {
		return // told to end: what was not read for that is no trouble of the node
	}
	for _, err := range unreadable {
		v.problem(fmt.Errorf("a GPU does not answer: %w", err))
	}
	v.closed = a.hardware.Missing(inv, errInv)
	if v.closed == "" {
		v.closed = a.hardware.Unusable(ctx, v.rounds, reload)
	}
	a.heart.beat()
	if reload || v.condorStale() {
		a.htcondor.readVersion(ctx, v)
	}
	if reload || v.condorStale() || len(last.overridden) > 0 || len(a.startds.Said().Changes) > 0 {
		a.htcondor.readSettings(ctx, v)
	}
	refused := ""
	if !v.wantsToObserve() {
		refused = v.refused()
	}
	// A node that was set up for an earlier HTCondor keeps its control daemons, since jobs
	// may run; one that was not stays as it is.
	untouched := refused != "" && !release.SetUp(v.next.Paths)
	a.heart.beat()
	// A probe of the control daemon opens the driver.
	if errInv == nil && !a.quiescer.Quiet && !untouched && !v.wantsToObserve() {
		v.can = a.prober.Next(ctx, last.can, v.next.Paths.ControlDaemon, inv, v.rounds)
	}

	// Decide. MIG devices come before everything that is built on them; what they
	// then are is planned again.
	if errInv == nil {
		a.planner.plan(v, inv, start)
	}
	if v.plan.Observe {
		a.heart.beat()
		v.problem(a.faults.Look(ctx, v.physicals(), v.serverActive))
		v.problem(writePlan(v.config.Paths, v.plan))
		a.publish(v, start)
		return
	}
	if v.closed == "" {
		v.closed = refused
	}
	if errInv == nil && refused == "" && v.planned {
		a.sweeper.now()
		during := *last // the nodes of devices that are made now are closed before they are there
		during.instances, during.forJobs = isolation.Between(last.instances, v.instances), v.forJobs
		a.view.Store(&during)
		if !last.planned || v.unruled || len(during.instances.Divided()) > len(last.instances.Divided()) {
			if v.unruled = !a.nodes.Look(during.isolation, a.linkSupervisors); v.unruled {
				v.problem(errors.New("MIG layouts wait: device nodes cannot be closed to jobs now: see the log of gpuslotd"))
			}
		}
		n := a.planner.node(v, inv)
		n.Still = v.unruled || a.before.unknown(v.config.Paths, a.jobs) != nil // no control daemon is stopped then
		n.Closed = map[gpu.UUID]bool{}
		for _, g := range a.reader.Look(start).GPUs {
			n.Closed[g.UUID] = g.Reason != ""
		}
		made := a.layouts.Round(ctx, n)
		v.problem(made.Problems...)
		v.laidOut, v.repartition, v.below = made.Made, made.Repartition, made.Below
		if made.Changed {
			a.heart.beat()
			if inv, unreadable, errInv = a.hardware.Inventory(ctx); errInv == nil {
				a.planner.plan(v, inv, start)
			}
			v.problem(errors.Join(append(unreadable, errInv)...))
		}
	}
	v.accounts = admission.Accounts(ctx, &v.plan, last.accounts, reload)
	if !v.planned || untouched || a.closures.Node().Phase == closures.Reverted {
		a.publish(v, start)
		return
	}

	// Act: compute modes, then control daemons, then compute modes back.
	var wanted []mps.Wanted
	returned := false
	if !a.quiescer.Quiet {
		wanted = a.keeper.Wanted(&v.plan)
	}
	if errInv == nil && !a.quiescer.Quiet {
		a.heart.beat()
		var err error
		v.modes, err = a.modes.Borrow(ctx, v.plan, inv)
		v.problem(err)
	}
	lost := a.before.unknown(v.config.Paths, a.jobs)
	v.problem(lost)
	states, errs := a.keeper.Round(ctx, daemons.Node{
		Plan: &v.plan, Paths: v.config.Paths, Wanted: wanted, Last: last.daemons, Accounts: v.accounts,
		Deadline: config.ReplyDeadline, Keep: lost != nil,
	})
	if ctx.Err() != nil {
		return // told to end: nor are daemons in trouble that were not asked for that
	}
	v.daemons = states
	v.problem(errors.Join(errs...))
	a.heart.beat()
	v.problem(a.faults.Look(ctx, v.physicals(), v.serverActive))
	v.problem(a.verifier.Revise(a.facts(v, time.Now())))
	v.problem(reopen(a.pipes, a.access, last.daemons, v.daemons))
	if errInv == nil && !a.quiescer.Quiet && lost == nil {
		a.heart.beat()
		err := a.modes.Return(ctx, inv, func(u gpu.UUID) bool {
			g, ok := v.plan.Find(u)
			return daemons.Wants(wanted, u) || ok && g.NeedsLimits()
		})
		returned = err == nil
		v.problem(err)
	}

	// Act: files. The plan for our own tools, then HTCondor's: the inventory
	// first, because the configuration names it.
	a.heart.beat()
	if lost == nil {
		v.problem(writePlan(v.config.Paths, v.plan))
	}
	if refused == "" {
		err := a.htcondor.write(ctx, v)
		v.written = err == nil
		v.problem(err)
		v.overridden = v.overrides()
		if len(v.overridden) > 0 && len(last.overridden) == 0 { // read before this was written
			a.htcondor.readSettings(ctx, v)
			v.overridden = v.overrides()
		}
	}
	a.publish(v, start)
	a.elastic.SetUp(func(u gpu.UUID) bool { return returned && a.keeper.Settled() && !daemons.Wants(wanted, u) })
}

// publish makes a round's result the one that admission rests on.
func (a *Agent) publish(v *view, start time.Time) {
	for _, g := range v.plan.GPUs {
		if g.Shared() {
			a.metrics.Expect(g.UUID)
		}
	}
	v.reasons, v.held = a.judge(v, time.Now())
	v.took, v.roundOK = time.Since(start), len(v.problems) == 0 && v.closed == "" && v.configError == ""
	a.reporter.changes(a.view.Load(), v)
	a.view.Store(v)
	a.nodes.Wake()
	a.jobs.Leave(a.layouts.Leaving())
	a.heart.beat()
}

func writePlan(paths config.Paths, p plan.Plan) error {
	b, err := p.Encode()
	if err != nil {
		return err
	}
	_, err = store.WriteIfChanged(paths.PlanFile(), b)
	return err
}

// reopen gives the accounts of running jobs their access back where a control daemon is another process than before:
// with a stopped unit systemd removes the pipe directory and its ACL. Files that a daemon made since the last round,
// or before an agent restricted them, are taken from all other accounts.
func reopen(pipes PipeAccess, list *access.List, old, new map[gpu.UUID]daemons.State) error {
	var errs []error
	for u, g := range new {
		if err := pipes.Restrict(u); err != nil {
			errs = append(errs, fmt.Errorf("restrict the pipe directory of %s: %w", u, err))
		}
		if g.Err == nil && g.Checked.Process() != old[u].Checked.Process() {
			errs = append(errs, list.Reopen(u))
		}
	}
	return errors.Join(errs...)
}
