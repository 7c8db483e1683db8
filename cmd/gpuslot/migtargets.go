package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// targetFlags say what is wanted, of which GPUs.
type targetFlags struct {
	file, name string
	layout     string
	gpus       []string
	boot       bool
}

func (t *targetFlags) add(c *cobra.Command) {
	c.Flags().StringVarP(&t.file, "config-file", "f", "", "a mig-parted `file`")
	c.Flags().StringVarP(&t.name, "selected-config", "c", "",
		"the `name` of a configuration in it; the only one where there is one")
	c.Flags().StringVar(&t.layout, "layout", "", "the wanted `layout` of the GPUs named by --gpu")
	c.Flags().StringSliceVar(&t.gpus, "gpu", nil, "these GPUs only, by NVML `index` or UUID")
}

// check refuses flags that contradict each other.
func (t targetFlags) check() error {
	named := 0
	for _, is := range []bool{t.file != "", t.layout != "", t.boot} {
		if is {
			named++
		}
	}
	switch {
	case named == 0:
		return show.Usage(show.Hint(errors.New("no layout is wanted"),
			"name a mig-parted file with -f, or a layout with --gpu and --layout"))
	case named > 1:
		return show.Usage(errors.New("one of -f, --layout and --boot at a time"))
	case t.name != "" && t.file == "":
		return show.Usage(errors.New("-c names a configuration of the file that -f names"))
	case t.layout != "" && len(t.gpus) == 0:
		return show.Usage(show.Hint(errors.New("--layout is for the GPUs that --gpu names"),
			"GPUs of different models have different profiles; gpuslot inventory lists them"))
	case t.file != "":
		_, err := t.entries() // before the driver is asked
		return err
	}
	return nil
}

// entries are those of the selected configuration of the file.
func (t targetFlags) entries() ([]mig.PartedEntry, error) {
	file, err := mig.ReadParted(t.file)
	if err != nil {
		return nil, err
	}
	name := t.name
	if names := file.Names(); name == "" && len(names) == 1 {
		name = names[0]
	}
	entries, err := file.Config(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.file, err)
	}
	return entries, nil
}

// target is one GPU with what is wanted of it.
type target struct {
	state gpu.MIGState
	off   bool // no MIG mode
	want  mig.Want
	// exact is a layout with all places, of an earlier apply.
	exact *mig.Wanted
}

// targets are the GPUs that are meant, in the order of the states.
func (t targetFlags) targets(e mig.Executor, states []gpu.MIGState) ([]target, error) {
	of, err := chosenGPUs(t.gpus, states)
	if err != nil {
		return nil, err
	}
	var targets []target
	switch {
	case t.boot:
		targets, err = bootTargets(e, of)
	case t.file != "":
		targets, err = t.fileTargets(of)
	default:
		targets, err = t.layoutTargets(of)
	}
	if err == nil && len(targets) == 0 && !t.boot {
		err = errors.New("no GPU of this node is meant: " +
			"look at devices and device-filter in the file, and at gpuslot inventory")
	}
	return targets, err
}

// chosenGPUs are those that --gpu names, or all.
func chosenGPUs(names []string, states []gpu.MIGState) ([]gpu.MIGState, error) {
	if len(names) == 0 {
		return states, nil
	}
	var of []gpu.MIGState
	for _, name := range names {
		i := slices.IndexFunc(states, func(s gpu.MIGState) bool { return isNamed(name, s.Index, s.UUID) })
		if i < 0 {
			return nil, noGPU(name, len(states))
		}
		of = append(of, states[i])
	}
	sortStates(of)
	return slices.CompactFunc(of, func(a, b gpu.MIGState) bool { return a.UUID == b.UUID }), nil
}

// isNamed reports whether --gpu names a GPU, by its index or its UUID.
func isNamed(name string, index int, u gpu.UUID) bool {
	return name == strconv.Itoa(index) || strings.EqualFold(name, u.String())
}

func noGPU(name string, n int) error {
	return show.Hint(fmt.Errorf("there is no GPU %q among the %d of this node", name, n), "gpuslot inventory lists them")
}

func sortStates(states []gpu.MIGState) {
	slices.SortFunc(states, func(a, b gpu.MIGState) int { return cmp.Compare(a.Index, b.Index) })
}

func (t targetFlags) layoutTargets(states []gpu.MIGState) ([]target, error) {
	var targets []target
	for _, s := range states {
		next := target{state: s, off: t.layout == "off"}
		if !next.off {
			var err error
			if next.want, err = wantOf(s, t.layout); err != nil {
				return nil, err
			}
		}
		targets = append(targets, next)
	}
	return targets, nil
}

func wantOf(s gpu.MIGState, layout string) (mig.Want, error) {
	if !s.Capable {
		return mig.Want{}, fmt.Errorf("GPU %d (%s): %w", s.Index, s.UUID, gpu.ErrNoMIG)
	}
	w, err := mig.ParseWant(s.Chip, layout)
	if err != nil {
		return w, fmt.Errorf("GPU %d (%s): %w", s.Index, s.UUID, err)
	}
	return w, nil
}

// fileTargets are the GPUs that the selected configuration is for.
func (t targetFlags) fileTargets(states []gpu.MIGState) ([]target, error) {
	entries, err := t.entries()
	if err != nil {
		return nil, err
	}
	var targets []target
	for _, s := range states {
		entry, ok, err := mig.EntryFor(entries, s.Index, s.Device)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.file, err)
		}
		if !ok {
			continue
		}
		next := target{state: s, off: !entry.Enabled}
		if !next.off {
			if next.want, err = wantOf(s, entry.Text()); err != nil {
				return nil, fmt.Errorf("%s: line %d: %w", t.file, entry.Line, err)
			}
		}
		targets = append(targets, next)
	}
	return targets, nil
}

// bootTargets are the GPUs that gpuslot gave a layout before.
func bootTargets(e mig.Executor, states []gpu.MIGState) ([]target, error) {
	var targets []target
	for _, s := range states {
		w, ok, err := e.Applied(s.UUID)
		if err != nil {
			return nil, err
		}
		if ok {
			targets = append(targets, target{state: s, exact: &w})
		}
	}
	return targets, nil
}

// reach is what the executor has to reach. Where a layout leaves places open
// the planner chooses those that disturb least.
func (t target) reach() (mig.Wanted, error) {
	switch {
	case t.exact != nil:
		return *t.exact, nil
	case t.off:
		return mig.Wanted{}, nil
	}
	p, err := mig.PlanWant(&mig.Catalogue{}, t.state.MIGGPU, t.want)
	if err != nil {
		return mig.Wanted{}, err
	}
	var missing []error
	for _, s := range p.Served {
		if s.Served < s.Wanted {
			missing = append(missing, fmt.Errorf("%d of %d %s: %s", s.Served, s.Wanted, s.Profile, s.Why))
		}
	}
	if len(missing) > 0 {
		return mig.Wanted{}, fmt.Errorf("the wanted layout cannot be had beside what must stay: %w", errors.Join(missing...))
	}
	w := mig.WantedFrom(t.state, p.GPUs[0].Layout)
	return w, t.served(w.Layout)
}

// served reports whether the layout has what is wanted without counting foreign
// instances that are not whole.
func (t target) served(l gpu.Layout) error {
	chip, have := t.state.Chip, map[gpu.ProfileID]int{}
	for _, p := range l.Without(t.want.Placed) {
		have[p.Profile]++
	}
	for _, p := range t.want.Placed.Without(l) {
		return fmt.Errorf("%s is there, but it is not ours and not one whole device", chip.FormatPlace(p))
	}
	for _, k := range t.want.Counts {
		if p, _ := chip.Profile(k.Profile); have[k.Profile] < k.N {
			return fmt.Errorf("an instance %s is not ours and not one whole device: it cannot count as one of the %d wanted",
				p.Name, k.N)
		}
	}
	return nil
}

// differences say how a GPU is not as wanted.
func (t target) differences() []string {
	s := t.state
	switch {
	case t.off && (s.Enabled || s.Pending):
		return []string{"MIG mode is on, or will be after a reset; off is wanted"}
	case t.off:
		return nil
	case !s.Enabled:
		return []string{"MIG mode is off; on is wanted"}
	}
	var differ []string
	if !s.Pending {
		differ = append(differ, "MIG mode is on, and will be off after a reset")
	}
	return append(differ, t.instances()...)
}

// instances compares places and counts.
func (t target) instances() []string {
	chip, have := t.state.Chip, map[gpu.ProfileID]int{}
	var differ []string
	for _, i := range t.state.Instances {
		switch {
		case !t.state.Whole(i):
			differ = append(differ, fmt.Sprintf("%s has %d compute instances, not one with all its multiprocessors",
				chip.FormatPlace(i.Place), len(i.Compute)))
		case !t.want.Placed.Contains(i.Place):
			have[i.Profile]++
		}
	}
	for _, p := range t.want.Placed.Without(t.state.Layout()) {
		differ = append(differ, chip.FormatPlace(p)+" is missing")
	}
	wanted := map[gpu.ProfileID]int{}
	for _, k := range t.want.Counts {
		wanted[k.Profile] = k.N
	}
	for _, p := range chip.Profiles {
		if have[p.ID] != wanted[p.ID] {
			differ = append(differ, fmt.Sprintf("%d of %s; %d are wanted", have[p.ID], p.Name, wanted[p.ID]))
		}
	}
	return differ
}
