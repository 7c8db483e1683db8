package metrics

import (
	"time"

	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
)

// Usage is what GPUs, MIG devices and slots use, as far as that is fresh, and
// how the reading of it goes. No two entries are of one device, or of one slot
// on one device.
type Usage struct {
	// Sampled is when the last round of samples ended; zero before the first.
	Sampled time.Time
	// Devices are GPUs and their MIG devices, a GPU before its MIG devices.
	Devices  []usage.DeviceUsage
	Slots    []Slot
	Counters []usage.SlotCounters
	Sources  []Source
	// Unplanned are GPUs of Devices that the plan leaves out.
	Unplanned []gpu.UUID
}

// Slot is one slot in use on one device.
type Slot struct {
	// Usage of a slot whose device could not be read says its name, its device
	// and MethodNone alone.
	Usage usage.SlotUsage
	// Budget is the VRAM that it was given.
	Budget gpu.Measured[gpu.Bytes]
	// Admitted is when the job entered the job table; zero if it did not.
	Admitted time.Time
	// Labels name the job, as far as the site wants that.
	Labels JobLabels
}

// JobLabels name a job; what is empty is not told.
type JobLabels struct{ ID, VO, User, Group string }

// Source is one that the agent asks again and again.
type Source struct {
	Name string
	// Up: it answered when it was last asked, for every GPU, and that was lately.
	Up bool
	// Took is how long it took.
	Took gpu.Measured[time.Duration]
	// Succeeded is zero if it never answered.
	Succeeded time.Time
	// Failures since the start.
	Failures gpu.Measured[uint64]
}
