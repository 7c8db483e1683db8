package main

import (
	"fmt"

	"github.com/gpuslot/gpuslot/gpu"
)

// describeHost is a node in a few words.
func describeHost(h gpu.Host, driver, cuda string) string {
	s := fmt.Sprintf("%s: %d CPUs, %s of memory", orUnnamed(h.Name), h.CPUs, h.Memory)
	if driver != "" {
		s += ", driver " + driver
	}
	if cuda != "" {
		s += ", CUDA " + cuda
	}
	return s
}

func orUnnamed(name string) string {
	if name == "" {
		return "unnamed node"
	}
	return name
}
