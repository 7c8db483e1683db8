// Package gpu owns the nouns of the program: UUIDs, memory sizes, PCI bus ids,
// compute capabilities, compute modes, the inventory of one node, and MIG's
// chips, profiles, places, layouts and instances. It parses and prints them and
// does nothing else: no NVML, no files, no policy. Start at Inventory; for MIG at
// Chip.
package gpu

import "fmt"

// GPU is one physical GPU as the driver reports it.
type GPU struct {
	// UUID is the join key of the whole program ("GPU-…").
	UUID UUID `json:"uuid"`
	// Index is NVML's index; it may change at a reboot.
	Index int `json:"index"`
	// Name is the product name as NVML spells it ("Tesla V100S-PCIE-32GB").
	Name string `json:"name"`
	// PCI is the bus address; it is stable as long as the card stays in its socket.
	PCI PCIBusID `json:"pci_bus_id"`
	// Memory is the total device memory.
	Memory MiB `json:"memory_mib"`
	// Reserved is the part of Memory that driver and firmware keep
	// (nvmlDeviceGetMemoryInfo_v2), rounded up; nil means it was not read.
	Reserved *MiB `json:"reserved_mib,omitempty"`
	// MPSServer is the VRAM that an MPS server was seen to use there, the most of it; 0
	// means that none was seen. NVML's reader leaves it to the agent.
	MPSServer MiB `json:"mps_server_mib,omitempty"`
	// Capability is the CUDA compute capability.
	Capability ComputeCapability `json:"compute_capability"`
	// Multiprocessors is the number of SMs; 0 means it was not read.
	Multiprocessors int `json:"multiprocessors,omitempty"`
	// ComputeMode is the mode now in force; empty means it was not read.
	ComputeMode ComputeMode `json:"compute_mode,omitempty"`
	// MIGCapable says that the hardware has MIG, whether or not it is on.
	MIGCapable bool `json:"mig_capable,omitempty"`
	// MIGEnabled says that MIG mode is on now.
	MIGEnabled bool `json:"mig_enabled,omitempty"`
	// Unusual is what keeps it from being shared as others are.
	Unusual []Trait `json:"unusual,omitempty"`
	// MIGDevices are those that exist, by GPU instance; nil means they were not
	// read, an empty list that there are none.
	MIGDevices []MIGDevice `json:"mig_devices,omitzero"`
}

// MIGDevice is one MIG device that has its GPU instance to itself. GPU
// instances that somebody divided into several are not listed.
type MIGDevice struct {
	// UUID is valid until the instance is destroyed ("MIG-…").
	UUID UUID `json:"uuid"`
	// Profile is as nvidia-smi prints it, without "MIG " ("3g.20gb").
	Profile string `json:"profile"`
	// GPUInstance is the driver's id of the GPU instance; it is reused.
	GPUInstance int `json:"gpu_instance"`
	// Owner is who made it; empty means that it is not known.
	Owner Owner `json:"owner,omitempty"`
	// Start is the unit of the grid where it begins, which the driver tells root
	// only; nil means it was not read.
	Start *int `json:"start,omitempty"`
	// Memory is the device's.
	Memory MiB `json:"memory_mib"`
	// Reserved is the part of Memory that driver and firmware keep, rounded up; nil
	// means it was not read.
	Reserved *MiB `json:"reserved_mib,omitempty"`
	// MPSServer is the VRAM that an MPS server was seen to use there, the most of it; 0
	// means that none was seen. NVML's reader leaves it to the agent.
	MPSServer MiB `json:"mps_server_mib,omitempty"`
	// Multiprocessors is the number of its SMs; 0 means it was not read.
	Multiprocessors int `json:"multiprocessors,omitempty"`
}

// Names are all by which a job may have a device of a GPU: its UUID, and the PlaceID of its place if that was read.
func (d MIGDevice) Names(u UUID) []UUID {
	if d.Start == nil {
		return []UUID{d.UUID}
	}
	return []UUID{d.UUID, PlaceID(u, fmt.Sprintf("%s@%d", d.Profile, *d.Start))}
}
