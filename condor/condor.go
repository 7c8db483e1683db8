// Package condor owns HTCondor's words: resource ids and their property ads,
// slot types, the generated configuration, the dialect of hooks, monitors and
// environments, and which HTCondor versions can carry all that. Its input is
// the Node below, which the agent fills in from a plan. Start at
// ExecutionPoint; a job's way through the hook starts at ReadJob.
package condor

import (
	"slices"

	"github.com/gpuslot/gpuslot/gpu"
)

// Node is the execution point to be rendered.
type Node struct {
	// Version is gpuslot's own, published as GPUSlotVersion.
	Version string
	// CPUs and Memory are the sum of what its slots may offer, whatever HTCondor
	// detects: more than the node has, where not all slots can have jobs at one time.
	CPUs   int
	Memory gpu.MiB
	// SiteSlotTypes are the numbers of slot types that the site has and that are to
	// have no slots.
	SiteSlotTypes []int
	// CPUOnly is the slot for jobs without GPUs; none without CPUs.
	CPUOnly Share
	// Driver is the NVIDIA driver's version; empty if unknown.
	Driver string
	// MPS is what the installed control daemon, driver and kernel can do; nil if
	// that is not known.
	MPS *[]string
	// CUDA is the driver's CUDA version ("12.4"); empty if unknown.
	CUDA string
	// Devices in the order of their slot types; may be empty.
	Devices []Device
	// WithoutRequest: "whole", "share", "refuse" or "hold" (see agent/config).
	WithoutRequest string
	// Minimum, Quantum of request_vram.
	Minimum, Quantum gpu.MiB
	// Repartition: "suggest" or "auto" if MIG layouts follow the work that waits;
	// empty if they do not.
	Repartition string
	// Absent are configured GPUs that the node does not have.
	Absent []gpu.UUID
	// PipeRoot is the directory that holds one pipe directory per GPU UUID.
	PipeRoot string
	// Libexec holds the programs that HTCondor calls.
	Libexec string
	// Inventory is the file with the inventory ads.
	Inventory string
	// Weight is what a slot weighs: empty for the site's, or one of Weight….
	Weight string
	// Reserves: GPUs are closed at times to requests below GPUVRAMLeast.
	Reserves bool
	// PerGPU gives each GPU a startd of its own, whose jobs run below Execute.
	PerGPU  bool
	Execute string
	// Growth is for jobs that meet the limit of their VRAM.
	Growth Growth
	// Supervise starts the jobs of shared GPUs through "gpuslot-condor supervise", on
	// a node with MIG devices all jobs.
	Supervise bool
	// Divided: a GPU of the node is divided, also one that is not offered or cannot be read now.
	Divided bool
}

// Share is a part of the node's CPUs and memory.
type Share struct {
	CPUs   int
	Memory gpu.MiB
}

// Device is one GPU, or one MIG device, as HTCondor shall see it.
type Device struct {
	UUID       gpu.UUID
	Index      int
	Name       string
	PCI        gpu.PCIBusID
	Memory     gpu.MiB
	Capability gpu.ComputeCapability
	// Shared: a slot type of its own with Shares ids; otherwise the GPU joins
	// the slot type of the whole GPUs. WithoutMPS: its jobs get no pipe directory.
	Shared, WithoutMPS bool
	Shares             int
	// Elastic: a shared GPU that whole jobs get at times, by a slot type of the group.
	Elastic bool
	// Pool is the VRAM given out in budgets.
	Pool gpu.MiB
	// LargestRequest is the largest budget of one job.
	LargestRequest gpu.MiB
	// DefaultRequest is one share of the pool.
	DefaultRequest gpu.MiB
	Share          Share
	// Tenant is what tells one tenant of the GPU from another: empty for the
	// account, or TenantGroup or TenantVO.
	Tenant string
	// MostThreads is the largest percentage of multiprocessors that a job may
	// ask for in RequestGPUThreads, the slots' GPUThreads; 0 is as 100.
	MostThreads float64
	// Profile is a MIG device's ("3g.20gb"), Parent its GPU and Multiprocessors the
	// number of its SMs, 0 if unknown; empty on GPUs. Each MIG device has a slot
	// type of its own.
	Profile string
	// Place is that of a MIG device which may not be there now ("3g.20gb@4"): the
	// UUID names the place, and only the hook knows the device.
	Place string
	// There is the MIG device that is at the Place now; empty if none is.
	There           gpu.UUID
	Parent          gpu.UUID
	Multiprocessors int
}

// The values of Device.Tenant (see agent/config).
const (
	TenantGroup = "accounting-group"
	TenantVO    = "vo"
)

// The values of Node.WithoutRequest and Pool.WithoutRequest.
const (
	WithoutRequestWhole  = "whole"
	WithoutRequestShare  = "share"
	WithoutRequestRefuse = "refuse"
	WithoutRequestHold   = "hold"
)

// shared, instances and whole split the devices, each in their given order:
// those that several jobs share, MIG devices for one job each, and GPUs.
func (n Node) shared() []Device { return n.devices(func(d Device) bool { return d.Shared }) }
func (n Node) instances() []Device {
	return n.devices(func(d Device) bool { return !d.Shared && d.Profile != "" })
}

// divided says whether the node has MIG devices.
func (n Node) divided() bool {
	return n.Divided || slices.ContainsFunc(n.Devices, func(d Device) bool { return d.Profile != "" })
}

func (n Node) whole() []Device {
	return n.devices(func(d Device) bool { return !d.Shared && d.Profile == "" })
}

// hooked says that some jobs pass the hook, or that the agent is asked for all.
func (n Node) hooked() bool { return len(n.Devices) > 0 || n.supervisesAll() }

func (n Node) devices(are func(Device) bool) []Device {
	var some []Device
	for _, d := range n.Devices {
		if are(d) {
			some = append(some, d)
		}
	}
	return some
}
