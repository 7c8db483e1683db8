package simulate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/gpu"
)

// model is what is published of a GPU.
type model struct {
	key, name string
	memory    gpu.MiB
	major     int
	minor     int
	sms       int
	divisible bool
	// limit is the power limit that it is sold with, idle what it takes without a
	// context; both in watts, from the vendor's data sheets and listings of nvidia-smi.
	limit, idle float64
}

// models are those that a pool file can name.
func models() []model {
	return []model{
		{"T4", "Tesla T4", 15360, 7, 5, 40, false, 70, 10},
		{"V100-16", "Tesla V100-PCIE-16GB", 16384, 7, 0, 80, false, 250, 25},
		{"V100-32", "Tesla V100-PCIE-32GB", 32768, 7, 0, 80, false, 250, 25},
		{"V100S", "Tesla V100S-PCIE-32GB", 32768, 7, 0, 80, false, 250, 25},
		{"A30", "NVIDIA A30", 24576, 8, 0, 56, true, 165, 30},
		{"A10", "NVIDIA A10", 23028, 8, 6, 72, false, 150, 20},
		{"A40", "NVIDIA A40", 46068, 8, 6, 84, false, 300, 30},
		{"A100-40", "NVIDIA A100-SXM4-40GB", 40960, 8, 0, 108, true, 400, 50},
		{"A100-80", "NVIDIA A100-SXM4-80GB", 81920, 8, 0, 108, true, 400, 60},
		{"L4", "NVIDIA L4", 23034, 8, 9, 58, false, 72, 15},
		{"L40S", "NVIDIA L40S", 46068, 8, 9, 142, false, 350, 35},
		{"H100-80", "NVIDIA H100 80GB HBM3", 81559, 9, 0, 132, true, 700, 70},
		{"H200", "NVIDIA H200", 143771, 9, 0, 132, true, 700, 75},
	}
}

// Models are the names of the GPUs that NewGroup has.
func Models() []string {
	var keys []string
	for _, m := range models() {
		keys = append(keys, m.key)
	}
	return keys
}

// NewGroup is a number of equal nodes with so many GPUs of a model of Models, and
// what is published of its power; a node takes 400 W without its GPUs, and
// 2 W more for each busy CPU. Driver and CUDA are those of 2025.
func NewGroup(name string, count, gpus int, key string, cpus int, memory gpu.MiB) (Group, error) {
	i := slices.IndexFunc(models(), func(m model) bool { return strings.EqualFold(m.key, key) })
	if i < 0 {
		return Group{}, fmt.Errorf("no GPU model %q; there are %s", key, strings.Join(Models(), ", "))
	}
	if gpus < 1 || gpus > maxGPUs {
		return Group{}, fmt.Errorf("%d GPUs in a node; it is 1 to %d", gpus, maxGPUs)
	}
	m := models()[i]
	inv := gpu.Inventory{Schema: gpu.InventorySchema,
		Host: gpu.Host{Name: name + ".example.org", CPUs: cpus, Memory: memory}, Driver: "570.172.08", CUDA: "12.8"}
	for k := range gpus {
		inv.GPUs = append(inv.GPUs, gpu.GPU{
			UUID: gpu.UUID(fmt.Sprintf("GPU-00000000-0000-4000-8000-%012x", k)), Index: k, Name: m.name,
			PCI:    gpu.PCIBusID(fmt.Sprintf("0000:%02x:00.0", k+1)),
			Memory: m.memory, Capability: gpu.ComputeCapability{Major: m.major, Minor: m.minor}, Multiprocessors: m.sms,
			ComputeMode: gpu.ComputeModeDefault, MIGCapable: m.divisible,
		})
	}
	return Group{Name: name, Count: count, Inventory: inv, Speed: 1, Power: m.power()}, nil
}

// power splits what a GPU takes beyond idling: a seventh of its limit while
// any kernel runs, the rest as its multiprocessors are busy.
func (m model) power() Power {
	active := m.limit / 7
	return Power{Host: 400, Thread: 2, Idle: m.idle, Active: active, Full: m.limit - m.idle - active}
}
