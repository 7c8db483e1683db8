package layouts

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/modes"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// noteMode journals the MIG mode in which a GPU was found, before it is divided.
func noteMode(p config.Paths, u gpu.UUID, enabled bool) error {
	j, err := modes.Read(modes.File(p))
	if err != nil {
		return fmt.Errorf("MIG layout of %s: %w", u, err)
	}
	if _, noted := j.MIGModes[u]; noted {
		return nil
	}
	j.MIGModes[u] = enabled
	return j.Write(modes.File(p))
}

// leaveGPUs takes back what was made on GPUs that are not to be divided any more, as far
// as nobody uses it.
func (l *Layouts) leaveGPUs(ctx context.Context, n *Node, problem func(error)) (changed bool) {
	j, err := modes.Read(modes.File(l.paths))
	if err != nil {
		return false // who sets compute modes reports it
	}
	for _, u := range slices.Sorted(maps.Keys(j.MIGModes)) {
		now, here := n.Inventory.GPU(u)
		wished := n.Config.For(n.Plan.Host.Name, now).Mode == config.ModeMIG // though it cannot be now
		planned := slices.ContainsFunc(n.Plan.MIG, func(m plan.MIGGPU) bool { return m.UUID == u })
		if !here || wished || planned {
			continue
		}
		l.beat()
		steps, err := l.leave(ctx, n, u, j.MIGModes[u])
		changed = changed || steps > 0
		problem(err)
	}
	return changed
}

// leave removes the idle instances of ours and, when none is left, restores the mode in
// which the GPU was found. Foreign instances stay, and the mode with them.
func (l *Layouts) leave(ctx context.Context, n *Node, u gpu.UUID, found bool) (steps int, err error) {
	s, err := l.executor.State(ctx, u)
	if err != nil {
		return 0, err
	}
	if why := n.unknown(l.jobs); why != "" {
		return 0, fmt.Errorf("the MIG devices of %s stay for now: %s", u, why)
	}
	s = l.withJobs(s)
	wanted := mig.Wanted{Enabled: s.Enabled}
	foreign := false
	var users []string
	var goes []gpu.UUID
	for _, i := range s.Instances {
		switch {
		case i.Owner != gpu.Ours:
			foreign = true
		case i.Busy():
			wanted.Layout = append(wanted.Layout, i.Place)
			users = append(users, s.Chip.FormatPlace(i.Place))
		default:
			goes = append(goes, s.Names(i)...)
		}
	}
	if slot := l.jobs.Reserve(goes); slot != "" {
		return 0, fmt.Errorf("the MIG devices of %s stay for now: %s has a job there", u, slot)
	}
	l.ending.add(goes)
	free := len(wanted.Layout) == 0
	if free && !foreign {
		wanted.Enabled = found && s.Enabled
	}
	out, err := l.change(ctx, n, u, func(ctx context.Context, u gpu.UUID) (mig.Outcome, error) {
		return l.executor.Apply(ctx, u, wanted)
	})
	steps = len(out.Steps)
	switch {
	case err != nil:
		return steps, fmt.Errorf("take back the MIG devices of %s: %w", u, err)
	case !free:
		return steps, fmt.Errorf("MIG devices of %s that gpuslot made stay until their users end: %v", u, users)
	}
	if err := l.executor.Forget(u); err != nil {
		return steps, err
	}
	l.log.Info("MIG devices taken back", "gpu", u, "steps", steps, "foreign", foreign)
	delete(l.reached, u)
	j, err := modes.Read(modes.File(l.paths))
	if err != nil {
		return steps, err
	}
	delete(j.MIGModes, u)
	return steps, j.Write(modes.File(l.paths))
}
