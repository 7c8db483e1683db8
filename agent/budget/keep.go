package budget

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/agent/deep"
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
	// Supervised: jobs start through supervisors, which pass controllers on. Otherwise nothing does.
	Supervised bool
	// Every is the pause between two rounds. At most a quarter of the time for which a limit counts as there is taken.
	Every time.Duration
}

// Run keeps the limits of jobs until the context ends, and limits those that have none: jobs without a supervisor,
// which asks before the job's program runs. It is a loop of its own: a driver that hangs must not stop health checks.
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
	without := map[jobs.Key]string{} // their leaves
	running := c.jobs.Running()
	for _, j := range running {
		if !now.Shared(j.GPU) || j.Budget <= 0 || c.Has(j.Starter, j.GPU) {
			continue
		}
		if leaf := c.processes.JobCgroup(j.Starter); leaf != "" {
			without[jobs.KeyOf(j.Starter, j.GPU)] = leaf
			lookFor(deep.Again[found], c.root, leaf) // those that their jobs hide are waited for together
		}
	}
	for _, j := range running {
		leaf, is := without[jobs.KeyOf(j.Starter, j.GPU)]
		if !is {
			continue
		}
		err := c.take(ctx, j, leaf, deep.Begin[found]) // it is in the warnings
		if _, never := c.loose.isOff(jobs.KeyOf(j.Starter, j.GPU)); err != nil && never && !now.Supervised {
			c.complain(j.GPU, err.Error())
		}
	}
}

// errChanged: what was limited is not there any more. The job is held for that.
var errChanged = errors.New("the job's account changed the cgroup that HTCondor made for the job")

// errHidden: somebody makes and removes cgroups in the job's slice without end.
var errHidden = errors.New("the job's account keeps gpuslotd from seeing the job's cgroup")

// Take limits one job, whose cgroup is named by its path below the mount. It returns once the limit was read back. What
// goes wrong is in the log and the warnings, too, and the next round tries again.
func (c *Limits) Take(ctx context.Context, j jobs.Job, leaf string) error {
	return c.take(ctx, j, leaf, deep.Again[found])
}

func (c *Limits) take(ctx context.Context, j jobs.Job, leaf string, begin beginning) error {
	l, err := find(c, j, leaf, begin)
	if err != nil {
		return err
	}
	if controller := l.had.kept(); controller != "" {
		if err := c.turn.take(ctx); err != nil {
			return err
		}
		was, known := c.of(l.key())
		meanwhile := known && was.had.kept() == "" // the supervisor passed it on, and asked
		if !meanwhile {
			c.widen(ctx, &l) // what is above binds all the same
			err = c.switchedOff(l, controller)
		}
		c.turn.release()
		if !meanwhile {
			return err
		}
		l.had = was.had
	}
	got, err := c.set(ctx, l, time.Now())
	if err != nil {
		return c.failed(l, err)
	}
	if s, seen := l.look(deep.Again[sight]).Within(deep.Patient); !seen {
		return errHidden
	} else if s.off != "" {
		return c.switchedOff(l, s.off) // before the limit was set, so that another one may bind
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

// found is what is seen of a job's cgroups before it has a limit.
type found struct {
	path []starter.Cgroup
	had  controls
	err  error
}

// beginning is deep.Begin, or deep.Again where the supervisor may have passed the limit's controller on just now.
type beginning func(key string, find func() found) deep.Looking[found]

// lookFor begins the looks of find.
func lookFor(begin beginning, root, leaf string) deep.Looking[found] {
	starter.LookAtOwner(root, leaf)
	return begin("job "+root+leaf, func() (f found) {
		f.path, f.err = starter.CgroupsAbove(root, leaf)
		if f.err == nil {
			f.had = reservation{Path: f.path}.controls()
		}
		return f
	})
}

// find is the limit that a job is to get, with its cgroups as they are now.
func find(c *Limits, j jobs.Job, leaf string, begin beginning) (limit, error) {
	f, seen := lookFor(begin, c.root, leaf).Within(deep.Patient)
	if seen && f.had.kept() != "" { // that look may have begun before the supervisor's turn
		f, seen = lookFor(begin, c.root, leaf).Within(deep.Patient)
	}
	if !seen {
		return limit{}, errHidden
	}
	if f.err != nil {
		return limit{}, f.err // it has ended already
	}
	l := limit{had: f.had, reservation: reservation{
		GPU: j.GPU, Starter: j.Starter, Job: j.ID, Hard: j.Budget, Soft: j.Budget, Path: f.path,
	}}
	if off, _ := c.loose.isOff(l.key()); off || starter.Remade(c.root, leaf) {
		return limit{}, errChanged
	}
	if was, known := c.of(l.key()); known {
		l.had = was.had
	}
	return l, nil
}

// failed says why a job has no limit: once, as long as the reason stays. What the job's account did
// is no other job's reason.
func (c *Limits) failed(l limit, err error) error {
	s, seen := l.see()
	if !seen || !s.exists {
		return err
	}
	if s.off != "" {
		return c.switchedOff(l, s.off)
	}
	why := err.Error()
	if errors.Is(err, gpu.ErrNoMemoryLimits) && withoutDmem(c.root, l.cgroup().Path) {
		why += `: the controller dmem is not enabled for the cgroups of jobs: write "+dmem" to ` +
			`cgroup.subtree_control of every cgroup above them, from the root down, before HTCondor starts`
	}
	if c.complain(l.GPU, why) {
		c.log.Warn("the cgroup of a job was not limited", append(l.names(), "err", why)...)
	}
	return err
}

// keep looks after the limits that were set. Without has the driver is another one, which knows of none.
func (c *Limits) keep(ctx context.Context, has bool) {
	budgets := map[jobs.Key]gpu.MiB{}
	for _, j := range c.jobs.Running() {
		budgets[jobs.KeyOf(j.Starter, j.GPU)] = j.Budget
	}
	c.loose.keep(budgets)
	c.starts.keep(budgets)
	all := c.all()
	if has {
		lookAtAll(all)
	}
	for _, l := range all {
		if !has {
			c.logged(l, c.forget(l))
			continue
		}
		budget := budgets[l.key()]
		s, seen := l.see()
		if !seen {
			continue // it soon counts as no limit
		}
		if s.exists && s.off != "" {
			_ = c.switchedOff(l, s.off) // logged
		}
		switch l.care(s.there(), c.processes.Runs(l.Starter.ID), budget) {
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
		_ = c.failed(l, err) // logged
		return
	}
	c.complain(l.GPU, "")
}

// check reads a limit back, with its use, and sets it again if somebody else changed it.
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
		c.renew(ctx, l, l.Hard)
	default:
		c.confirmed(l, time.Time{}, 0)
		_ = c.failed(l, err) // logged
	}
}

// repairLimit gives back what the cgroups above keep for a cgroup that is gone, or has lost its limit.
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
		c.log.Warn("a cgroup or its limit went before its reservation of VRAM, which was given back",
			append(l.names(), "mib", int64(given.MiB()), "cgroup", from)...)
	}
}

// EndReservation gives a job's reservation back, for its cgroup is about to go.
// The hard limit stays: a part of the job may still run.
func (c *Limits) EndReservation(ctx context.Context, s starter.Starter) {
	for _, l := range c.all() {
		if !l.Starter.Is(s) || l.Soft == 0 {
			continue
		}
		if s, _ := l.see(); s.there() { // otherwise it is repaired
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
	for _, l := range lookAtAll(c.all()) {
		if s, _ := l.see(); s.there() {
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

// undo enters what was before a call that came to nothing. A call that did not return in time may yet take effect.
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

// look reads the limits of a reservation as it is entered now, and not while they are being changed.
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

// repair lowers the soft limit of the lowest cgroup that is left above a job's, which is gone or has lost its limit;
// the driver lowers those above that by as much. "If the leaf cgroup is deleted directly, … each ancestor keeps its
// leaf's contribution" (NVIDIA's MPS documentation, release 615, "MPS v3 Memory Partitioning"). The back-end misc has
// no hierarchy, so there is nothing to give back.
func (c *Limits) repair(ctx context.Context, l limit) (given gpu.Bytes, from string, err error) {
	s, seen := l.see()
	if !seen {
		return 0, "", errHidden
	}
	gone := gone(l.GPU, c.all()) // not during the turn, which all jobs' limits need
	if err := c.turn.take(ctx); err != nil {
		return 0, "", err
	}
	defer c.turn.release()
	if now, known := c.of(l.key()); !known || now.cgroup() != l.cgroup() {
		return 0, "", nil // meanwhile it was repaired, and the job may have another one
	}
	if s.exists { // and what it may have got since counts above, too
		call, cancel := context.WithTimeout(ctx, limitTimeout)
		defer cancel()
		_ = c.driver.SetMemoryLimits(call, l.GPU, l.cgroup().Path, 0, gpu.Bytes(l.Hard.Bytes())) // it may refuse
	}
	for _, above := range l.Path[1:] {
		if !above.Exists() {
			continue // and a new one of its name knows nothing of it
		}
		given, err = c.giveBack(ctx, l, above, gone)
		if err != nil {
			return 0, above.Path, err
		}
		from = above.Path
		break
	}
	return given, from, c.forget(l)
}

func (c *Limits) giveBack(
	ctx context.Context, l limit, above starter.Cgroup, gone map[jobs.Key]bool,
) (gpu.Bytes, error) {
	got, err := c.limits(ctx, l.GPU, above.Path)
	if errors.Is(err, gpu.ErrNoMemoryLimits) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n := l.leak(above, got.Soft, living(l.GPU, c.all(), gone))
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

// gone are those of some limits on a GPU whose cgroups are seen to be gone, or to have lost them.
func gone(u gpu.UUID, all []limit) map[jobs.Key]bool {
	out := map[jobs.Key]bool{}
	for _, l := range lookAtAll(all) {
		if l.GPU == u {
			s, seen := l.see()
			out[l.key()] = seen && !s.there()
		}
	}
	return out
}

// living are the others on that GPU.
func living(u gpu.UUID, all []limit, gone map[jobs.Key]bool) []limit {
	return slices.DeleteFunc(all, func(l limit) bool { return l.GPU != u || gone[l.key()] })
}
