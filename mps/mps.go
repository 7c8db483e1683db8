// Package mps owns NVIDIA's MPS control daemons: which should run, with which
// limits, and whether they can be trusted now. It starts and stops them
// through a Runner, talks to them through nvidia-cuda-mps-control, and proves
// their health. It knows nothing of HTCondor.
//
// Start at Daemons.Set (the whole wanted state of a node), Daemon.Check (one
// daemon's health, with its servers and their clients) and Daemon.QuickCheck (is all
// of it alive). Probe says what the installed MPS can do at all, ParseEvent
// what its log tells, and EndClients takes jobs off a GPU without harm to
// their neighbours. What it assumes of the control daemon was measured on
// drivers 535, 550 and 555, and is held by tests that run those three.
package mps

import (
	"context"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// Wanted is one control daemon as it should be.
type Wanted struct {
	GPU gpu.UUID
	// Limit is the default pinned device memory limit of device 0; it must be positive.
	Limit gpu.MiB
	// ThreadPercentage is the default active thread percentage: at least 0.1, at
	// most 100; 100 means no cap. The daemon keeps one decimal.
	ThreadPercentage float64
}

// Runner starts and stops control daemons. Two are real: systemd units
// (package systemd) and plain processes (Processes).
type Runner interface {
	// Start makes the pipe directory and returns when the daemon was started; it may
	// not listen yet.
	Start(ctx context.Context, u gpu.UUID) error
	// Stop ends the daemon and its servers and removes the pipe directory, also where
	// no daemon runs.
	Stop(ctx context.Context, u gpu.UUID) error
	// Running lists the GPUs whose control daemons this runner has started, by anyone.
	Running(ctx context.Context) ([]gpu.UUID, error)
	// Log is what the daemon and its servers wrote since a time: see Daemons.Log.
	Log(ctx context.Context, u gpu.UUID, since time.Time) ([]string, error)
}

// proc is this node's. Tests run against real processes.
var proc process.FS

// Checked is what a control daemon was seen to be at one time.
type Checked struct {
	// PID and Started identify the daemon; Started is the process start time
	// in clock ticks since boot (proc(5), field 22).
	PID     int
	Started uint64
	// At is when the health check was complete.
	At time.Time
	// Limit and ThreadPercentage as read back, in the daemon's own words.
	Limit            string
	ThreadPercentage string
	// Servers are the PIDs of its MPS servers, in the daemon's order, and States
	// what is known of each.
	Servers []int
	States  []Server
	// Stale are the servers whose clients get other limits: they were started
	// before the limits now in force, or somebody changed theirs. SetServers
	// gives their later clients the wanted ones.
	Stale []int
}

// Process is the daemon that the health check is about.
func (p Checked) Process() process.ID { return process.ID{PID: p.PID, Started: p.Started} }

// Action is what Daemons.Set did for one GPU.
type Action string

// The actions of Daemons.Set.
const (
	Started Action = "started" // there was no control daemon
	Adopted Action = "adopted" // one was running, and still is
	Stopped Action = "stopped" // it is no longer wanted
)

// Result is what became of one GPU's control daemon.
type Result struct {
	GPU    gpu.UUID
	Action Action
	// Checked is zero when the daemon was stopped or Err is set.
	Checked Checked
	// Stale is that of the health check.
	Stale []int
	// Err says what the operator has to do; Fault in it names the kind.
	Err error
}
