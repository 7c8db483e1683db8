package mig

import (
	"fmt"

	"github.com/gpuslot/gpuslot/gpu"
)

// Cost is what a layout gives, against the GPU with MIG mode off.
type Cost struct {
	// Multiprocessors of all instances, and of the GPU without MIG; 0 means not
	// known.
	Multiprocessors    int `json:"multiprocessors,omitempty"`
	AllMultiprocessors int `json:"all_multiprocessors,omitempty"`
	// Memory of all instances, and of the GPU without MIG; 0 means not known.
	Memory    gpu.MiB `json:"memory_mib,omitempty"`
	AllMemory gpu.MiB `json:"all_memory_mib,omitempty"`
	// Units of the memory grid that the instances take: the memory bandwidth and
	// the L2 cache are divided by them.
	Units    int `json:"units"`
	AllUnits int `json:"all_units"`
	// Slices are compute slices.
	Slices    int `json:"slices"`
	AllSlices int `json:"all_slices"`
	// Empty says that there is no instance, so no job at all can run.
	Empty bool `json:"empty,omitempty"`
}

// CostOf is what a layout of the chip gives.
func CostOf(c gpu.Chip, l gpu.Layout) Cost {
	k := Cost{AllMultiprocessors: c.Multiprocessors, AllMemory: c.Memory, AllUnits: c.Units(), AllSlices: c.Slices(),
		Empty: len(l) == 0}
	knowSMs, knowMemory := true, true
	for _, at := range l {
		p, _ := c.Profile(at.Profile)
		k.Multiprocessors += p.Multiprocessors
		k.Memory += p.Memory
		k.Units += p.Size
		k.Slices += p.Slices
		knowSMs = knowSMs && p.Multiprocessors > 0
		knowMemory = knowMemory && p.Memory > 0
	}
	if !knowSMs {
		k.Multiprocessors = 0
	}
	if !knowMemory {
		k.Memory = 0
	}
	return k
}

// LostMultiprocessors are the SMs that no instance has; ok if known.
func (k Cost) LostMultiprocessors() (n int, ok bool) {
	ok = k.AllMultiprocessors > 0 && (k.Multiprocessors > 0 || k.Empty)
	return k.AllMultiprocessors - k.Multiprocessors, ok
}

// Warnings about a layout that costs without giving anything for it.
func Warnings(c gpu.Chip, l gpu.Layout) []string {
	if len(l) == 0 {
		return []string{fmt.Sprintf("%s in MIG mode without an instance runs no job, "+
			"and may hide the other GPUs of the node from CUDA; create instances or switch MIG mode off", c.Model)}
	}
	p, _ := c.Profile(l[0].Profile)
	lost, known := CostOf(c, l).LostMultiprocessors()
	if len(l) > 1 || p.Slices < c.Slices() || !known || lost <= 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s as one %s loses %d of %d SMs and gains nothing; split it or switch MIG mode off",
		c.Model, p.Name, lost, c.Multiprocessors)}
}
