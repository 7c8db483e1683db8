package gpu

import "time"

// Measured is a value that may not be known. Its zero value is unknown, which
// is never the same as a known zero.
type Measured[T any] struct {
	Value T
	Known bool
}

// Known is a value that was measured.
func Known[T any](v T) Measured[T] { return Measured[T]{Value: v, Known: true} }

// Bytes is an amount of memory as NVML reports it.
type Bytes uint64

// MiB rounds down, as MiBFromBytes does.
func (b Bytes) MiB() MiB { return MiBFromBytes(uint64(b)) }

// Reading is what one GPU says of its use at one moment. What it does not
// tell is unknown.
type Reading struct {
	// GPU is empty only if the GPU never told its UUID.
	GPU UUID
	// Index is NVML's index.
	Index int
	// At is when the GPU had answered. A process that started later cannot be one that it lists.
	At time.Time
	// Err says why the GPU does not answer; then nothing below is known.
	Err error
	// MIGEnabled says that memory, processes and activity are those of Instances.
	MIGEnabled bool
	Use
	// Energy is in mJ since the driver was loaded: it may start again.
	Energy Measured[uint64]
	// Power is what the board draws now, in mW.
	Power Measured[uint64]
	// KernelTime is the share of the time since the last reading in which any
	// kernel ran: at least the share of busy SMs. Unknown with MIG.
	KernelTime Measured[Activity]
	// DRAMActivity is the mean share of the memory's bandwidth in use (GPM; Hopper
	// and newer), of the whole GPU also with MIG.
	DRAMActivity Measured[Activity]
	// Multiprocessors of the whole GPU; 0 if unknown.
	Multiprocessors int
	// Samples are the processes' shares of kernel time; only processes that
	// worked have one. Nothing is known under MPS, where the server is counted.
	Samples Measured[[]ProcessSample]
	// Instances are the MIG devices.
	Instances []InstanceReading
	// Board may be of some seconds ago.
	Board Board
}

// Use is what a whole GPU and a MIG device both tell.
type Use struct {
	Memory Measured[MemoryUse]
	// Processes have a context on the device: those of the compute list and of
	// the MPS list, each once, in the order of their PIDs.
	Processes Measured[[]DeviceProcess]
	// SMActivity is the mean share of busy SMs (GPM; Hopper and newer). A MIG
	// device has it if its GPU instance holds no other.
	SMActivity Measured[Activity]
}

// Activity is a mean share of time or of multiprocessors, 0 to 1.
type Activity struct {
	Ratio float64
	// From and To bound the time that it is the mean of.
	From, To time.Time
}

// MemoryUse is how a device's memory is used.
type MemoryUse struct {
	Total, Free Bytes
	// Used is what processes and contexts hold. On drivers before 510 the
	// driver's own reserve is part of it.
	Used Bytes
	// Reserved is the driver's own part, where it tells.
	Reserved Measured[Bytes]
}

// DeviceProcess is one process with a context on a device.
type DeviceProcess struct {
	PID int
	// Memory is unknown where the driver cannot tell it. Managed memory is
	// mostly missing from it.
	Memory Measured[Bytes]
	// MPSClient says that the process stands in the list of MPS clients.
	MPSClient bool
	// Graphics says that the process stands in the list of graphics (OpenGL, Vulkan) and in no
	// other. It uses memory as others do.
	Graphics bool
}

// ProcessSample is one process's share of kernel time in one sampling period
// of the driver.
type ProcessSample struct {
	PID int
	// SM is 0 to 1.
	SM float64
}

// InstanceReading is one MIG device.
type InstanceReading struct {
	UUID UUID
	// GPUInstance and ComputeInstance are NVML's ids.
	GPUInstance, ComputeInstance int
	// Multiprocessors of this device; 0 if unknown.
	Multiprocessors int
	Use
}
