package plan

import (
	"slices"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/gpu"
)

// Observed reports whether gpuslot leaves the GPU as it is, and looks on.
func (g GPU) Observed() bool { return g.Mode == config.ModeObserve }

// observes decides whether the node is looked at only. Observing leaves HTCondor's
// configuration to the site, every other mode generates it: a node does either. One
// whose GPUs are gone stays what its own tables say.
func observes(cfg config.Config, host string, cs []candidate, n *notes) bool {
	is := func(c candidate) bool { return c.mode == config.ModeObserve }
	one, other := slices.IndexFunc(cs, is), slices.IndexFunc(cs, func(c candidate) bool { return !is(c) })
	switch {
	case len(cs) == 0:
		return cfg.For(host, gpu.GPU{}).Mode == config.ModeObserve
	case one < 0:
		return false
	case other >= 0:
		o := cs[other]
		n.fail(
			cs[one].UUID,
			`mode = "observe" in %s, but %s is of mode "%s" (%s): observing leaves HTCondor's configuration as the site has `+
				`it, and every other mode generates it, so that a node does either; write mode = "observe" in [sharing] or in `+
				`[host."%s"], or in no table of this node's`,
			cs[one].settings.ModeFrom,
			o.UUID,
			o.settings.Mode,
			o.settings.ModeFrom,
			host,
		)
		return false
	}
	return true
}

// observe plans nothing: each GPU, or each MIG device that is there, as it is.
func (p *Plan) observe(cfg config.Config, cs []candidate, n *notes) {
	p.Observe = true
	p.RequestVRAM = RequestVRAM{cfg.RequestVRAM.Minimum, cfg.RequestVRAM.Quantum, config.WithoutRequestRefuse}
	for _, c := range cs {
		if !c.MIGEnabled {
			p.GPUs = append(p.GPUs, size(c, cfg.RequestVRAM, wishes{}, n))
			continue
		}
		p.MIG = append(p.MIG, MIGGPU{UUID: c.UUID, Index: c.Index, Name: c.Name, PCI: c.PCI, Memory: c.Memory})
		if len(c.MIGDevices) == 0 {
			n.warn(c.UUID, "MIG mode is on and no MIG device is known of, so no job can be seen there")
		}
		for _, d := range c.MIGDevices {
			part := c.part(d)
			part.mode = config.ModeObserve
			p.GPUs = append(p.GPUs, size(part, cfg.RequestVRAM, wishes{}, n))
		}
	}
}
