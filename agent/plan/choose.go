package plan

import (
	"github.com/gpuslot/gpuslot/agent/config"
)

// choose decides mode = "choose" between MIG and the rest, by the hardware and
// the site's wishes. MPS is taken back by decideModes where it cannot serve.
func choose(cs []candidate) {
	for i := range cs {
		c := &cs[i]
		if c.mode != config.ModeChoose {
			continue
		}
		c.chosen = true
		layouts := len(c.settings.MIGLayouts) > 0
		switch {
		case c.MIGEnabled:
			c.mode, c.why = config.ModeMIG, "MIG mode is on"
		case !c.settings.Isolation:
			c.mode, c.why = config.ModeMPS, "no isolation is wished, and MPS wastes nothing of the GPU"
		case c.MIGCapable && layouts:
			c.mode, c.why = config.ModeMIG, "isolation is wished, and the GPU has MIG"
		case c.MIGCapable:
			c.mode, c.why = config.ModeWhole, "isolation is wished, and mig_layout does not say how to divide the GPU"
		default:
			c.mode, c.why = config.ModeWhole, "isolation is wished, and the GPU has no MIG"
		}
	}
}

// withoutIncapable takes mode = "mig" back from GPUs that have no MIG: whole
// ones isolate as well.
func withoutIncapable(cs []candidate, n *notes) {
	for i := range cs {
		c := &cs[i]
		switch {
		case c.mode != config.ModeMIG || c.MIGCapable:
		case named(c.settings.ModeFrom):
			n.fail(c.UUID, `mode = "mig" in %s, but the GPU has no MIG: use mode = "mps" or "whole"`, c.settings.ModeFrom)
		default:
			n.warn(c.UUID, `whole, not divided: the GPU has no MIG; mode = "whole" or "mps" for it silences this`)
			c.mode = config.ModeWhole
		}
	}
}
