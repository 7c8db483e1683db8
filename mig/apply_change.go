package mig

import (
	"context"
	"errors"
	"fmt"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/backoff"
)

// change is one change of one GPU under its lock.
type change struct {
	e       Executor
	u       gpu.UUID
	journal Journal
	now     gpu.MIGState // with owners
	done    []Step
	// steps are those to the target, held have device nodes open of what they destroy; nil before a look.
	steps []Step
	held  *held
}

// look reads the hardware again.
func (c *change) look(ctx context.Context) error {
	s, err := c.e.Hardware.State(ctx, c.u)
	if err != nil {
		return err
	}
	c.now = c.journal.settle(s, c.e.Boot)
	return nil
}

// ours is the part of the layout that can be made again.
func (c *change) ours() Wanted {
	w := Wanted{Enabled: c.now.Enabled}
	for _, i := range c.now.Instances {
		if i.Owner == gpu.Ours {
			w.Layout = append(w.Layout, i.Place)
		}
	}
	w.Layout = gpu.NewLayout(w.Layout...)
	return w
}

func (c *change) outcome(end End) Outcome {
	return Outcome{GPU: c.u, End: end, Steps: c.done, State: &c.now}
}

// apply refuses what cannot be done before it touches anything.
func (c *change) apply(ctx context.Context, w Wanted) (Outcome, error) {
	steps, err := Changes(c.now, w)
	if err == nil && len(steps) > 0 {
		err = c.clear(ctx, steps)
	}
	if err != nil {
		return c.outcome(Unchanged), err
	}
	if len(steps) == 0 {
		return c.outcome(Unchanged), c.finish(w)
	}
	c.journal.Change = &Change{Former: c.ours(), Wanted: w}
	return c.end(ctx, false)
}

// clear has our own holders of all that goes stopped. It looks before and then whether
// anybody else uses it: all or nothing.
func (c *change) clear(ctx context.Context, steps []Step) error {
	if err := c.e.blocked(c.now, steps, c.e.Proc.against(ctx, c.now, steps...), c.e.Owns); err != nil {
		return err
	}
	for _, step := range steps {
		i, ok := c.now.At(step.Place)
		if step.Verb != Destroy || !ok || c.e.Release == nil {
			continue
		}
		if err := c.e.Release(ctx, c.u, i); err != nil {
			return fmt.Errorf("GPU %s: stop our own holders of %s: %w", c.u, describe(c.now, i), err)
		}
	}
	if err := c.look(ctx); err != nil {
		return err
	}
	c.held = c.e.Proc.against(ctx, c.now, steps...)
	return c.e.blocked(c.now, steps, c.held, nil)
}

// recover ends the change in the journal: on in its direction, else the other way.
func (c *change) recover(ctx context.Context) (Outcome, error) {
	c.e.Log.Info("ending an unfinished MIG change", "gpu", c.u, "back", c.journal.Change.Back)
	return c.end(ctx, c.journal.Change.Back)
}

// end tries one target of the journal, then the other.
func (c *change) end(ctx context.Context, back bool) (Outcome, error) {
	begun := *c.journal.Change
	first, second := begun.Wanted, begun.Former
	if back {
		first, second = second, first
	}
	err := c.reach(ctx, first, back)
	if err == nil {
		return c.outcome(ended(back)), c.finish(first)
	}
	c.e.Log.Warn("MIG change failed, going to the other layout", "gpu", c.u, "err", err)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
	defer cancel()
	c.held = nil
	errBack := c.reach(ctx, second, !back)
	if errBack == nil {
		errBack = c.finish(second)
	}
	if errBack == nil {
		return c.outcome(ended(!back)), fmt.Errorf("%w; the layout is %s", err,
			map[bool]string{true: "the wanted one nevertheless", false: "the former one again"}[back])
	}
	return c.degrade(errors.Join(err, fmt.Errorf("going back: %w", errBack)))
}

func ended(back bool) End {
	if back {
		return ReachedFormer
	}
	return ReachedWanted
}

// finish empties the journal. A change that cannot be noted as ended stays one.
func (c *change) finish(w Wanted) error {
	if c.journal.Change == nil && c.journal.Degraded == "" && c.journal.Applied != nil && c.journal.Applied.equal(w) {
		return nil
	}
	ended := c.journal
	ended.Change, ended.Degraded, ended.Applied = nil, "", &w
	err := ended.write(c.e.Dir)
	if err == nil {
		c.journal = ended
	}
	return err
}

func (w Wanted) equal(v Wanted) bool { return w.Enabled == v.Enabled && w.Layout.Equal(v.Layout) }

// degrade leaves the journal open: the next Apply or Recover tries again.
func (c *change) degrade(err error) (Outcome, error) {
	c.journal.Degraded = err.Error()
	c.journal.Change.Back, c.journal.Change.Step = true, nil
	errWrite := c.journal.write(c.e.Dir)
	return c.outcome(EndDegraded), errors.Join(fmt.Errorf("GPU %s is degraded: "+
		"neither the wanted nor the former layout could be reached: %w", c.u, err), errWrite)
}

// unread is the outcome where journal or hardware cannot be read: nothing is
// touched, but a change that an earlier process left open stays open, and the
// journal says why.
func (c *change) unread(err error) (Outcome, error) {
	if c.journal.Change == nil {
		return Outcome{GPU: c.u, End: Unchanged}, err
	}
	err = fmt.Errorf("GPU %s is degraded: the change in the journal cannot be ended: %w", c.u, err)
	c.journal.Degraded = err.Error()
	return Outcome{GPU: c.u, End: EndDegraded}, errors.Join(err, c.journal.write(c.e.Dir))
}

// reach does the steps to one target. The hardware is read again first: after a
// failure it may be anything.
func (c *change) reach(ctx context.Context, w Wanted, back bool) error {
	if err := c.look(ctx); err != nil {
		return err
	}
	steps, err := Changes(c.now, w)
	if err != nil {
		return err
	}
	c.steps = steps
	for _, step := range steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		c.journal.Change.Back, c.journal.Change.Step = back, &step
		if err := c.journal.write(c.e.Dir); err != nil {
			return err
		}
		if err := c.do(ctx, step); err != nil {
			return c.located(step, err)
		}
		c.done = append(c.done, step)
		c.e.Log.Info("MIG step done", "gpu", c.u, "step", step.String())
	}
	if !reached(c.now, w) {
		return fmt.Errorf("GPU %s: every step succeeded, but the layout is not as wanted; did somebody else change it?", c.u)
	}
	return nil
}

// located says where an error was, unless it says so itself.
func (c *change) located(step Step, err error) error {
	var blocked BlockedError
	if errors.As(err, &blocked) {
		return err
	}
	return fmt.Errorf("GPU %s: %s: %w", c.u, step, err)
}

// do is one step with its tries, then the look that proves it.
func (c *change) do(ctx context.Context, step Step) error {
	pause := backoff.Doubling{First: c.e.Patience.First}
	for try := 1; ; try++ {
		err := c.try(ctx, step)
		errLook := c.look(ctx)
		if err == nil && errLook == nil {
			return c.proven(ctx, step)
		}
		if err == nil || !errors.Is(err, gpu.ErrInUse) || try >= c.e.Patience.Tries {
			return errors.Join(c.explained(ctx, step, err), errLook)
		}
		if err := backoff.Wait(ctx, pause.After(try)); err != nil {
			return err
		}
	}
}

// explained names the holders once the tries are used up. What holds a mode or
// a reset may be idle: whoever has the GPU's node open.
func (c *change) explained(ctx context.Context, step Step, err error) error {
	var blocked BlockedError
	mode := step.Verb == EnableMode || step.Verb == DisableMode
	if err == nil || errors.As(err, &blocked) || !mode && !errors.Is(err, gpu.ErrInUse) {
		return err
	}
	holders := c.e.holdersAgainst(c.now, step, c.e.Proc.against(ctx, c.now, step))
	if mode {
		holders = append(holders, c.e.Proc.withNode(ctx, c.now)...)
	}
	return BlockedError{GPU: c.u, Step: step, Holders: unique(holders), Err: err}
}

func (c *change) try(ctx context.Context, step Step) error {
	switch step.Verb {
	case Create:
		return c.e.Hardware.Create(ctx, c.u, step.Place, step.Size)
	case Destroy:
		return c.destroy(ctx, step)
	}
	return c.mode(ctx, step)
}

// destroy asks NVML again who uses the instance: a job may have come since. For all steps there is one look at who has
// nodes open, and another one where somebody has: it may take long.
func (c *change) destroy(ctx context.Context, step Step) error {
	i, there := c.now.At(step.Place)
	if !there {
		return nil
	}
	if i.Owner != gpu.Ours {
		return fmt.Errorf("%s is not ours any more", describe(c.now, i))
	}
	if c.held == nil {
		c.held = c.e.Proc.against(ctx, c.now, c.steps...)
	}
	if holders := c.e.holdersAgainst(c.now, step, c.held); len(holders) > 0 {
		c.held = nil // the next try looks again
		return BlockedError{GPU: c.u, Step: step, Holders: holders, Err: gpu.ErrInUse}
	}
	return c.e.Hardware.Destroy(ctx, c.u, step.Place)
}

// proven compares what the hardware says after a step with what it should say.
func (c *change) proven(ctx context.Context, step Step) error {
	i, there := c.now.At(step.Place)
	switch step.Verb {
	case Destroy:
		if there {
			return errors.New("it succeeded, but the instance is still there")
		}
		c.journal.disown(step.Place)
	case Create:
		if !there || !c.now.Whole(i) {
			return errors.New("it succeeded, but the instance is not there with one whole compute instance")
		}
		if c.e.Publish != nil {
			return c.e.Publish(ctx, c.now, i)
		}
	case EnableMode, DisableMode:
		if c.now.Enabled != (step.Verb == EnableMode) {
			return errors.New("it succeeded, but the mode is not in force")
		}
	}
	return nil
}

// mode changes MIG mode while no process uses the GPU. A mode that stays pending is
// taken back on the way to the former layout, or the next reset by anybody would
// surprise.
func (c *change) mode(ctx context.Context, step Step) error {
	if holders := c.e.holdersAgainst(c.now, step, nil); len(holders) > 0 {
		return BlockedError{GPU: c.u, Step: step, Holders: holders, Err: gpu.ErrInUse}
	}
	err := c.e.Hardware.SetMode(ctx, c.u, step.Verb == EnableMode)
	if errors.Is(err, gpu.ErrResetRequired) && c.e.Reset != nil {
		if err = c.e.Reset(ctx, c.u); err != nil {
			err = fmt.Errorf("%w: %w", gpu.ErrResetRequired, err)
		}
	}
	return err
}
