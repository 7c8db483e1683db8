// Package page is the agent's own page for a browser: the node at a glance,
// without Grafana and without anything from elsewhere. It owns what the page
// shows and the last hour of it; it measures nothing. It has no place for a
// user, a command line or a job's name: whoever reaches the port may look.
// Start at Handler; what it shows is Node.
package page

import (
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// Node is a node at one moment.
type Node struct {
	Host, Version, Driver string
	// At is when the GPUs were last read; zero if they never were.
	At time.Time
	// Problems are complete sentences about the whole node.
	Problems []string
	GPUs     []GPU
}

// NotPlanned is the index of a GPU that the plan leaves out: nothing but its
// use is known of it.
const NotPlanned = -1

// GPU is one GPU of the node.
type GPU struct {
	Device
	// Index is NVML's, or NotPlanned.
	Index int
	// Name is the product's, Mode the sharing mode.
	Name, Mode string
	// Shared GPUs take several jobs; what follows is theirs.
	Shared bool
	// Closed says why it takes no new jobs; empty if it does.
	Closed string
	// Shares is how many jobs may run at once.
	Shares int
	// MPS is the state of its MPS server in a few words.
	MPS string
	// Power in watts.
	Power gpu.Measured[float64]
	// MIG are its MIG devices; then Device has no slots.
	MIG []Device
}

// Device is a whole GPU or a MIG device.
type Device struct {
	UUID        gpu.UUID
	Total, Used gpu.Measured[gpu.Bytes]
	// Unowned is what processes in no slot hold.
	Unowned gpu.Measured[gpu.Bytes]
	// Activity is the mean share of busy multiprocessors, 0 to 1, KernelTime the
	// share of time in which any kernel ran: what is left where there is no Activity.
	Activity, KernelTime gpu.Measured[float64]
	// Method says how the activity was divided, in the words of the metrics.
	Method string
	Slots  []Slot
}

// Slot is a job's part of a device.
type Slot struct {
	// Name is HTCondor's, "slot1_2".
	Name string
	// Budget is its VRAM; 0 if it has none.
	Budget gpu.Bytes
	Memory gpu.Measured[gpu.Bytes]
	// SM is its share of the device's multiprocessors, 0 to 1: Lower and Upper
	// are certain, Estimate lies between.
	Lower, Estimate, Upper gpu.Measured[float64]
	// Joules were apportioned to the job since it started.
	Joules gpu.Measured[float64]
}

// memory is the part of its memory that a device uses.
func (d Device) memory() gpu.Measured[float64] {
	if !d.Total.Known || !d.Used.Known || d.Total.Value == 0 {
		return gpu.Measured[float64]{}
	}
	return gpu.Known(float64(d.Used.Value) / float64(d.Total.Value))
}

// activity is what the plots show: the activity, or the kernel time where that is all.
func (d Device) activity() gpu.Measured[float64] {
	if d.Activity.Known {
		return d.Activity
	}
	return d.KernelTime
}

// devices are what slots can be on.
func (g GPU) devices() []Device {
	if len(g.MIG) > 0 {
		return g.MIG
	}
	return []Device{g.Device}
}

// jobs is how many slots are in use.
func (g GPU) jobs() int {
	n := 0
	for _, d := range g.devices() {
		n += len(d.Slots)
	}
	return n
}
