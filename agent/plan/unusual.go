package plan

import (
	"slices"

	"github.com/gpuslot/gpuslot/gpu"
)

// notOffered are the traits of GPUs that no job may have.
var notOffered = []struct {
	trait gpu.Trait
	why   string
}{
	{gpu.Integrated, "it has no memory of its own, so its VRAM would be counted twice, as VRAM and as main memory"},
	{gpu.HostVGPU, "it serves virtual machines (vGPU), whose memory no process has"},
}

// notShared are the traits of GPUs that jobs have whole.
var notShared = []struct {
	trait gpu.Trait
	why   string
}{
	{gpu.VGPU, "it is a vGPU in a virtual machine, where memory limits were not tried"},
	{gpu.Confidential, "confidential computing is on, where memory limits were not tried"},
	{gpu.NUMAMemory, "its memory is a NUMA node of the host, so processes get pages of it that no limit counts; " +
		"coherent driver-based memory management (CDMM, driver 580) ends that"},
}

// withoutUnusual drops GPUs that cannot be offered, and warns of those that can with a loss.
func withoutUnusual(cs []candidate, n *notes) []candidate {
	return slices.DeleteFunc(cs, func(c candidate) bool {
		for _, t := range notOffered {
			if c.Has(t.trait) {
				n.warn(c.UUID, "not offered: %s", t.why)
				return true
			}
		}
		if c.Has(gpu.NUMAMemory) {
			n.warn(c.UUID, "its memory is a NUMA node of the host, so HTCondor may count it as main memory, too: set MEMORY "+
				"without it")
		}
		if c.Has(gpu.Display) {
			n.warn(c.UUID, "a display is active on it: add what it uses to reserved_vram, or a user's desktop cannot open it")
		}
		return false
	})
}

// unusuallyWhole says why a trait keeps a GPU from being shared; empty if none does.
func unusuallyWhole(g gpu.GPU) string {
	for _, t := range notShared {
		if g.Has(t.trait) {
			return t.why
		}
	}
	return ""
}
