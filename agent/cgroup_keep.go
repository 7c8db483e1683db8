package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
)

// limitTimeout bounds one call of the driver.
const limitTimeout = 2 * time.Second

// limitCgroups keeps the limits of jobs until the context ends, and limits those
// that have none: jobs without a supervisor, which asks before the job's program
// runs (start.go). It has a loop of its own: a driver that hangs must not stop proofs.
func (a *Agent) limitCgroups(ctx context.Context) {
	if a.cgroups.driver == nil {
		return
	}
	for ctx.Err() == nil {
		v := a.view.Load()
		a.keepLimits(ctx, v)
		a.takeLimits(ctx, v)
		t := time.NewTimer(min(max(v.config.Usage.Interval, time.Second), provedFor/4))
		select {
		case <-ctx.Done():
		case <-t.C:
		case <-a.cgroups.wake: // a job may have ended
		}
		t.Stop()
	}
}

// takeLimits limits the jobs that have none.
func (a *Agent) takeLimits(ctx context.Context, v *view) {
	if !v.can.CgroupLimits.Has {
		return
	}
	for _, r := range a.jobs.Running() {
		if g, ok := find(&v.plan, r.GPU); !ok || !g.Shared() || r.Budget <= 0 {
			continue
		}
		if _, ok := a.cgroups.of(r.Starter, r.GPU); ok {
			continue
		}
		if leaf := a.proc.JobCgroup(r.Starter); leaf != "" {
			a.takeLimit(ctx, r, leaf)
		}
	}
}

// takeLimit limits one job.
func (a *Agent) takeLimit(ctx context.Context, r jobs.Job, leaf string) {
	path, err := starter.CgroupsAbove(a.cgroups.root, leaf)
	if err != nil {
		return // it has ended already
	}
	l := limit{reservation: reservation{GPU: r.GPU, Starter: r.Starter, Job: r.ID, Hard: r.Budget, Soft: r.Budget, Path: path}}
	got, err := a.cgroups.set(ctx, l, time.Now())
	if err != nil {
		a.limitFailed(l, err)
		return
	}
	a.cgroups.complain(l.GPU, "")
	a.metrics.CgroupLimited(l.GPU, got.Used > 0)
	if got.Used > 0 {
		a.log.Warn("a job used the GPU before its cgroup was limited", "slot", l.Starter.Slot, "job", l.Job, "gpu", l.GPU, "mib", int64(got.Used.MiB()))
		return
	}
	a.log.Info("the cgroup of a job was limited", "slot", l.Starter.Slot, "job", l.Job, "gpu", l.GPU, "mib", int64(l.Hard))
}

// limitFailed tells why a job has no limit: once, as long as the reason stays.
func (a *Agent) limitFailed(l limit, err error) {
	if !l.cgroup().Exists() {
		return
	}
	why := err.Error()
	if errors.Is(err, gpu.ErrNoMemoryLimits) && withoutDmem(a.cgroups.root, l.cgroup().Path) {
		why += `: the controller dmem is not enabled for the cgroups of jobs: write "+dmem" to cgroup.subtree_control of every cgroup above them, from the root down, before HTCondor starts`
	}
	if a.cgroups.complain(l.GPU, why) {
		a.log.Warn("the cgroup of a job was not limited", "slot", l.Starter.Slot, "job", l.Job, "gpu", l.GPU, "err", why)
	}
}

// keepLimits looks after the limits that were set.
func (a *Agent) keepLimits(ctx context.Context, v *view) {
	can := v.can.CgroupLimits
	if !can.Known {
		return
	}
	budgets := map[holder]gpu.MiB{}
	for _, r := range a.jobs.Running() {
		budgets[holderOf(r.Starter, r.GPU)] = r.Budget
	}
	for _, l := range a.cgroups.all() {
		if !can.Has { // another driver, which knows of none
			a.logLimit(l, a.cgroups.forget(l))
			continue
		}
		alive := a.proc.Runs(l.Starter.ID)
		a.keepLimit(ctx, l, l.care(l.cgroup().Exists(), alive, budgets[holderOf(l.Starter, l.GPU)]), budgets[holderOf(l.Starter, l.GPU)])
	}
}

func (a *Agent) keepLimit(ctx context.Context, l limit, c care, budget gpu.MiB) {
	switch c {
	case careForget:
		a.logLimit(l, a.cgroups.forget(l))
	case careClear:
		a.logLimit(l, a.cgroups.clear(ctx, l))
	case careRepair:
		a.repairLimit(ctx, l)
	case careRenew:
		a.renewLimit(ctx, l, budget)
	case careCheck:
		a.checkLimit(ctx, l)
	}
}

// logLimit tells what went wrong with a limit that was set.
func (a *Agent) logLimit(l limit, err error) {
	if err != nil {
		a.log.Error("the limit of a cgroup", "slot", l.Starter.Slot, "job", l.Job, "gpu", l.GPU, "err", err)
	}
}

// renewLimit sets a limit anew, of this budget. What was given back stays so.
func (a *Agent) renewLimit(ctx context.Context, l limit, budget gpu.MiB) {
	l.Hard = budget
	if l.Soft != 0 {
		l.Soft = budget
	}
	if _, err := a.cgroups.set(ctx, l, time.Now()); err != nil {
		a.limitFailed(l, err)
		return
	}
	a.cgroups.complain(l.GPU, "")
}

// checkLimit reads a limit back, with its use, and sets it anew if somebody else
// changed it.
func (a *Agent) checkLimit(ctx context.Context, l limit) {
	l, got, err := a.cgroups.look(ctx, l)
	switch {
	case err == nil && l.as(got):
		a.cgroups.proved(l, time.Now(), got.Used)
	case err == nil || errors.Is(err, gpu.ErrNoMemoryLimits):
		if !l.proved.IsZero() {
			a.log.Warn("somebody else changed the limit of a cgroup", "slot", l.Starter.Slot, "job", l.Job, "gpu", l.GPU,
				"soft_mib", int64(got.Soft.MiB()), "hard_mib", int64(got.Hard.MiB()))
		}
		a.renewLimit(ctx, l, l.Hard)
	default:
		a.cgroups.proved(l, time.Time{}, 0)
		a.limitFailed(l, err)
	}
}

// repairLimit gives back what the cgroups above a cgroup that is gone keep.
func (a *Agent) repairLimit(ctx context.Context, l limit) {
	given, from, err := a.cgroups.repair(ctx, l)
	if err != nil {
		if why := l.adrift(err); a.cgroups.stick(l, why) {
			a.log.Error("a reservation of VRAM stays behind", "slot", l.Starter.Slot, "job", l.Job, "gpu", l.GPU, "err", err)
		}
		return
	}
	if given > 0 {
		a.metrics.ReservationRepaired(l.GPU)
		a.log.Warn("a cgroup went before its reservation of VRAM, which was given back", "slot", l.Starter.Slot, "job", l.Job, "gpu", l.GPU,
			"mib", int64(given.MiB()), "cgroup", from)
	}
}

// endReservation gives a job's reservation back, for its cgroup is about to go.
// The hard limit stays: a part of the job may still run.
func (a *Agent) endReservation(ctx context.Context, s starter.Starter) {
	for _, l := range a.cgroups.all() {
		if l.Starter.Is(s) && l.Soft != 0 && l.cgroup().Exists() {
			l.Soft = 0
			_, err := a.cgroups.set(ctx, l, time.Now())
			a.logLimit(l, err)
		}
	}
}

// releaseLimits takes all limits back, for --release. Jobs that run go on
// without.
func (a *Agent) releaseLimits(ctx context.Context) error {
	if a.cgroups.driver == nil {
		return nil
	}
	var errs []error
	for _, l := range a.cgroups.all() {
		if l.cgroup().Exists() {
			errs = append(errs, a.cgroups.clear(ctx, l))
		} else if _, _, err := a.cgroups.repair(ctx, l); err != nil {
			errs = append(errs, errors.New(l.adrift(err)))
		}
	}
	return errors.Join(errs...)
}

// guarding is the wall of a job: its cgroup's limit, where that stands, or what
// else there is.
func (a *Agent) guarding(r jobs.Job, otherwise string, now time.Time) string {
	l, ok := a.cgroups.of(r.Starter, r.GPU)
	if ok && l.holds(now) && l.Hard == r.Budget && !a.cgroups.isOutside(holderOf(r.Starter, r.GPU)) {
		return jobs.WallCgroup
	}
	return otherwise
}

// measure fills in what the driver counts for a job's cgroup, where NVML does
// not tell the memory of its processes. It counts none that are outside.
func (a *Agent) measure(jobs []watched, now time.Time) {
	for i := range jobs {
		j := &jobs[i]
		if j.Memory.Known || a.cgroups.isOutside(holderOf(j.Starter, j.GPU)) {
			continue
		}
		if l, ok := a.cgroups.of(j.Starter, j.GPU); ok && l.holds(now) {
			j.Memory = gpu.Known(l.used)
		}
	}
}

// limited says whether the jobs of a GPU get limits on their cgroups, as far as
// is known.
func (a *Agent) limited(v *view, u gpu.UUID) bool {
	return v.can.CgroupLimits.Has && a.cgroups.fine(u)
}

// set books a reservation, then tells the driver, then reads it back: if the
// agent ends in between, the next one knows what to look for.
func (c *cgroups) set(ctx context.Context, l limit, now time.Time) (gpu.MemoryLimits, error) {
	c.turn.Lock()
	defer c.turn.Unlock()
	before, known := c.of(l.Starter, l.GPU)
	l.proved, l.wide = time.Time{}, before.wide && l.Hard == before.Hard
	// What the driver keeps is at most the larger until it has answered.
	intent := l
	intent.Soft = max(l.Soft, before.Soft)
	if err := c.enter(intent); err != nil {
		return gpu.MemoryLimits{}, err
	}
	call, cancel := context.WithTimeout(ctx, limitTimeout)
	defer cancel()
	c.widen(call, &l) // before the program runs; its answer counts after the next call
	if err := c.driver.SetMemoryLimits(call, l.GPU, l.cgroup().Path, gpu.Bytes(l.Soft.Bytes()), gpu.Bytes(l.Hard.Bytes())); err != nil {
		return gpu.MemoryLimits{}, errors.Join(err, c.undo(l, before, known, call.Err() != nil))
	}
	got, err := c.driver.MemoryLimits(call, l.GPU, l.cgroup().Path)
	if err == nil && !l.as(got) {
		err = fmt.Errorf("the limits of %s read back as soft %s, hard %s after %s and %s were set", l.cgroup().Path, got.Soft.MiB(), got.Hard.MiB(), l.Soft, l.Hard)
	}
	if err == nil {
		l.proved, l.used = now, max(got.Used, c.widen(call, &l))
	}
	return got, errors.Join(err, c.enter(l))
}

// undo books what was before a call that came to nothing. A call that did not
// return in time may yet take effect.
func (c *cgroups) undo(l, before limit, known, late bool) error {
	switch {
	case late:
		return nil
	case known:
		before.proved = time.Time{}
		return c.enter(before)
	}
	return c.forget(l)
}

// clear takes the limits of a cgroup away.
func (c *cgroups) clear(ctx context.Context, l limit) error {
	c.turn.Lock()
	defer c.turn.Unlock()
	call, cancel := context.WithTimeout(ctx, limitTimeout)
	defer cancel()
	if err := c.driver.SetMemoryLimits(call, l.GPU, l.cgroup().Path, 0, gpu.Unlimited); err != nil {
		return err
	}
	if err := c.narrow(call, l); err != nil {
		return err
	}
	return c.forget(l)
}

// look reads the limits of a reservation as it is booked now, and not while they
// are being changed.
func (c *cgroups) look(ctx context.Context, l limit) (limit, gpu.MemoryLimits, error) {
	c.turn.Lock()
	defer c.turn.Unlock()
	if now, ok := c.of(l.Starter, l.GPU); ok {
		l = now
	}
	got, err := c.limits(ctx, l.GPU, l.cgroup().Path)
	if err == nil && l.as(got) {
		got.Used = max(got.Used, c.widen(ctx, &l))
	}
	return l, got, err
}

// limits reads those of a cgroup.
func (c *cgroups) limits(ctx context.Context, u gpu.UUID, cgroup string) (gpu.MemoryLimits, error) {
	ctx, cancel := context.WithTimeout(ctx, limitTimeout)
	defer cancel()
	return c.driver.MemoryLimits(ctx, u, cgroup)
}

// repair lowers the soft limit of the lowest cgroup that is left above a job's;
// the driver lowers those above that by as much. "If the leaf cgroup is deleted
// directly, … each ancestor keeps its leaf's contribution" (NVIDIA's MPS
// documentation, release 615, "MPS v3 Memory Partitioning"). The back-end misc
// has no hierarchy, so there is nothing to give back.
func (c *cgroups) repair(ctx context.Context, l limit) (given gpu.Bytes, from string, err error) {
	c.turn.Lock()
	defer c.turn.Unlock()
	for _, above := range l.Path[1:] {
		if !above.Exists() {
			continue // and a new one of its name knows nothing of it
		}
		given, err = c.giveBack(ctx, l, above)
		if err != nil {
			return 0, above.Path, err
		}
		from = above.Path
		break
	}
	return given, from, c.forget(l)
}

func (c *cgroups) giveBack(ctx context.Context, l limit, above starter.Cgroup) (gpu.Bytes, error) {
	got, err := c.limits(ctx, l.GPU, above.Path)
	if errors.Is(err, gpu.ErrNoMemoryLimits) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n := l.leak(above, got.Soft, c.living(l.GPU))
	if n == 0 {
		return 0, nil
	}
	call, cancel := context.WithTimeout(ctx, limitTimeout)
	defer cancel()
	err = c.driver.SetMemoryLimits(call, l.GPU, above.Path, got.Soft-n, got.Hard)
	if errors.Is(err, gpu.ErrNoMemoryLimits) {
		return 0, nil // it only showed what one above it has: none were added up here
	}
	return n, err
}

// living are the reservations on a GPU whose cgroups are there.
func (c *cgroups) living(u gpu.UUID) []limit {
	var out []limit
	for _, l := range c.all() {
		if l.GPU == u && l.cgroup().Exists() {
			out = append(out, l)
		}
	}
	return out
}
