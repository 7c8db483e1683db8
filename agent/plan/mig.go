package plan

import (
	"fmt"
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
	// Layouts are wanted, the preferred one first, as mig.Chip.ParseWant reads
	// them; none leaves the instances as they are.
	Layouts []string `json:"layouts,omitempty"`
	// Costs are those of the layouts, or of what exists; empty where nothing is
	// published of the chip.
	Costs []LayoutCost `json:"costs,omitempty"`
	// Why the GPU is divided; empty if the configuration says so itself.
	Why string `json:"why,omitempty"`
}

// LayoutCost is what a layout gives, against the GPU with MIG mode off.
type LayoutCost struct {
	Layout string   `json:"layout"`
	Cost   mig.Cost `json:"cost"`
}

// MIGDevice reports whether the GPU is a MIG device, given out to one job at a
// time or shared.
func (g GPU) MIGDevice() bool { return g.Parent != "" }

// Alone reports whether the GPU is a MIG device that one job has at a time.
func (g GPU) Alone() bool { return g.MIGDevice() && !g.Shared() }

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

// cost is what a layout gives on an otherwise empty GPU, with the warnings that
// belong to it. A layout that the chip cannot have is an error.
func (cs *chips) cost(chip mig.Chip, text string) (LayoutCost, []string, error) {
	want, err := chip.ParseWant(text)
	if err != nil {
		return LayoutCost{}, nil, err
	}
	p, err := mig.PlanWant(&cs.catalogue, mig.GPU{Chip: chip}, want)
	if err != nil {
		return LayoutCost{}, nil, err
	}
	return LayoutCost{text, p.GPUs[0].Cost}, p.GPUs[0].Warnings, nil
}

// divide plans a GPU in MIG devices; not ok if it cannot be one.
func (cs *chips) divide(c candidate, n *notes) (out MIGGPU, ok bool) {
	out = MIGGPU{UUID: c.UUID, Index: c.Index, Name: c.Name, PCI: c.PCI, Memory: c.Memory, Layouts: c.settings.MIGLayouts, Why: c.why}
	keep := len(out.Layouts) == 0
	switch {
	case keep && !c.MIGEnabled:
		c.refuse(n, `MIG mode is off, and mig_layout does not say which MIG devices to make: write one such as "3g.20gb, 1g.5gb*4"`)
		return out, false
	case keep && c.MIGDevices == nil:
		c.refuse(n, "which MIG devices it has was not recorded: record the inventory again with gpuslot inventory --json")
		return out, false
	case keep && len(c.MIGDevices) == 0:
		c.refuse(n, "MIG mode is on without a MIG device, which runs no job and may hide the node's other GPUs from CUDA: set mig_layout, or turn MIG mode off with nvidia-smi -i %s -mig 0", c.UUID)
		return out, false
	}
	chip, err := mig.ModelOf(c.GPU, cs.driver)
	if err != nil {
		if !keep {
			n.warn(c.UUID, "mig_layout is not checked before it is made: %v", err)
		}
		return out, true
	}
	texts := out.Layouts
	if keep {
		texts = []string{layoutOf(c.MIGDevices)}
	}
	var possible []string
	var impossible []error
	for _, text := range texts {
		cost, warnings, err := cs.cost(chip, text)
		if err != nil {
			impossible = append(impossible, err)
			continue
		}
		possible, out.Costs = append(possible, text), append(out.Costs, cost)
		for _, w := range warnings {
			n.warn(c.UUID, "%s", w)
		}
	}
	switch {
	case keep:
	case len(possible) == 0:
		c.refuse(n, "mig_layout: %v", impossible[0])
		return out, false
	default:
		out.Layouts = possible // a list may serve several models
	}
	return out, true
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

// devices are the MIG devices of a GPU as candidates of their own.
func devices(c candidate, r config.RequestVRAM, n *notes) []candidate {
	var out []candidate
	for _, d := range c.MIGDevices {
		one := candidate{GPU: c.GPU, settings: c.settings, mode: config.ModeMIG, parent: c.UUID, profile: d.Profile, why: c.why}
		one.UUID, one.Memory, one.Multiprocessors, one.MIGDevices = d.UUID, d.Memory, d.Multiprocessors, nil
		// NVIDIA's guide knows no exclusive mode on MIG devices, its header does.
		one.settings.ComputeMode = ""
		if c.settings.MIGMPS {
			one.share(r, n)
		}
		out = append(out, one)
	}
	return out
}

// share lets several jobs onto a MIG device through MPS, if it holds them. What
// was wished with whole GPUs in mind is lowered.
func (c *candidate) share(r config.RequestVRAM, n *notes) {
	pool := poolOf(*c, r.Quantum)
	if c.Capability.Before(gpu.Volta) {
		return // no such chip has MIG
	}
	if pool < r.Minimum {
		n.warn(c.parent, "its MIG devices of %s are not shared, although mig_mps is set: their %s less reserved_vram do not hold one request_vram.minimum (%s)", c.profile, c.Memory, r.Minimum)
		return
	}
	c.mode = config.ModeMPS
	c.settings.Shares = min(c.settings.Shares, int(pool/r.Minimum))
	c.settings.LargestRequest = min(c.settings.LargestRequest, pool)
}
