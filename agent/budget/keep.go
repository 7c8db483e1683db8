package budget

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

// Conditions are what one round of the limits rests on.
type Conditions struct {
	// Known: it is known whether the driver and the kernel can limit cgroups. Has: they can.
	Known, Has bool
	// Shared says whether a GPU is shared: the jobs of others get no limit.
	Shared func(u gpu.UUID) bool
	// Every is the pause between two rounds. At most a quarter of the time for which a
	// limit counts as there is taken.
	Every time.Duration
}

// Run keeps the limits of jobs until the context ends, and limits those that have none:
// jobs without a supervisor, which asks before the job's program runs. It is a loop of its
// own: a driver that hangs must not stop health checks.
func (c *Limits) Run(ctx context.Context, now func() Conditions) {
	if c.driver == nil {
		return
	}
	for ctx.Err() == nil {
		is := now()
		c.Round(ctx, is)
		t := time.NewTimer(min(max(is.Every, time.Second), confirmedFor/4))
		select {
		case <-ctx.Done():
		case <-t.C:
		case <-c.wake: // a job may have ended
		}
		t.Stop()
	}
}

// Wake starts the next round now: a job has ended, and its reservation is to be given back.
func (c *Limits) Wake() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Round looks after the limits that were set, then limits the jobs that have none.
func (c *Limits) Round(ctx context.Context, now Conditions) {
	if now.Known {
		c.keep(ctx, now.Has)
	}
	if !now.Has {
		return
	}
	for _, j := range c.jobs.Running() {
		if !now.Shared(j.GPU) || j.Budget <= 0 || c.Has(j.Starter, j.GPU) {
			continue
		}
		if leaf := c.processes.JobCgroup(j.Starter); leaf != "" {
			_ = c.Take(ctx, j, leaf) // it is in the warnings
		}
	}
}

// Take limits one job, whose cgroup is named by its path below the mount. It returns once the
// limit was read back. What goes wrong is in the log and the warnings, too, and the next round
// tries again.
func (c *Limits) Take(ctx context.Context, j jobs.Job, leaf string) error {
	path, err := starter.CgroupsAbove(c.root, leaf)
	if err != nil {
		return err // it has ended already
	}
	l := limit{reservation: reservation{
		GPU: j.GPU, Starter: j.Starter, Job: j.ID, Hard: j.Budget, Soft: j.Budget, Path: path,
	}}
	got, err := c.set(ctx, l, time.Now())
	if err != nil {
		c.failed(l, err)
		return err
	}
	c.complain(l.GPU, "")
	c.metrics.CgroupLimited(l.GPU, got.Used > 0)
	if got.Used > 0 {
		c.log.Warn("a job used the GPU before its cgroup was limited",
			append(l.names(), "mib", int64(got.Used.MiB()))...)
		return nil
	}
	c.log.Info("the cgroup of a job was limited", append(l.names(), "mib", int64(l.Hard))...)
	return nil
}

// failed says why a job has no limit: once, as long as the reason stays. What the job did itself
// is no other job's reason.
func (c *Limits) failed(l limit, err error) {
	if !l.cgroup().Exists() {
		return
	}
	if errors.Is(err, gpu.ErrNoMemoryLimits) {
		if name := l.passOn(); name != "" {
			c.switchedOff(l, name)
			return
		}
	}
	why := err.Error()
	if errors.Is(err, gpu.ErrNoMemoryLimits) && withoutDmem(c.root, l.cgroup().Path) {
		why += `: the controller dmem is not enabled for the cgroups of jobs: write "+dmem" to ` +
			`cgroup.subtree_control of every cgroup above them, from the root down, before HTCondor starts`
	}
	if c.complain(l.GPU, why) {
		c.log.Warn("the cgroup of a job was not limited", append(l.names(), "err", why)...)
	}
}

// keep looks after the limits that were set. Without has the driver is another one, which
// knows of none.
func (c *Limits) keep(ctx context.Context, has bool) {
	budgets := map[jobs.Key]gpu.MiB{}
	for _, j := range c.jobs.Running() {
		budgets[jobs.KeyOf(j.Starter, j.GPU)] = j.Budget
	}
	c.loose.keep(budgets)
	c.starts.keep(budgets)
	for _, l := range c.all() {
		if !has {
			c.logged(l, c.forget(l))
			continue
		}
		budget := budgets[l.key()]
		switch l.care(l.cgroup().Exists(), c.processes.Runs(l.Starter.ID), budget) {
		case careForget:
			c.logged(l, c.forget(l))
		case careClear:
			c.logged(l, c.clear(ctx, l))
		case careRepair:
			c.repairLimit(ctx, l)
		case careRenew:
			c.renew(ctx, l, budget)
		case careCheck:
			c.check(ctx, l)
		}
	}
}

// logged logs what went wrong with a limit that was set.
func (c *Limits) logged(l limit, err error) {
	if err != nil {
		c.log.Error("the limit of a cgroup", append(l.names(), "err", err)...)
	}
}

// renew sets a limit again, of this budget. What was given back stays so.
func (c *Limits) renew(ctx context.Context, l limit, budget gpu.MiB) {
	l.Hard = budget
	if l.Soft != 0 {
		l.Soft = budget
	}
	if _, err := c.set(ctx, l, time.Now()); err != nil {
		c.failed(l, err)
		return
	}
	c.complain(l.GPU, "")
}

// check reads a limit back, with its use, and sets it again if somebody else
// changed it.
func (c *Limits) check(ctx context.Context, l limit) {
	l, got, err := c.look(ctx, l)
	switch {
	case err == nil && l.as(got):
		c.confirmed(l, time.Now(), got.Used)
	case err == nil || errors.Is(err, gpu.ErrNoMemoryLimits):
		if !l.proved.IsZero() {
			c.log.Warn("somebody else changed the limit of a cgroup",
				append(l.names(), "soft_mib", int64(got.Soft.MiB()), "hard_mib", int64(got.Hard.MiB()))...)
		}
		if without := l.without(); len(without) > 0 {
			c.switchedOff(l, without[0])
		}
		c.renew(ctx, l, l.Hard)
	default:
		c.confirmed(l, time.Time{}, 0)
		c.failed(l, err)
	}
}

// repairLimit gives back what the cgroups above a cgroup that is gone keep.
func (c *Limits) repairLimit(ctx context.Context, l limit) {
	given, from, err := c.repair(ctx, l)
	if err != nil {
		if why := l.adrift(err); c.stick(l, why) {
			c.log.Error("a reservation of VRAM stays behind", append(l.names(), "err", err)...)
		}
		return
	}
	if given > 0 {
		c.metrics.ReservationRepaired(l.GPU)
		c.log.Warn("a cgroup went before its reservation of VRAM, which was given back",
			append(l.names(), "mib", int64(given.MiB()), "cgroup", from)...)
	}
}

// EndReservation gives a job's reservation back, for its cgroup is about to go.
// The hard limit stays: a part of the job may still run.
func (c *Limits) EndReservation(ctx context.Context, s starter.Starter) {
	for _, l := range c.all() {
		if l.Starter.Is(s) && l.Soft != 0 && l.cgroup().Exists() {
			l.Soft = 0
			_, err := c.set(ctx, l, time.Now())
			c.logged(l, err)
		}
	}
}

// Release takes all limits back, for --release and while a node is quiesced. Jobs that run
// go on without. Its errors say what stays reserved, and what to do about it.
func (c *Limits) Release(ctx context.Context) error {
	if c.driver == nil {
		return nil
	}
	var errs []error
	for _, l := range c.all() {
		if l.cgroup().Exists() {
			errs = append(errs, c.clear(ctx, l))
		} else if _, _, err := c.repair(ctx, l); err != nil {
			errs = append(errs, errors.New(l.adrift(err)))
		}
	}
	return errors.Join(errs...)
}

// set enters a reservation, then tells the driver, then reads it back: if the
// agent ends in between, the next one knows what to look for.
func (c *Limits) set(ctx context.Context, l limit, now time.Time) (gpu.MemoryLimits, error) {
	if err := c.turn.take(ctx); err != nil {
		return gpu.MemoryLimits{}, err
	}
	defer c.turn.release()
	before, known := c.of(l.key())
	l.proved, l.wide = time.Time{}, before.wide && l.Hard == before.Hard
	// What the driver keeps is at most the larger until it has answered.
	intent := l
	intent.Soft = max(l.Soft, before.Soft)
	if err := c.enter(intent); err != nil {
		return gpu.MemoryLimits{}, err
	}
	call, cancel := context.WithTimeout(ctx, limitTimeout)
	defer cancel()
	l.passOn()
	c.widen(call, &l) // before the program runs; its answer counts after the next call
	err := c.driver.SetMemoryLimits(call, l.GPU, l.cgroup().Path, gpu.Bytes(l.Soft.Bytes()), gpu.Bytes(l.Hard.Bytes()))
	if err != nil {
		return gpu.MemoryLimits{}, errors.Join(err, c.undo(l, before, known, call.Err() != nil))
	}
	got, err := c.driver.MemoryLimits(call, l.GPU, l.cgroup().Path)
	if err == nil && !l.as(got) {
		err = fmt.Errorf("the limits of %s read back as soft %s, hard %s after %s and %s were set",
			l.cgroup().Path, got.Soft.MiB(), got.Hard.MiB(), l.Soft, l.Hard)
	}
	if err == nil {
		l.proved, l.used = now, max(got.Used, c.widen(call, &l))
	}
	return got, errors.Join(err, c.enter(l))
}

// undo enters what was before a call that came to nothing. A call that did not
// return in time may yet take effect.
func (c *Limits) undo(l, before limit, known, late bool) error {
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
func (c *Limits) clear(ctx context.Context, l limit) error {
	if err := c.turn.take(ctx); err != nil {
		return err
	}
	defer c.turn.release()
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

// look reads the limits of a reservation as it is entered now, and not while they
// are being changed.
func (c *Limits) look(ctx context.Context, l limit) (limit, gpu.MemoryLimits, error) {
	if err := c.turn.take(ctx); err != nil {
		return l, gpu.MemoryLimits{}, err
	}
	defer c.turn.release()
	if now, ok := c.of(l.key()); ok {
		l = now
	}
	got, err := c.limits(ctx, l.GPU, l.cgroup().Path)
	if err == nil && l.as(got) {
		got.Used = max(got.Used, c.widen(ctx, &l))
	}
	return l, got, err
}

// limits reads those of a cgroup.
func (c *Limits) limits(ctx context.Context, u gpu.UUID, cgroup string) (gpu.MemoryLimits, error) {
	ctx, cancel := context.WithTimeout(ctx, limitTimeout)
	defer cancel()
	return c.driver.MemoryLimits(ctx, u, cgroup)
}

// repair lowers the soft limit of the lowest cgroup that is left above a job's;
// the driver lowers those above that by as much. "If the leaf cgroup is deleted
// directly, … each ancestor keeps its leaf's contribution" (NVIDIA's MPS
// documentation, release 615, "MPS v3 Memory Partitioning"). The back-end misc
// has no hierarchy, so there is nothing to give back.
func (c *Limits) repair(ctx context.Context, l limit) (given gpu.Bytes, from string, err error) {
	if err := c.turn.take(ctx); err != nil {
		return 0, "", err
	}
	defer c.turn.release()
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

func (c *Limits) giveBack(ctx context.Context, l limit, above starter.Cgroup) (gpu.Bytes, error) {
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
func (c *Limits) living(u gpu.UUID) []limit {
	var out []limit
	for _, l := range c.all() {
		if l.GPU == u && l.cgroup().Exists() {
			out = append(out, l)
		}
	}
	return out
}
