package gpu

import (
	"errors"
	"math"
)

// MemoryLimits are what the driver holds the memory of a cgroup on one GPU to
// (R615 on, nvml.h: nvmlGetMemoryLimits_v1_t).
type MemoryLimits struct {
	// Soft is kept for the cgroup: other cgroups cannot have it. The driver adds
	// it to every cgroup above.
	Soft Bytes
	// Hard is the most that its processes may have together; Unlimited if they
	// are not limited.
	Hard Bytes
	// Used is what they have now, in this cgroup and below it.
	Used Bytes
}

// Unlimited is NVML_DEVICE_MEMORY_LIMIT_MAX.
const Unlimited Bytes = math.MaxUint64

// What a caller has to tell apart; match with errors.Is.
var (
	// ErrNoCgroup: a cgroup's directory cannot be opened; it is gone, most likely.
	ErrNoCgroup = errors.New("no such cgroup")
	// ErrNoMemoryLimits: a cgroup has no limits on a GPU, or cannot have any
	// because the controller dmem is not enabled for it.
	ErrNoMemoryLimits = errors.New("the cgroup has no memory limits on this GPU")
)
