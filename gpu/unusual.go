package gpu

import (
	"slices"
	"strings"
)

// Trait is what is unusual about a GPU, so that it may not be shared as others are.
type Trait string

// The traits, in the order of AllTraits.
const (
	// Integrated: it has no memory of its own, but uses the host's (Jetson, GB10).
	Integrated Trait = "integrated"
	// VGPU: it is a part of a GPU, in a virtual machine.
	VGPU Trait = "vgpu"
	// HostVGPU: it serves virtual machines.
	HostVGPU Trait = "host-vgpu"
	// Display: a display is active on it.
	Display Trait = "display"
	// Confidential: the node has NVIDIA's confidential computing on.
	Confidential Trait = "confidential-computing"
	// NUMAMemory: its memory is a NUMA node of the host, which any process gets pages of
	// (GH200, GB200 without coherent driver-based memory management).
	NUMAMemory Trait = "numa-memory"
)

// AllTraits lists them.
func AllTraits() []Trait {
	return []Trait{Integrated, VGPU, HostVGPU, Display, Confidential, NUMAMemory}
}

// Has reports whether the GPU has a trait. A recorded inventory need not name one that
// follows from the product's name.
func (g GPU) Has(t Trait) bool {
	return slices.Contains(g.Unusual, t) || t == Integrated && isIntegrated(g.Name)
}

// isIntegrated knows products without memory of their own by a word of their names.
func isIntegrated(name string) bool {
	for word := range strings.FieldsFuncSeq(name, func(r rune) bool { return strings.ContainsRune(" -()", r) }) {
		if slices.Contains([]string{"GB10", "Tegra", "Jetson", "Xavier", "Orin", "Thor", "nvgpu"}, word) {
			return true
		}
	}
	return false
}
