package mig

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/gpu"
)

// EnableMode and DisableMode change the MIG mode of a GPU; the executor adds
// them around the steps that the planner knows.
const (
	EnableMode  Verb = "enable-mig"
	DisableMode Verb = "disable-mig"
)

// String says what a step does: "create 3g.20gb at 4".
func (s Step) String() string {
	if s.Verb == EnableMode || s.Verb == DisableMode {
		return string(s.Verb)
	}
	return fmt.Sprintf("%s %s at %d", s.Verb, cmp.Or(s.Name, fmt.Sprintf("profile %d", s.Profile)), s.Start)
}

// Changes are the steps from a state to what is wanted: destroys, lowest start
// first, then creates, largest first. What exists and is wanted is kept. The
// error says why there is no way that leaves foreign instances alone.
func Changes(s gpu.MIGState, w Wanted) ([]Step, error) {
	switch {
	case !s.Capable && w.Enabled:
		return nil, fmt.Errorf("GPU %s: %w", s.UUID, gpu.ErrNoMIG)
	case !s.Capable:
		return nil, nil
	case !w.Enabled:
		return leave(s, w)
	}
	d := difference{state: s, wanted: w}
	steps := d.destroys()
	if !s.Enabled || !s.Pending {
		steps = append(steps, Step{Verb: EnableMode, GPU: s.UUID})
	}
	steps = append(steps, d.creates()...)
	return steps, errors.Join(d.errs...)
}

// leave are the steps to no MIG at all.
func leave(s gpu.MIGState, w Wanted) ([]Step, error) {
	if len(w.Layout) > 0 {
		return nil, fmt.Errorf("GPU %s: %d instances are wanted without MIG mode", s.UUID, len(w.Layout))
	}
	d := difference{state: s}
	steps := d.destroys()
	for _, i := range s.Instances {
		if i.Owner != gpu.Ours {
			d.bad("%s is not ours and would be lost with MIG mode; %s", describe(s, i), removal(s, i))
		}
	}
	if s.Enabled || s.Pending {
		steps = append(steps, Step{Verb: DisableMode, GPU: s.UUID})
	}
	return steps, errors.Join(d.errs...)
}

// difference gathers what stands against a change.
type difference struct {
	state  gpu.MIGState
	wanted Wanted
	errs   []error
}

func (d *difference) bad(format string, args ...any) {
	d.errs = append(d.errs, fmt.Errorf("GPU %s: "+format, append([]any{d.state.UUID}, args...)...))
}

func (d *difference) destroys() []Step {
	var steps []Step
	for _, i := range d.state.Instances {
		switch {
		case i.Owner != gpu.Ours || d.wanted.Layout.Contains(i.Place):
		case len(i.Compute) > 0 && !d.state.Whole(i):
			d.bad("%s is ours but somebody divided it; its compute instances are left alone; %s", describe(d.state, i),
				removal(d.state, i))
		default:
			step := d.step(Destroy, i.Place, i.Size)
			step.Instance = i.ID
			steps = append(steps, step)
		}
	}
	slices.SortFunc(steps, func(a, b Step) int { return cmp.Compare(a.Start, b.Start) })
	return steps
}

func (d *difference) creates() []Step {
	var steps []Step
	if err := d.law(); err != nil {
		d.bad("%w", err)
		return nil
	}
	for _, p := range d.wanted.Layout {
		profile, _ := d.state.Chip.Profile(p.Profile)
		if there, ok := d.state.At(p); !ok || !d.keep(there) {
			steps = append(steps, d.step(Create, p, profile.Size))
		}
	}
	slices.SortFunc(steps, func(a, b Step) int {
		return cmp.Or(cmp.Compare(b.Size, a.Size), cmp.Compare(a.Start, b.Start))
	})
	return steps
}

// law asks whether what is wanted can stand beside what is not ours.
func (d *difference) law() error {
	if err := Legal(d.state.Chip, d.wanted.Layout); err != nil {
		return err
	}
	var all gpu.Layout
	var foreign []string
	for _, i := range d.state.Instances {
		if i.Owner != gpu.Ours && !d.wanted.Layout.Contains(i.Place) {
			all = append(all, i.Place)
			foreign = append(foreign, fmt.Sprintf("%s is not ours and is left alone; %s", describe(d.state, i),
				removal(d.state, i)))
		}
	}
	if err := Legal(d.state.Chip, append(all, d.wanted.Layout...)); err != nil {
		return fmt.Errorf("%w; %s", err, strings.Join(foreign, "; "))
	}
	return nil
}

// keep tells whether an instance is as wanted; if not it can be completed, or
// stands in the way.
func (d *difference) keep(i gpu.Instance) bool {
	switch {
	case d.state.Whole(i):
		return true
	case i.Owner == gpu.Ours && len(i.Compute) == 0:
		return false
	}
	d.bad("%s has %d compute instances, not one with all its multiprocessors, and gpuslot did not make them; %s",
		describe(d.state, i), len(i.Compute), removal(d.state, i))
	return true
}

func (d *difference) step(v Verb, p gpu.Place, size int) Step {
	profile, _ := d.state.Chip.Profile(p.Profile)
	return Step{Verb: v, GPU: d.state.UUID, Place: p, Size: size, Name: profile.Name}
}

// describe names an instance for people.
func describe(s gpu.MIGState, i gpu.Instance) string {
	p, _ := s.Chip.Profile(i.Profile)
	return fmt.Sprintf("the instance %s at %d (GPU instance %d)", cmp.Or(p.Name, fmt.Sprintf("of profile %d", i.Profile)),
		i.Start, i.ID)
}

// removal is what an operator does about an instance that is not ours.
func removal(s gpu.MIGState, i gpu.Instance) string {
	var commands []string
	if len(i.Compute) > 0 {
		commands = append(commands, fmt.Sprintf("nvidia-smi mig -dci -i %s -gi %d", s.UUID, i.ID))
	}
	commands = append(commands, fmt.Sprintf("nvidia-smi mig -dgi -i %s -gi %d", s.UUID, i.ID))
	return "remove it yourself if nobody needs it: " + strings.Join(commands, " && ")
}

// reached tells whether a state is as wanted.
func reached(s gpu.MIGState, w Wanted) bool {
	steps, err := Changes(s, w)
	return err == nil && len(steps) == 0
}
