package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// MIGGPU is the plan of a GPU that is given out in MIG devices. Those that exist
// are GPUs of the plan themselves, with this one as Parent.
type MIGGPU struct {
	UUID  gpu.UUID     `json:"uuid"`
	Index int          `json:"index"`
	Name  string       `json:"name"`
	PCI   gpu.PCIBusID `json:"pci_bus_id"`
	// Memory is the whole GPU's.
	Memory gpu.MiB `json:"memory_mib"`
	// Layouts are wanted, the preferred one first, as mig.ParseWant reads
	// them; none leaves the instances as they are.
	Layouts []string `json:"layouts,omitempty"`
	// Placed are the same layouts with every start, where the chip is published:
	// slots are made for these places.
	Placed []string `json:"placed,omitempty"`
	// Slices is the number of compute slices of the chip, where it is published.
	Slices int `json:"compute_slices,omitempty"`
	// Repartition is whether the layout follows the work that waits, within the
	// places of Placed.
	Repartition mig.Repartition `json:"repartition,omitempty"`
	// Costs are those of the layouts, or of what exists; empty where nothing is
	// published of the chip.
	Costs []LayoutCost `json:"costs,omitempty"`
	// Why the GPU is divided; empty if the configuration says so itself.
	Why string `json:"why,omitempty"`
}

// Repartition returns the farthest that any GPU's layout follows the work that waits;
// empty if all are static.
func (p Plan) Repartition() mig.Repartition {
	for _, how := range []mig.Repartition{mig.Auto, mig.Suggest} {
		if slices.ContainsFunc(p.MIG, func(g MIGGPU) bool { return g.Repartition == how }) {
			return how
		}
	}
	return ""
}

// LayoutCost is what a layout gives, against the GPU with MIG mode off.
type LayoutCost struct {
	Layout string   `json:"layout"`
	Cost   mig.Cost `json:"cost"`
}

// MIGDevice reports whether the GPU is a MIG device, given out to one job at a
// time or shared.
func (g GPU) MIGDevice() bool { return g.Parent != "" }

// Alone reports whether the GPU is a MIG device that is given to one job at a time.
func (g GPU) Alone() bool { return g.MIGDevice() && !g.Shared() && !g.Observed() }

// Model is the product's name, with the profile of a MIG device as NVML spells it.
func (g GPU) Model() string {
	if !g.MIGDevice() {
		return g.Name
	}
	return g.Name + " MIG " + g.Profile
}

// Physical is the GPU's own UUID, or that of the GPU of which it is a part.
func (g GPU) Physical() gpu.UUID {
	if g.MIGDevice() {
		return g.Parent
	}
	return g.UUID
}

// chips finds the published chips of a node, each with its layouts once.
type chips struct {
	driver    int
	catalogue mig.Catalogue
}

// layout is one layout on an otherwise empty GPU.
type layout struct {
	cost     LayoutCost
	places   gpu.Layout
	warnings []string
}

// layout places the instances. A layout that the chip cannot have is an error.
func (cs *chips) layout(chip gpu.Chip, text string) (layout, error) {
	want, err := mig.ParseWant(chip, text)
	if err != nil {
		return layout{}, err
	}
	p, err := mig.PlanWant(&cs.catalogue, gpu.MIGGPU{Chip: chip}, want)
	if err != nil {
		return layout{}, err
	}
	g := p.GPUs[0]
	return layout{LayoutCost{text, g.Cost}, g.Layout, g.Warnings}, nil
}

// divide plans a GPU in MIG devices; not ok if it cannot be one. The places are
// those of its layouts, for which there shall be slots.
func (cs *chips) divide(c candidate, n *notes) (out MIGGPU, places []place, ok bool) {
	out = MIGGPU{
		UUID:    c.UUID,
		Index:   c.Index,
		Name:    c.Name,
		PCI:     c.PCI,
		Memory:  c.Memory,
		Layouts: c.settings.MIGLayouts,
		Why:     c.why,
	}
	keep := len(out.Layouts) == 0
	if keep && c.refusesKeep(n) {
		return out, nil, false
	}
	chip, err := mig.ModelOf(c.GPU, cs.driver)
	if err != nil {
		if !keep {
			n.warn(c.UUID, "mig_layout is not checked before it is made: %v", err)
		}
		return out, nil, true
	}
	out.Slices = chip.Slices()
	texts := out.Layouts
	if keep {
		texts = []string{layoutOf(c.MIGDevices)}
	}
	var possible []string
	var impossible []error
	blocked := 0
	for _, text := range texts {
		l, err := cs.layout(chip, text)
		if err == nil && !keep {
			if err = c.besideOthers(chip, l.places); err != nil {
				blocked++
			}
		}
		if err != nil {
			impossible = append(impossible, err)
			continue
		}
		possible, out.Costs = append(possible, text), append(out.Costs, l.cost)
		for _, w := range l.warnings {
			n.warn(c.UUID, "%s", w)
		}
		if !keep && !c.settings.MIGMPS {
			out.Placed = append(out.Placed, chip.Format(l.places))
			places = merge(places, chip, l.places)
		}
	}
	if !keep && len(possible) == 0 && blocked > 0 {
		n.warn(c.UUID, "mig_layout: %v", impossible[len(impossible)-1])
		out.Layouts = nil // what exists is planned as it is
		if l, err := cs.layout(chip, layoutOf(c.MIGDevices)); err == nil {
			out.Costs = []LayoutCost{l.cost}
		}
		return out, nil, true
	}
	if !keep && len(possible) == 0 {
		c.refuse(n, "mig_layout: %v", impossible[0])
		return out, nil, false
	}
	if !keep {
		out.Layouts = possible // a list may serve several models
	}
	if slices.ContainsFunc(places, func(p place) bool { return p.profile.Memory < 1 }) {
		out.Placed, places = nil, nil // not published: slots are made for what exists
	}
	out.Repartition = c.repartition(out, n)
	return out, places, true
}

// besideOthers reports why a layout cannot be made: MIG devices that gpuslot did not make
// are left alone, and the layout has no room beside them.
func (c candidate) besideOthers(chip gpu.Chip, places gpu.Layout) error {
	var others gpu.Layout
	var names, removal []string
	for _, d := range c.MIGDevices {
		at, known := placeOf(chip, d)
		if known && d.Owner == gpu.Foreign && !slices.Contains(places, at) {
			others, names = append(others, at), append(names, chip.FormatPlace(at))
			removal = append(removal, fmt.Sprintf("nvidia-smi mig -dci -i %s -gi %d && nvidia-smi mig -dgi -i %s -gi "+
				"%d", c.UUID, d.GPUInstance, c.UUID, d.GPUInstance))
		}
	}
	if mig.Legal(chip, append(slices.Clone(others), places...)) == nil {
		return nil
	}
	return fmt.Errorf("%s has no room beside %s, which gpuslot did not make and leaves alone: these are offered as "+
		"they are; nvidia-smi mig -lgi -i %s lists them; remove those that nobody needs: %s",
		chip.Format(places), strings.Join(names, ", "), c.UUID, strings.Join(removal, "; "))
}

// placeOf is where a MIG device is, if its place and its profile are known.
func placeOf(chip gpu.Chip, d gpu.MIGDevice) (gpu.Place, bool) {
	if d.Start == nil {
		return gpu.Place{}, false
	}
	for _, p := range chip.Profiles {
		if p.Name == d.Profile {
			return gpu.Place{Profile: p.ID, Start: *d.Start}, true
		}
	}
	return gpu.Place{}, false
}

// inTheWay reports whether a MIG device of an unknown owner has no room beside the
// places that are wanted: to make these it must go.
func (c candidate) inTheWay(chip gpu.Chip, places []place, d gpu.MIGDevice) bool {
	at, known := placeOf(chip, d)
	if !known || d.Owner != "" {
		return false
	}
	for _, p := range places {
		if mig.Legal(chip, gpu.Layout{at, {Profile: p.profile.ID, Start: p.start}}) != nil {
			return true
		}
	}
	return false
}

// repartition is what the configuration wishes, where it can be had: HTCondor
// must know the slots of all layouts ahead.
func (c candidate) repartition(g MIGGPU, n *notes) mig.Repartition {
	how := c.settings.Repartition
	switch {
	case how == mig.Static:
	case c.settings.MIGMPS:
		n.warn(c.UUID, "repartition = %q has no effect with mig_mps: slots for shared MIG devices cannot be made ahead", how)
		how = mig.Static
	case len(g.Placed) == 0:
		n.warn(c.UUID, "repartition = %q has no effect without a mig_layout whose places are published for this model", how)
		how = mig.Static
	case len(g.Placed) == 1:
		n.warn(c.UUID, "repartition = %q has one layout in mig_layout and nothing to change to: list those that it may "+
			"have", how)
	}
	return how
}

// refusesKeep reports a GPU that has no devices to keep.
func (c candidate) refusesKeep(n *notes) bool {
	switch {
	case !c.MIGEnabled:
		c.refuse(n, `MIG mode is off, and mig_layout names no devices to make: write one such as "3g.20gb, 1g.5gb*4"`)
	case c.MIGDevices == nil:
		c.refuse(n, "which MIG devices it has was not recorded: record the inventory again with gpuslot inventory --json")
	case len(c.MIGDevices) == 0:
		c.refuse(n, "MIG mode is on without a MIG device, which runs no job and may hide the node's other GPUs from CUDA: "+
			"set mig_layout, or turn MIG mode off with nvidia-smi -i %s -mig 0", c.UUID)
	default:
		return false
	}
	return true
}

// refuse is an error for a wish that names the card, and else a warning.
func (c candidate) refuse(n *notes, format string, args ...any) {
	if named(c.settings.ModeFrom) {
		n.fail(c.UUID, format, args...)
		return
	}
	n.warn(c.UUID, "not offered: "+format, args...)
}

// layoutOf is the layout that some devices are, as people write it.
func layoutOf(devices []gpu.MIGDevice) string {
	if len(devices) == 0 {
		return "none"
	}
	count := map[string]int{}
	var words []string
	for _, d := range devices {
		if count[d.Profile]++; count[d.Profile] == 1 {
			words = append(words, d.Profile)
		}
	}
	for i, w := range words {
		if k := count[w]; k > 1 {
			words[i] = fmt.Sprintf("%s*%d", w, k)
		}
	}
	return strings.Join(words, ", ")
}

// devices are the MIG devices of a GPU as candidates of their own: those that
// layouts have a place for, whether or not they exist now, then the others.
func devices(c candidate, places []place, r config.RequestVRAM, n *notes) []candidate {
	var out []candidate
	taken := map[gpu.UUID]bool{}
	for _, p := range places {
		one := c.part(gpu.MIGDevice{
			UUID: gpu.PlaceID(c.UUID, p.String()), Profile: p.profile.Name,
			Memory: p.profile.Memory, Multiprocessors: p.profile.Multiprocessors,
		})
		one.place, one.slices, one.device = p.String(), p.profile.Slices, ""
		if d, there := p.in(c.MIGDevices); there {
			one.device, taken[d.UUID] = d.UUID, true
		}
		out = append(out, one)
	}
	chip, err := mig.ModelOf(c.GPU, driverMajor(c.driver))
	for _, d := range c.MIGDevices {
		if taken[d.UUID] || len(places) > 0 && d.Start == nil {
			continue
		}
		if err == nil && c.inTheWay(chip, places, d) {
			n.warn(c.UUID, "its MIG device %s at %d has no room beside mig_layout: it goes if gpuslot made it, else it stays "+
				"and the layout cannot be made; nvidia-smi mig -lgi -i %s lists it", d.Profile, *d.Start, c.UUID)
			continue
		}
		if sharesInstance(c.MIGDevices, d) {
			n.warn(c.UUID, "its MIG device %s is not offered: it shares the memory of GPU instance %d with another one; "+
				"nvidia-smi mig -lci -i %s lists them: remove all but one", d.UUID, d.GPUInstance, c.UUID)
			continue
		}
		one := c.part(d)
		if c.settings.MIGMPS {
			one.share(r, n)
		}
		out = append(out, one)
	}
	return out
}

// sharesInstance says whether another device is in the GPU instance of d: nothing keeps their memory apart.
func sharesInstance(all []gpu.MIGDevice, d gpu.MIGDevice) bool {
	shares := func(o gpu.MIGDevice) bool { return o.GPUInstance == d.GPUInstance && o.UUID != d.UUID }
	return slices.ContainsFunc(all, shares)
}

// part is a MIG device of the candidate.
func (c candidate) part(d gpu.MIGDevice) candidate {
	one := candidate{
		GPU:      c.GPU,
		settings: c.settings,
		mode:     config.ModeMIG,
		parent:   c.UUID,
		profile:  d.Profile,
		device:   d.UUID,
		why:      c.why,
		driver:   c.driver,
	}
	one.UUID, one.Memory, one.Reserved, one.MPSServer = d.UUID, d.Memory, d.Reserved, d.MPSServer
	one.Multiprocessors, one.MIGDevices = d.Multiprocessors, nil
	// NVIDIA's guide knows no exclusive mode on MIG devices, its header does.
	one.settings.ComputeMode = ""
	return one
}

// share lets several jobs onto a MIG device through MPS, if it holds them. What
// was wished with whole GPUs in mind is lowered.
func (c *candidate) share(r config.RequestVRAM, n *notes) {
	pool := poolOf(*c, r.Quantum)
	if c.Capability.Before(gpu.Volta) {
		return // no such chip has MIG
	}
	if Sharing.Lacks(c.driver) {
		n.warn(c.parent, "its MIG devices are not shared, although mig_mps is set: %s", Sharing.needs(c.driver))
		return
	}
	if pool < r.Minimum {
		n.warn(c.parent, "its MIG devices of %s are not shared, although mig_mps is set: their %s less %s do not hold one "+
			"request_vram.minimum (%s)", c.profile, c.Memory, keptOf(*c), r.Minimum)
		return
	}
	c.mode = config.ModeMPS
	c.settings.Shares = min(c.settings.Shares, int(pool/r.Minimum))
	c.settings.LargestRequest = min(c.settings.LargestRequest, pool)
}
