// Package cuda is the smallest CUDA client that shows whether a GPU serves jobs
// as promised: it attaches, allocates below a limit and above it, and tells
// each step in the driver's own words. It owns that client, which is a process
// of its own because a call that waits for an MPS server cannot be taken back,
// and its parent's side. What the answers mean is the agent's to say. It loads
// libcuda.so.1 when it runs and needs no CUDA headers. Start at Start, then Main.
package cuda

import "github.com/gpuslot/gpuslot/gpu"

// Order is what a client does, and as whom.
type Order struct {
	// Account is the one that the client runs as; nil: the caller's own.
	Account *Account
	// Environment is all of the client's.
	Environment []string
	// Below and Above are the two allocations: the first is freed before the second.
	Below, Above gpu.MiB
}

// Account is an account of the node with its group.
type Account struct{ UID, GID uint32 }

// The steps of a client, in their order, by the driver's names for them.
const (
	StepLoad    = "libcuda.so.1"
	StepInit    = "cuInit"
	StepCount   = "cuDeviceGetCount"
	StepContext = "cuDevicePrimaryCtxRetain"
	StepInfo    = "cuMemGetInfo"
	StepBelow   = "cuMemAlloc below the limit"
	StepFree    = "cuMemFree"
	StepAbove   = "cuMemAlloc above the limit"
)

// The driver's results that mean something here (CUDA Driver API, CUresult).
const (
	Success              = 0
	OutOfMemory          = 2
	DeviceUnavailable    = 46
	NoDevice             = 100
	NotPermitted         = 800
	MPSConnectionFailed  = 805
	MPSRPCFailure        = 806
	MPSServerNotReady    = 807
	MPSMaxClientsReached = 808
	MPSClientTerminated  = 810
	Unknown              = 999
)

// NotLoaded is the Code of a StepLoad that found no usable library.
const NotLoaded = -1

// Step is one call that has returned.
type Step struct {
	Name string `json:"step"`
	// Code is the driver's result, Result its name ("CUDA_ERROR_OUT_OF_MEMORY")
	// and Text its description.
	Code   int    `json:"code"`
	Result string `json:"result"`
	Text   string `json:"text,omitempty"`
	// Milliseconds is how long the call took.
	Milliseconds int64 `json:"ms"`
}

// Report is what is known of a client up to now.
type Report struct {
	Steps []Step
	// In is the step that has begun and not returned; empty between steps.
	In string
	// Tried: every step that could be tried has returned.
	Tried bool
	// CUDA is the driver's CUDA version as cuDriverGetVersion tells it (12040 for
	// 12.4), Devices how many it shows, Free and Total the memory as cuMemGetInfo
	// tells it; nil if not reached.
	CUDA, Devices *int
	Free, Total   *gpu.Bytes
	// Ended says how the process ended: "exit status 2", "signal: killed"; empty
	// while it runs.
	Ended string
}

// Step finds a step that has returned.
func (r Report) Step(name string) (Step, bool) {
	for _, s := range r.Steps {
		if s.Name == name {
			return s, true
		}
	}
	return Step{}, false
}

// line is how the client speaks: one JSON object in a line, with one of these.
type line struct {
	Begin   string     `json:"begin,omitempty"`
	Step    *Step      `json:"did,omitempty"`
	CUDA    *int       `json:"cuda,omitempty"`
	Devices *int       `json:"devices,omitempty"`
	Free    *gpu.Bytes `json:"free,omitempty"`
	Total   *gpu.Bytes `json:"total,omitempty"`
	Tried   bool       `json:"tried,omitempty"`
}

// with is the report after one more line.
func (r Report) with(l line) Report {
	if l.Begin != "" {
		r.In = l.Begin
	}
	if l.Step != nil {
		r.Steps, r.In = append(r.Steps[:len(r.Steps):len(r.Steps)], *l.Step), ""
	}
	set(&r.CUDA, l.CUDA)
	set(&r.Devices, l.Devices)
	set(&r.Free, l.Free)
	set(&r.Total, l.Total)
	r.Tried = r.Tried || l.Tried
	return r
}

func set[T any](to **T, from *T) {
	if from != nil {
		*to = from
	}
}
