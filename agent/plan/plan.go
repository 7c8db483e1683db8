// Package plan is the centre of the program: Build turns a configuration and
// an inventory into the Plan of one node. It is pure: no files, no clock, no
// environment, no log; equal input gives equal output. Start at Build.
package plan

import (
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/gpu"
)

// Schema is the first field of every plan file; an agent refuses another one.
const Schema = "gpuslot-plan/1"

// Plan is what one node should be.
type Plan struct {
	Schema string   `json:"schema"`
	Host   gpu.Host `json:"host"`
	// Driver is the version the plan was made for; empty if unknown.
	Driver string `json:"driver,omitempty"`
	// CUDA is the driver's CUDA version ("12.4"); empty if unknown.
	CUDA string `json:"cuda,omitempty"`
	// Observe: gpuslot changes nothing on the node, and nothing is planned for HTCondor.
	Observe     bool        `json:"observe,omitempty"`
	RequestVRAM RequestVRAM `json:"request_vram"`
	// CPUOnly is the part for jobs without GPUs; without CPUs there is no such slot.
	CPUOnly Resources `json:"cpu_only"`
	// GPUs in the order of their PCI bus ids; of a GPU in MIG mode its MIG devices, each by itself.
	GPUs []GPU `json:"gpus"`
	// MIG are the GPUs that are given out in MIG devices.
	MIG []MIGGPU `json:"mig,omitempty"`
	// Divided are the GPUs in MIG mode, also those that cannot be read now. Build leaves it to the agent.
	Divided []gpu.UUID `json:"divided,omitempty"`
	// Absent are configured GPUs that the node does not have.
	Absent []gpu.UUID `json:"absent,omitempty"`
	// Warnings are complete sentences for the operator, those of the
	// configuration first.
	Warnings []string `json:"warnings,omitempty"`
}

// RequestVRAM is config.RequestVRAM with WithoutRequest decided.
type RequestVRAM struct {
	// Minimum is the smallest budget, a multiple of Quantum.
	Minimum gpu.MiB `json:"minimum_mib"`
	// Quantum is the step of budgets.
	Quantum gpu.MiB `json:"quantum_mib"`
	// WithoutRequest is never auto.
	WithoutRequest config.WithoutRequest `json:"without_request"`
}

// Resources are CPUs and main memory.
type Resources struct {
	CPUs   int     `json:"cpus"`
	Memory gpu.MiB `json:"memory_mib"`
}

// GPU is the plan of one GPU, or of one MIG device with what is its GPU's: index,
// name, address and capability.
type GPU struct {
	UUID       gpu.UUID              `json:"uuid"`
	Index      int                   `json:"index"`
	Name       string                `json:"name"`
	PCI        gpu.PCIBusID          `json:"pci_bus_id"`
	Memory     gpu.MiB               `json:"memory_mib"`
	Capability gpu.ComputeCapability `json:"compute_capability"`
	Mode       config.Mode           `json:"mode"`
	// Elastic: it is of mode mps or whole by turns, and has what each of them needs. A
	// new plan says mps; see Turn.
	Elastic bool `json:"elastic,omitempty"`
	// Shares is how many jobs may run at once; 1 on a whole GPU, and on one that is
	// observed, whatever HTCondor does there.
	Shares int `json:"shares"`
	// Pool is the VRAM given out in budgets; on a whole GPU all of it.
	Pool gpu.MiB `json:"vram_pool_mib"`
	// Kept is why Pool is less than Memory on a shared GPU.
	Kept Kept `json:"vram_kept,omitzero"`
	// LargestRequest is the largest budget of one job, at most Pool.
	LargestRequest gpu.MiB `json:"largest_request_mib"`
	// DefaultRequest is one share of the pool, a multiple of the quantum and at most LargestRequest; on a whole GPU all.
	DefaultRequest gpu.MiB `json:"default_request_mib"`
	// Resources go to this GPU's slot.
	Resources Resources `json:"resources"`
	// Threads is the thread percentage policy; see ThreadPercentage.
	Threads Threads `json:"threads"`
	// ComputeMode is wanted while the GPU is shared; empty leaves it alone.
	ComputeMode gpu.ComputeMode `json:"compute_mode,omitempty"`
	Tenancy     Tenancy         `json:"tenancy"`
	// MaxClients is how many MPS clients one job may have; 0 on a GPU without MPS.
	MaxClients int `json:"max_clients,omitempty"`
	// Parent is the GPU of a MIG device, Profile its profile ("3g.20gb"); empty on
	// GPUs. A MIG device is of mode mig, or mps where it is shared itself.
	Parent  gpu.UUID `json:"parent,omitempty"`
	Profile string   `json:"profile,omitempty"`
	// Place is where a MIG device of a wanted layout belongs ("3g.20gb@4"). Its UUID
	// is then the place's own, the same for ever, and Device the MIG device that is
	// there now; empty while there is none. Without a Place both are the same.
	Place  string   `json:"place,omitempty"`
	Device gpu.UUID `json:"device,omitempty"`
	// Multiprocessors is the number of a MIG device's SMs; 0 means not known.
	Multiprocessors int `json:"multiprocessors,omitempty"`
	// Slices is the number of compute slices of a Place.
	Slices int `json:"compute_slices,omitempty"`
	// Why the mode is as it is, where the plan chose it.
	Why string `json:"why,omitempty"`
}

// Threads is config.Threads in the plan file's spelling.
type Threads struct {
	Policy config.ThreadsPolicy `json:"policy"`
	// Percent is used by config.ThreadsFixed.
	Percent float64 `json:"percent,omitempty"`
	// Most is the largest percentage that a job may ask for, where it is above
	// the policy's own value; 0 means that value.
	Most float64 `json:"most,omitempty"`
	// Partition is each share's, of config.ThreadsPartitioned.
	Partition Partition `json:"partition,omitzero"`
}

// Partition is the static SM partition of one share.
type Partition struct {
	// Chunks is its size in the daemon's unit, SMs that in multiprocessors.
	Chunks int `json:"chunks"`
	SMs    int `json:"multiprocessors"`
	// Unused are the GPU's multiprocessors in no share's partition.
	Unused int `json:"unused_multiprocessors"`
}

// Tenancy is config.Tenancy in the plan file's spelling.
type Tenancy struct {
	Policy config.TenancyPolicy `json:"policy"`
	// User is the account of config.TenancyCommon.
	User string `json:"user,omitempty"`
	// Tenant is what jobs must have in common besides; empty for the account,
	// which the policy speaks of.
	Tenant config.TenantKey `json:"tenant,omitempty"`
}

// Key is what the jobs on the GPU must have in common at one time; empty if
// nothing.
func (t Tenancy) Key() config.TenantKey {
	if t.Policy == config.TenancyOneAtATime {
		return config.TenantAccount
	}
	return t.Tenant
}

// GPU finds the plan of a GPU by its UUID.
func (p Plan) GPU(u gpu.UUID) (GPU, bool) {
	for _, g := range p.GPUs {
		if g.UUID == u {
			return g, true
		}
	}
	return GPU{}, false
}

// Find is GPU without a copy.
func (p *Plan) Find(u gpu.UUID) (*GPU, bool) {
	for i := range p.GPUs {
		if p.GPUs[i].UUID == u {
			return &p.GPUs[i], true
		}
	}
	return nil, false
}
