// Package record is what a node keeps of each job that used a GPU: the words
// that the agent writes, and that "usage", "advise" and "simulate" read, here or
// from many nodes. It knows no node; agent fills it.
package record

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// Job is what one job used of one GPU, kept when it has ended. A job with
// several GPUs has one for each. What is not known is absent.
type Job struct {
	// Node is the machine's name, where records of several come together.
	Node string `json:"node,omitempty"`
	// Slot is "slot1_2", Job is "cluster.proc", unique with Schedd, the global
	// job id's first part; Owner, Group and VO are the job ad's.
	Slot   string `json:"slot"`
	Job    string `json:"job,omitempty"`
	Schedd string `json:"schedd,omitempty"`
	Owner  string `json:"owner,omitempty"`
	Group  string `json:"group,omitempty"`
	VO     string `json:"vo,omitempty"`
	// Program is the last part of the path of the job's executable, Batch its
	// JobBatchName.
	Program string `json:"program,omitempty"`
	Batch   string `json:"batch,omitempty"`
	// Requested is what the job asked for.
	Requested Requested `json:"requested,omitzero"`
	// Mode is how the GPU was given: "mps", "time-slice", "mig", "whole", "observe".
	Mode string `json:"mode,omitempty"`
	// GPU is a UUID, Model NVML's name of it, MemoryMiB its VRAM.
	GPU       gpu.UUID `json:"gpu,omitempty"`
	Model     string   `json:"model,omitempty"`
	MemoryMiB int64    `json:"memory_mib,omitempty"`
	// Share is the part of the GPU that the slot was given, 0 to 1; BudgetMiB
	// its VRAM; EnforcedBy what enforced that.
	Share      float64 `json:"share,omitempty"`
	BudgetMiB  int64   `json:"budget_mib,omitempty"`
	EnforcedBy string  `json:"wall,omitempty"`
	// Begin is the admission, or when the starter was first seen; End when the
	// starter was found gone: up to a few seconds late.
	Begin time.Time `json:"begin"`
	End   time.Time `json:"end"`
	// PeakMiB is the largest VRAM in any sample, Curve how it came there.
	PeakMiB *int64 `json:"vram_peak_mib,omitempty"`
	Curve   *Curve `json:"vram_curve,omitempty"`
	// Method says how SM was found (see agent/usage). SM are physical
	// GPU-seconds, Joules the apportioned energy, each with bounds.
	Method string `json:"method,omitempty"`
	SM     Bounds `json:"sm_seconds,omitzero"`
	Joules Bounds `json:"joules,omitzero"`
	// DRAMSeconds is the time that the GPU's memory interface was busy while the
	// job had the GPU to itself.
	DRAMSeconds *float64 `json:"dram_seconds,omitempty"`
	// IdleSeconds is the time in which no sample saw the GPU work for the job.
	IdleSeconds *float64 `json:"idle_seconds,omitempty"`
	// Partial: the agent began to sample after the job had begun, so the sums
	// are of its last part only.
	Partial bool `json:"partial,omitempty"`
	// HoldCode and HoldReason are set if the agent had it held.
	HoldCode   int    `json:"hold_code,omitempty"`
	HoldReason string `json:"hold_reason,omitempty"`
}

// Requested is what the job's ad asked for or, where only the startd told of the
// job, what its dynamic slot was made with. What is not named is nil.
type Requested struct {
	GPUs      *float64 `json:"gpus,omitempty"`
	VRAMMiB   *int64   `json:"vram_mib,omitempty"`
	CPUs      *float64 `json:"cpus,omitempty"`
	MemoryMiB *int64   `json:"memory_mib,omitempty"`
}

// Curve is a job's VRAM over its time: the largest of each of at most
// CurvePoints equal parts, which grow with the job.
type Curve struct {
	// Seconds is how long one part is.
	Seconds float64 `json:"seconds"`
	// MiB is the largest sample of each part; the last may be unfinished. A part
	// without a sample is -1.
	MiB []int64 `json:"mib"`
}

// CurvePoints is how many parts a Curve has at most.
const CurvePoints = 32

// Bounds is an amount with its bounds.
type Bounds struct {
	Min      *float64 `json:"min,omitempty"`
	Estimate *float64 `json:"estimate,omitempty"`
	Max      *float64 `json:"max,omitempty"`
}

// Seconds is how long the job had the GPU.
func (j Job) Seconds() float64 { return j.End.Sub(j.Begin).Seconds() }

// Parse reads one line; false if it is no record, such as one that a power cut
// tore.
func Parse(line []byte) (Job, bool) {
	var j Job
	if json.Unmarshal(line, &j) != nil || j.Slot == "" || j.End.IsZero() || j.End.Before(j.Begin) || !printable(j.Begin) ||
		!printable(j.End) {
		return Job{}, false
	}
	return j, true
}

// printable: package time reads offsets of 24 hours, which it does not write.
func printable(t time.Time) bool {
	_, err := t.MarshalText()
	return err == nil
}

// maxLine is more than any line takes.
const maxLine = 64 << 10

// Read reads a file of records, one JSON object in a line, and tells how many
// lines were none.
func Read(from io.Reader, each func(Job)) (skipped int, err error) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		if len(lines.Bytes()) == 0 {
			continue
		}
		j, ok := Parse(lines.Bytes())
		if !ok {
			skipped++
			continue
		}
		each(j)
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return skipped, fmt.Errorf("a line is longer than %d KiB: this is no file of gpuslot's records", maxLine>>10)
	} else if err != nil {
		return skipped, err
	}
	return skipped, nil
}
