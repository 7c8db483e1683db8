// Package usage tells what each slot does on the GPUs: its memory, its share of the multiprocessors' time and of the
// energy, and how well each is known. It owns the sampling loop, the mathematics of attribution and the slot of a
// process; it does not know HTCondor's ads, publishes nothing and acts on nothing. Start at Sampler and Snapshot; the
// mathematics is in Attribute.
package usage

import (
	"context"
	"time"

	"github.com/gpuslot/gpuslot/agent/record"
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

// Reservation is one slot's hold on a device, as the agent admitted it. A slot
// that holds several shares of one device has one booking.
type Reservation struct {
	Slot   SlotKey
	Device Device
	// Share is the part of the device that the slot was given, 0 to 1. The idle power is divided by it.
	Share float64
	// MPS says that the slot's clients go through a control daemon.
	MPS bool
	// Cap is the largest part of the device's multiprocessors that one client can have, rounded up to what the hardware
	// grants; 1 where none is enforced that the job cannot change.
	Cap float64
}

// Site is what the agent knows of the node. All of it but Slot must answer at once.
type Site interface {
	// Slot is the slot of a process, named by its PID and its start time in clock ticks since boot.
	// What is found is not asked again. It is asked by several goroutines and may take long.
	Slot(pid int, started uint64) (SlotKey, bool)
	// Reservations are the slots in use now.
	Reservations() []Reservation
	// Server says that a process is an MPS server: overhead, and no job.
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
	// since the GPU listed it, or if the kernel does not say (process.ErrHeld).
	Started uint64
	// Owner says whose it is.
	Owner Owner
	// Slot is set for OwnerSlot, and for OwnerEnded where the process was of a job that runs still. What it has then
	// counts for that job.
	Slot SlotKey
	// Stays: it had ended at the reading before, too, so another process keeps what it has on the device.
	Stays bool
}

// OfSlot says that its memory counts for its slot.
func (p Process) OfSlot() bool {
	return p.Owner == OwnerSlot || p.Owner == OwnerEnded && p.Slot != SlotKey{}
}

// Unclear says that it may be any slot's, or that what keeps its memory may be.
func (p Process) Unclear() bool {
	return p.Owner == OwnerUnknown || p.Owner == OwnerEnded && p.Stays && !p.OfSlot() || p.Anothers()
}

// Anothers says that it runs, and that another process may use the device under its PID.
func (p Process) Anothers() bool { return p.Owner == OwnerEnded && p.Started != 0 }

// Kept says that it has ended, and that another one keeps what it has: no process of its job, as far as is known.
func (p Process) Kept() bool { return p.Owner == OwnerEnded && p.Unclear() }

// Owner says whose a process is.
type Owner string

const (
	// OwnerSlot is a job.
	OwnerSlot Owner = "slot"
	// OwnerServer is an MPS server.
	OwnerServer Owner = "server"
	// OwnerNone runs in no slot.
	OwnerNone Owner = "none"
	// OwnerEnded had ended when the device was read. Or another one uses the device under its PID: it has a start, has no
	// place on the device, and is not seen to have its node open.
	OwnerEnded Owner = "ended"
	// OwnerUnknown runs, and the kernel has not said yet where: it may be anybody's.
	OwnerUnknown Owner = "unknown"
)

// Snapshot is what is known at one time. It is never changed.
type Snapshot struct {
	// At is when the round ended that made it; zero before the first.
	At time.Time
	// Devices are the GPUs and their MIG devices whose data is fresh, in the
	// order of their UUIDs, a GPU before its MIG devices.
	Devices []DeviceUsage
	// Slots in use on those devices, in the order of device and slot.
	Slots []SlotUsage
	// Counters are the sums of every slot over all its jobs, in the same order.
	// A slot that is not in use any more stays for ten minutes.
	Counters []SlotCounters
	// Ended are the jobs that ended in the last ten minutes, as they were.
	Ended []SlotUsage
	// Sources say how the reading goes, whether or not there is data.
	Sources []Health
}

// SlotCounters are the sums of one slot on one device since the agent's start.
type SlotCounters struct {
	// Slot is SlotKey.Slot.
	Slot string
	Device
	Total SlotTotals
}

// DeviceUsage is one GPU or MIG device.
type DeviceUsage struct {
	Device
	// At is when it was read.
	At time.Time
	// MIGEnabled says of a GPU that processes and slots are with its MIG devices.
	MIGEnabled bool
	// GPUInstance is NVML's id of a MIG device's GPU instance.
	GPUInstance int
	// Multiprocessors of the device; 0 if unknown.
	Multiprocessors int
	// Memory of the device.
	Memory gpu.Measured[gpu.MemoryUse]
	// Unlisted is the memory in use that NVML lists with no process, beyond the baseline: the
	// least of three readings. Unknown where the driver does not report what it follows from.
	Unlisted gpu.Measured[gpu.Bytes]
	// Processes are unknown where the driver does not list them.
	Processes gpu.Measured[[]Process]
	Listed    []gpu.DeviceProcess // as the driver lists them: graphics of no job, too
	// UnownedMemory is what processes in no slot hold, and those whose owner is
	// gone or not known yet; MPS servers are not counted.
	UnownedMemory gpu.Measured[gpu.Bytes]
	// Unowned is their number.
	Unowned int
	// Method says how the last interval was divided; empty for a GPU with MIG on.
	Method Method
	// Activity is the mean share of busy multiprocessors in the last interval,
	// and ActivitySource who told: "gpm" or "dcgm".
	Activity       gpu.Measured[float64]
	ActivitySource string
	// KernelTime is the share of the last interval in which any kernel ran.
	KernelTime gpu.Measured[float64]
	// Power in watts; of whole GPUs, and so is Board.
	Power gpu.Measured[float64]
	Board gpu.Board
	Total DeviceTotals
	// MemoryBusy is the part of the last ten minutes with traffic on the memory of a whole
	// GPU; Contended says that jobs which share it slow each other down there.
	MemoryBusy gpu.Measured[float64]
	Contended  bool
	// BoundsExceeded counts the intervals with more activity than the caps of the slots allow: a cap is not enforced.
	BoundsExceeded uint64
}

// SlotUsage is one slot's use of one device.
type SlotUsage struct {
	Slot SlotKey
	Device
	// Processes of the slot that have a context on the device.
	Processes int
	// Memory is the sum over them. If one is unknown, or a process on the device may be the slot's, the sum is not
	// known, and Value is what the others hold: a lower bound.
	Memory gpu.Measured[gpu.Bytes]
	// Partly: the device uses more than NVML lists, and this may be the job's. Memory is a
	// lower bound then, and Peak is unknown from then on.
	Partly bool
	// Peak is the largest known sum that was seen of this job, Curve how it came
	// there, from when the job was first seen; nil if no sum was known.
	Peak  gpu.Measured[gpu.Bytes]
	Curve *record.Curve
	// Share is the part of the device that the slot was given; 0 if nothing is reserved.
	Share float64
	// Cap is the largest part of the device's multiprocessors that one client of
	// the slot can have; 0 if nothing is reserved.
	Cap float64
	// Method says how well SM is known.
	Method Method
	// SM is the share of the device's multiprocessors in the last interval. Its bounds hold
	// whatever jobs do; those of Likely are narrower and rest on assumptions.
	SM, Likely Spread
	// Job are the sums of this job.
	Job SlotTotals
	// Ended is when the job was last seen; zero while it runs.
	Ended time.Time
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
	for i := range s.Devices { // entries are large: no loop here copies them
		if s.Devices[i].Device == d {
			return s.Devices[i], true
		}
	}
	return DeviceUsage{}, false
}

// Slot finds what a slot uses of a device.
func (s *Snapshot) Slot(k SlotKey, d Device) (SlotUsage, bool) {
	for i := range s.Slots {
		if s.Slots[i].Slot == k && s.Slots[i].Device == d {
			return s.Slots[i], true
		}
	}
	return SlotUsage{}, false
}

// Last finds what a slot uses of a device or, if its job ended lately, used.
func (s *Snapshot) Last(k SlotKey, d Device) (SlotUsage, bool) {
	if u, ok := s.Slot(k, d); ok {
		return u, true
	}
	for i := range s.Ended {
		if s.Ended[i].Slot == k && s.Ended[i].Device == d {
			return s.Ended[i], true
		}
	}
	return SlotUsage{}, false
}

// DeviceOf returns the device of a UUID of the plan, which is a GPU's or a MIG device's.
func (s *Snapshot) DeviceOf(u gpu.UUID) Device {
	if u.IsMIG() {
		for i := range s.Devices {
			if s.Devices[i].MIG == u {
				return s.Devices[i].Device
			}
		}
	}
	return Device{GPU: u}
}
