// Package usage tells what each slot does on the GPUs: its memory, its share of
// the multiprocessors' time and of the energy, and how well each is known. It
// owns the sampling loop, the mathematics of attribution and the slot of a
// process; it does not know HTCondor's ads, publishes nothing and acts on
// nothing. Start at Sampler and Snapshot; the mathematics is in Attribute.
package usage

import (
	"context"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// SlotKey names one job's hold on a slot: the slot and the condor_starter that
// runs the job. Two jobs of one slot have different keys.
type SlotKey struct {
	// Slot is HTCondor's name, always in the same form ("slot1_2").
	Slot string
	// Starter and Started are the condor_starter's PID and start time in clock
	// ticks since boot; both 0 if it is not known.
	Starter int
	Started uint64
}

// Device is a whole GPU, or one of its MIG devices.
type Device struct {
	GPU gpu.UUID
	// MIG is empty for the whole GPU.
	MIG gpu.UUID
}

// Booking is one slot's hold on a device, as the agent admitted it. A slot
// that holds several shares of one device has one booking.
type Booking struct {
	Slot   SlotKey
	Device Device
	// Share is the part of the device that the slot was given, 0 to 1. The idle
	// power is divided by it.
	Share float64
	// MPS says that the slot's clients go through a control daemon.
	MPS bool
	// Cap is the largest part of the device's multiprocessors that one client
	// can have, rounded up to what the hardware grants; 1 where none is
	// enforced that the job cannot change.
	Cap float64
}

// Site is what the agent knows of the node. All of it is asked from the
// sampling loop and must answer at once.
type Site interface {
	// Slot is the slot of a process, named by its PID and its start time in
	// clock ticks since boot. What is found is not asked again.
	Slot(pid int, started uint64) (SlotKey, bool)
	// Bookings are the slots in use now.
	Bookings() []Booking
	// Server says that a process is an MPS server: overhead, nobody's job.
	Server(pid int, started uint64) bool
}

// Source reads the GPUs: see nvml.Usage. Readings count even beside an error.
type Source interface {
	Read(ctx context.Context) (readings []gpu.Reading, err error)
}

// Process is one process on a device.
type Process struct {
	gpu.DeviceProcess
	// Started is its start time in clock ticks since boot; 0 if it has ended
	// since the GPU listed it.
	Started uint64
	// Owner says whose it is.
	Owner Owner
	// Slot is set for OwnerSlot.
	Slot SlotKey
}

// Owner says whose a process is.
type Owner string

const (
	// OwnerSlot is a job.
	OwnerSlot Owner = "slot"
	// OwnerServer is an MPS server.
	OwnerServer Owner = "server"
	// OwnerNone runs in no slot.
	OwnerNone Owner = "none"
	// OwnerEnded had ended before its slot could be found.
	OwnerEnded Owner = "ended"
)

// Snapshot is what is known at one time. Nobody changes it.
type Snapshot struct {
	// At is when the round ended that made it; zero before the first.
	At time.Time
	// Devices are the GPUs and their MIG devices whose data is fresh, in the
	// order of their UUIDs, a GPU before its MIG devices.
	Devices []DeviceUsage
	// Slots in use on those devices, in the order of device and slot.
	Slots []SlotUsage
	// Sources say how the reading goes, whether or not there is data.
	Sources []Health
}

// DeviceUsage is one GPU or MIG device.
type DeviceUsage struct {
	Device
	// At is when it was read.
	At time.Time
	// MIGEnabled says of a GPU that processes and activity are with its MIG devices.
	MIGEnabled bool
	Memory     gpu.Measured[gpu.MemoryUse]
	// Processes are unknown where the driver does not list them.
	Processes gpu.Measured[[]Process]
	// UnownedMemory is what processes in no slot hold, MPS servers not counted.
	UnownedMemory gpu.Measured[gpu.Bytes]
	// Unowned is their number.
	Unowned int
}

// SlotUsage is one slot's use of one device.
type SlotUsage struct {
	Slot SlotKey
	Device
	// Processes of the slot that have a context on the device.
	Processes int
	// Memory is the sum over them. If one is unknown the sum is not known, and
	// Value is what the others hold: a lower bound.
	Memory gpu.Measured[gpu.Bytes]
	// Peak is the largest known sum that was seen of this job.
	Peak gpu.Measured[gpu.Bytes]
}

// Health is how one source does.
type Health struct {
	// Source is "nvml" or "dcgm".
	Source string
	// Err is why the last attempt did not work, or not for every GPU; nil if it did.
	Err error
	// Took is how long the last attempt took.
	Took time.Duration
	// Succeeded is when one last worked for every GPU; zero if never.
	Succeeded time.Time
	// Failures counts the attempts that did not work, since the start.
	Failures uint64
}

// Device finds a device's usage.
func (s *Snapshot) Device(d Device) (DeviceUsage, bool) {
	for _, u := range s.Devices {
		if u.Device == d {
			return u, true
		}
	}
	return DeviceUsage{}, false
}

// Slot finds what a slot uses of a device.
func (s *Snapshot) Slot(k SlotKey, d Device) (SlotUsage, bool) {
	for _, u := range s.Slots {
		if u.Slot == k && u.Device == d {
			return u, true
		}
	}
	return SlotUsage{}, false
}
