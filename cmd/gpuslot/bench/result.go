// Package bench owns what sharing one GPU gains for one command: the result of
// a benchmark and its file, what to run for it, the figures that follow from it,
// and the advice. It decides and keeps; cmd/gpuslot runs the command and reads
// the GPU. Start at Result, then Points and Advise.
package bench

import (
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// Schema is the first field of every result.
const Schema = "gpuslot-bench/1"

// Mode is a way for several copies of a command to use one GPU.
type Mode string

// The modes, in the order in which they are run and shown.
const (
	// Exclusive: one copy after the other, each with the GPU to itself.
	Exclusive Mode = "exclusive"
	// TimeSlice: all copies at once without MPS; the driver gives them the GPU by turns.
	TimeSlice Mode = "timeslice"
	// MPS: all copies at once as clients of one control daemon, none capped.
	MPS Mode = "mps"
	// MPSCapped: as MPS, each with an active thread percentage of 100 / copies.
	MPSCapped Mode = "mps-capped"
	// MIG: one copy on each MIG device of one profile.
	MIG Mode = "mig"
)

// Modes are all modes in their order.
func Modes() []Mode { return []Mode{Exclusive, TimeSlice, MPS, MPSCapped, MIG} }

// Known says that m is one of Modes.
func (m Mode) Known() bool { return slices.Contains(Modes(), m) }

// Result is one benchmark: one command on one GPU. Runs hold what was measured;
// everything else that is said of it follows from them.
type Result struct {
	// Schema is that of this package.
	Schema string `json:"schema"`
	// Simulated says that the GPU is not a real one: the figures show that the
	// harness works and nothing else.
	Simulated bool `json:"simulated,omitempty"`
	// Started is when the first run began.
	Started time.Time `json:"started"`
	Machine Machine   `json:"machine"`
	// Command is what each copy runs, Label a name for it in tables.
	Command []string `json:"command"`
	Label   string   `json:"label,omitempty"`
	// Runs in the order in which they were made.
	Runs []Run `json:"runs"`
	// Served is what copies that answer requests did.
	Served []Served `json:"served,omitempty"`
	// Skipped is what was asked for and not measured.
	Skipped []Skip `json:"not_measured,omitempty"`
}

// Machine is where it was measured.
type Machine struct {
	Host gpu.Host `json:"host"`
	// Driver ("550.163.01") and CUDA ("12.4") versions; empty if unknown.
	Driver string `json:"driver,omitempty"`
	CUDA   string `json:"cuda,omitempty"`
	// GPU is the one that all copies ran on, as it was before.
	GPU gpu.GPU `json:"gpu"`
}

// Skip is a point that was not measured.
type Skip struct {
	Mode Mode `json:"mode"`
	// Copies is 0 where the whole mode was left out.
	Copies int `json:"copies,omitempty"`
	// Reason is a sentence for a person: why, and what would help.
	Reason string `json:"reason"`
}

// Run is a number of copies from the start of the first to the end of the last.
// What was not measured is absent.
type Run struct {
	Mode   Mode `json:"mode"`
	Copies int  `json:"copies"`
	// Repeat counts the runs of one mode and number of copies from 1.
	Repeat int `json:"repeat"`
	// Profile is that of the MIG devices; of mode mig only.
	Profile string `json:"profile,omitempty"`
	// ThreadPercentage is the cap of each copy; of mode mps-capped only.
	ThreadPercentage *float64 `json:"active_thread_percentage,omitempty"`
	// Seconds from the first start to the last end.
	Seconds float64 `json:"seconds"`
	// Jobs has one entry for each copy.
	Jobs []Job `json:"jobs"`
	// Energy of the whole GPU in joules, by EnergyFrom.
	Energy     *float64     `json:"energy_joules,omitempty"`
	EnergyFrom EnergySource `json:"energy_from,omitempty"`
	// SMActivity and DRAMActivity are the mean shares of busy multiprocessors and
	// of the memory's bandwidth (GPM; Hopper and newer), KernelTime that of the
	// time in which any kernel ran; 0 to 1, of the whole GPU.
	SMActivity   *float64 `json:"sm_activity,omitempty"`
	DRAMActivity *float64 `json:"dram_activity,omitempty"`
	KernelTime   *float64 `json:"kernel_time,omitempty"`
	// IdleVRAM and PeakVRAM are what the whole GPU had in use before, and at most.
	IdleVRAM *gpu.MiB `json:"idle_vram_mib,omitempty"`
	PeakVRAM *gpu.MiB `json:"peak_vram_mib,omitempty"`
}

// EnergySource says how energy was measured.
type EnergySource string

// The sources of energy.
const (
	EnergyCounter EnergySource = "counter" // NVML's total since the driver was loaded
	EnergyPower   EnergySource = "power"   // samples of the power, added up over time
)

// Job is one copy.
type Job struct {
	// Seconds from its start to its end.
	Seconds float64 `json:"seconds"`
	// Failed says how it ended ("exit status 1", "signal: killed"); empty for success.
	Failed string `json:"failed,omitempty"`
	// PeakVRAM is the most that its processes held together in any sample.
	PeakVRAM *gpu.MiB `json:"peak_vram_mib,omitempty"`
}

// Failures are the copies that ended otherwise than with success.
func (r Run) Failures() []Job {
	var out []Job
	for _, j := range r.Jobs {
		if j.Failed != "" {
			out = append(out, j)
		}
	}
	return out
}
