// Package mps owns NVIDIA's MPS control daemons: which should run, with which
// limits, and whether they can be trusted now. It starts and stops them
// through a Runner, talks to them through nvidia-cuda-mps-control, and proves
// their health. It knows nothing of HTCondor. Start at Set and Daemon.Prove.
package mps

import (
	"context"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// Wanted is one control daemon as it should be.
type Wanted struct {
	GPU gpu.UUID
	// Limit is the default pinned device memory limit of device 0.
	Limit gpu.MiB
	// ThreadPercentage is the default active thread percentage: above 0, at
	// most 100; 100 means no cap.
	ThreadPercentage float64
}

// Runner starts and stops control daemons. Two are real: systemd units
// (package systemd) and plain processes (Processes).
type Runner interface {
	// Start returns when the daemon was started; it may not listen yet.
	Start(ctx context.Context, u gpu.UUID) error
	// Stop ends the daemon and its servers.
	Stop(ctx context.Context, u gpu.UUID) error
	// Running lists the GPUs whose control daemons this runner has started, by anyone.
	Running(ctx context.Context) ([]gpu.UUID, error)
}

// Proof is what a control daemon was seen to be at one time.
type Proof struct {
	// PID and Started identify the daemon; Started is the process start time
	// in clock ticks since boot (proc(5), field 22).
	PID     int
	Started uint64
	// At is when the proof was complete.
	At time.Time
	// Limit and ThreadPercentage as read back, in the daemon's own words.
	Limit            string
	ThreadPercentage string
}
