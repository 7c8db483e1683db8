package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// noteMIGMode journals the mode in which a GPU was found before it is divided.
func noteMIGMode(path string, g gpu.UUID, enabled bool) error {
	u, err := readUndo(path)
	if err != nil {
		return fmt.Errorf("MIG layout of %s: %w", g, err)
	}
	if _, noted := u.MIGModes[g]; noted {
		return nil
	}
	u.MIGModes[g] = enabled
	return u.write(path)
}

// undivideLeft takes back what the agent made on GPUs that are not to be divided
// any more, as far as nobody uses it.
func (a *Agent) undivideLeft(ctx context.Context, v *view, inv gpu.Inventory, problem func(error)) (changed bool) {
	u, err := readUndo(undoFile(v.config.Paths))
	if err != nil {
		return false // borrowModes tells it
	}
	for _, g := range slices.Sorted(maps.Keys(u.MIGModes)) {
		now, here := inv.GPU(g)
		wished := v.config.For(v.plan.Host.Name, now).Mode == config.ModeMIG // though it cannot be now
		if !here || wished || slices.ContainsFunc(v.plan.MIG, func(m plan.MIGGPU) bool { return m.UUID == g }) {
			continue
		}
		if why := a.jobs.Unknown(); why != "" {
			problem(fmt.Errorf("the MIG devices of %s stay for now: %s", g, why))
			continue
		}
		a.beat()
		steps, err := a.undivide(ctx, v, g, u.MIGModes[g])
		changed = changed || steps > 0
		problem(err)
	}
	return changed
}

// undivideAll does the same with every GPU, when gpuslot leaves the node.
func (a *Agent) undivideAll(ctx context.Context) error {
	v := a.view.Load()
	if a.layouts.executor.Hardware == nil {
		return nil
	}
	u, err := readUndo(undoFile(v.config.Paths))
	if err != nil {
		return err
	}
	var errs []error
	for _, g := range slices.Sorted(maps.Keys(u.MIGModes)) {
		_, err := a.undivide(ctx, v, g, u.MIGModes[g])
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// undivide removes the idle instances of ours and, when none is left, restores the
// mode in which the GPU was found. Foreign instances stay, and the mode with them.
func (a *Agent) undivide(ctx context.Context, v *view, u gpu.UUID, found bool) (steps int, err error) {
	e := a.executor(v)
	s, err := e.State(ctx, u)
	if err != nil {
		return 0, err
	}
	s = a.claimed(v, s)
	wanted := mig.Wanted{Enabled: s.Enabled}
	foreign := false
	var users []string
	for _, i := range s.Instances {
		switch {
		case i.Owner != gpu.Ours:
			foreign = true
		case i.Busy():
			wanted.Layout = append(wanted.Layout, i.Place)
			users = append(users, s.Chip.FormatPlace(i.Place))
		}
	}
	gone := len(wanted.Layout) == 0
	if gone && !foreign {
		wanted.Enabled = found && s.Enabled
	}
	out, err := a.changing(ctx, u, func(ctx context.Context, u gpu.UUID) (mig.Outcome, error) { return e.Apply(ctx, u, wanted) })
	steps = len(out.Steps)
	switch {
	case err != nil:
		return steps, fmt.Errorf("take back the MIG devices of %s: %w", u, err)
	case !gone:
		return steps, fmt.Errorf("MIG devices of %s that gpuslot made stay until their users end: %v", u, users)
	}
	if err := e.Forget(u); err != nil {
		return steps, err
	}
	a.log.Info("MIG devices taken back", "gpu", u, "steps", steps, "foreign", foreign)
	return steps, a.forgetMIGMode(v, u)
}

func (a *Agent) forgetMIGMode(v *view, g gpu.UUID) error {
	delete(a.layouts.reached, g)
	path := undoFile(v.config.Paths)
	u, err := readUndo(path)
	if err != nil {
		return err
	}
	delete(u.MIGModes, g)
	return u.write(path)
}
