package plan

import (
	"fmt"
	"slices"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/gpu"
)

// withoutMIG drops GPUs in MIG mode that shall not be divided: CUDA reaches them
// only through MIG devices, so neither a share nor the whole card would run a
// job, and HTCondor's own discovery skips them too.
func withoutMIG(cs []candidate, n *notes) []candidate {
	return slices.DeleteFunc(cs, func(c candidate) bool {
		if !c.MIGEnabled || c.mode == config.ModeMIG {
			return false
		}
		if shares(c.mode) && named(c.settings.ModeFrom) {
			n.fail(
				c.UUID,
				`mode = "%s" in %s, but MIG mode is on, and such a GPU runs jobs only on MIG devices: turn it off with `+
					`nvidia-smi -i %s -mig 0, or use mode = "mig"`,
				c.settings.Mode,
				c.settings.ModeFrom,
				c.UUID,
			)
			return true
		}
		none := ""
		if c.MIGDevices != nil && len(c.MIGDevices) == 0 {
			none = ", of which it has none, and so it may hide the node's other GPUs from CUDA"
		}
		n.warn(
			c.UUID,
			`not offered: MIG mode is on, and such a GPU runs jobs only on MIG devices%s; use mode = "mig", or turn it off `+
				`with nvidia-smi -i <uuid> -mig 0`,
			none,
		)
		return true
	})
}

// decideModes makes whole what cannot be shared. A wish that names the card is
// an error; one that it only inherits is not, unless no GPU of the node can meet it.
func decideModes(cs []candidate, r config.RequestVRAM, w wishes, n *notes) {
	for i := range cs {
		c := &cs[i]
		if !shares(c.mode) {
			continue
		}
		reason := unshareable(*c, r, w)
		switch {
		case reason == "":
		case c.chosen:
			c.mode, c.why = config.ModeWhole, reason
		case named(c.settings.ModeFrom):
			n.fail(c.UUID, `mode = "%s" in %s: %s; use mode = "whole"`, c.settings.Mode, c.settings.ModeFrom, reason)
		case c.mode == config.ModeTimeSlice && CgroupLimits.Lacks(c.driver):
			n.fail(c.UUID, `mode = "time-slice" in %s: %s; use mode = "mps"`, c.settings.ModeFrom, reason)
		default:
			n.warn(c.UUID, `whole, not shared: %s; mode = "whole" for it silences this`, reason)
			c.mode = config.ModeWhole
		}
	}
}

// unshareable says why a GPU cannot be shared with memory limits; empty if it
// can, or if it only cannot because of a wish, which size reports.
func unshareable(c candidate, r config.RequestVRAM, w wishes) string {
	if c.Capability.Before(gpu.Volta) {
		return "compute capability " + c.Capability.String() + " is older than Volta (7.0), which MPS cannot limit"
	}
	if why := unusuallyWhole(c.GPU); why != "" {
		return why
	}
	if c.mode == config.ModeTimeSlice && CgroupLimits.Lacks(c.driver) {
		return fmt.Sprintf("only driver %d or newer limits the VRAM of jobs without MPS, and this node has %s",
			CgroupLimits.Branch, c.driver)
	}
	if Sharing.Lacks(c.driver) {
		return Sharing.needs(c.driver)
	}
	if why := tooSmall(c, r.Minimum, r.Quantum); why != "" {
		return why
	}
	if poolOf(c, r.Quantum) < r.Minimum && w.reserve && w.inheritsReserve(c) {
		return "its " + c.Memory.String() + " less " + keptOf(c).String() + " do not hold one request_vram.minimum " +
			"(" + r.Minimum.String() + ")"
	}
	return ""
}

// chooseWhole carries out "whole = n": of the GPUs that got the number from one
// table, n are whole. Those that are whole anyway count first; the others go by
// their PCI addresses from the last one down, so that the choice is the same
// after every reboot.
func chooseWhole(cs []candidate, n *notes) {
	groups := map[string][]*candidate{}
	var tables []string
	for i := range cs {
		c := &cs[i]
		table := c.settings.WholeFrom
		if c.settings.Whole == 0 || isGPUTable(c.settings.ModeFrom) || c.mode == config.ModeMIG {
			continue
		}
		if groups[table] == nil {
			tables = append(tables, table)
		}
		groups[table] = append(groups[table], c)
	}
	for _, t := range tables {
		makeWhole(groups[t], n)
	}
}

// makeWhole chooses among one table's GPUs, which come in PCI order.
func makeWhole(group []*candidate, n *notes) {
	want := group[0].settings.Whole
	if want > len(group) {
		n.warn("", "whole = %d in %s, but it holds for %d GPUs of this node: all of them are whole, none is "+
			"shared", want, group[0].settings.WholeFrom, len(group))
	}
	for _, c := range group {
		if c.mode == config.ModeWhole {
			want--
		}
	}
	for _, c := range slices.Backward(group) {
		if want > 0 && c.mode != config.ModeWhole {
			c.mode = config.ModeWhole
			want--
		}
	}
}
