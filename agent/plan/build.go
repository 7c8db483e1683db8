package plan

import (
	"errors"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/gpu"
)

// candidate is one GPU of the inventory on its way into the plan.
type candidate struct {
	gpu.GPU
	settings config.Settings
	mode     config.Mode
	// elastic: it is whole at times.
	elastic bool
	// chosen: mode was left to the plan, which says why.
	chosen bool
	why    string
	// parent and profile are those of a MIG device.
	parent  gpu.UUID
	profile string
	// place is where a MIG device of a wanted layout is or would be ("3g.20gb@4"),
	// slices its compute slices, device what is there now.
	place  string
	slices int
	device gpu.UUID
	// driver is the node's version, empty if unknown.
	driver string
	// parentSlices are those of the whole GPU, 0 where its model is not known.
	parentSlices int
}

// Build decides what the node should be. Every impossible wish is reported at
// once, each naming its GPU and key; what a site cannot have foreseen (a card
// that is lost, swapped or too small) is a warning, because one card must
// never lose the node; see wishes. The plan is meaningful only without an error.
func Build(cfg config.Config, inv gpu.Inventory) (Plan, error) {
	if r := cfg.RequestVRAM; r.Quantum < 1 || r.Minimum < 1 || r.Minimum%r.Quantum != 0 {
		return Plan{}, errors.New("the configuration was not checked: use config.Default, config.Parse or config.Load")
	}
	inv.GPUs = slices.Clone(inv.GPUs)
	inv.Sort()

	n := &notes{total: len(inv.GPUs)}
	candidates := candidatesOf(cfg, inv)
	p := Plan{
		Schema: Schema,
		Host:   inv.Host,
		Driver: inv.Driver,
		CUDA:   inv.CUDA,
		GPUs:   make([]GPU, 0, len(candidates)),
		Absent: absent(cfg, inv),
	}
	if observes(cfg, inv.Host.Name, candidates, n) {
		p.observe(cfg, candidates, n)
	} else {
		p.offer(cfg, candidates, n)
	}
	noteNode(p, cfg.Unmatched(inv.Host.Name, inv.GPUs), inv.GPUs, n)
	p.Warnings = append(slices.Clone(cfg.Warnings), n.warnings()...)
	return p, n.err()
}

// offer plans what HTCondor is to give out.
func (p *Plan) offer(cfg config.Config, candidates []candidate, n *notes) {
	candidates = withoutUnusual(candidates, n)
	choose(candidates)
	withoutIncapable(candidates, n)
	candidates = withoutMIG(candidates, n)
	w := wishesOf(cfg, p.Host.Name, candidates, cfg.RequestVRAM, ClientCeiling(p.CUDA))
	decideModes(candidates, cfg.RequestVRAM, w, n)
	chooseWhole(candidates, n)
	cs := &chips{driver: driverMajor(p.Driver)}
	for _, c := range candidates {
		if c.mode != config.ModeMIG {
			p.GPUs = append(p.GPUs, size(c, cfg.RequestVRAM, w, n))
			continue
		}
		divided, places, ok := cs.divide(c, n)
		if !ok {
			continue
		}
		p.MIG = append(p.MIG, divided)
		for _, d := range devices(c, places, cfg.RequestVRAM, n) {
			d.parentSlices = divided.Slices
			p.GPUs = append(p.GPUs, size(d, cfg.RequestVRAM, w, n))
		}
	}
	p.checkElastic(cfg.Elastic, n)
	splitHost(p, cfg.CPUOnly, n)
	p.RequestVRAM = requestVRAM(cfg.RequestVRAM, *p, n)
}

func candidatesOf(cfg config.Config, inv gpu.Inventory) []candidate {
	out := make([]candidate, len(inv.GPUs)) // in PCI order
	for i, g := range inv.GPUs {
		s := cfg.For(inv.Host.Name, g)
		out[i] = candidate{GPU: g, settings: s, mode: s.Mode, driver: inv.Driver}
		if s.Mode == config.ModeElastic {
			out[i].mode, out[i].elastic = config.ModeMPS, true
		}
	}
	return out
}

// absent lists the configured GPUs that the node does not have.
func absent(cfg config.Config, inv gpu.Inventory) []gpu.UUID {
	var out []gpu.UUID
	for _, u := range cfg.Configured(inv.Host.Name) {
		if _, ok := inv.GPU(u); !ok {
			out = append(out, u)
		}
	}
	slices.Sort(out)
	return out
}

// isGPUTable reports whether a table speaks of one card alone.
func isGPUTable(table string) bool { return strings.HasPrefix(table, "[gpu.") }

// named reports whether a table speaks of these cards in particular, so that a
// wish in it was made knowing what they are.
func named(table string) bool {
	return isGPUTable(table) || strings.HasPrefix(table, "[model.")
}

// requestVRAM decides what a job without request_vram gets.
func requestVRAM(c config.RequestVRAM, p Plan, n *notes) RequestVRAM {
	out := RequestVRAM{Minimum: c.Minimum, Quantum: c.Quantum, WithoutRequest: c.WithoutRequest}
	whole := slices.ContainsFunc(p.GPUs, func(g GPU) bool { return g.Mode == config.ModeWhole })
	elastic := slices.ContainsFunc(p.GPUs, func(g GPU) bool { return g.Elastic })
	switch {
	case c.WithoutRequest == config.WithoutRequestAuto && whole:
		out.WithoutRequest = config.WithoutRequestWhole
	case c.WithoutRequest == config.WithoutRequestAuto:
		out.WithoutRequest = config.WithoutRequestRefuse
	case c.WithoutRequest == config.WithoutRequestWhole && !whole && !elastic:
		out.WithoutRequest = config.WithoutRequestRefuse
		n.warn(
			"",
			`request_vram.without_request = "whole", but no GPU of this node is whole: GPU jobs without request_vram are `+
				`refused; set whole = 1 in a table that holds for it, or without_request = "refuse"`,
		)
	}
	return out
}
