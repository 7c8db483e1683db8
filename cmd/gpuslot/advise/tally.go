package advise

import (
	"time"

	"github.com/gpuslot/gpuslot/agent/record"
	"github.com/gpuslot/gpuslot/gpu"
)

// tally sums jobs up. Its size does not grow with their number: peaks are
// counted by the budget that would hold them, curves are a sample.
type tally struct {
	first, last time.Time
	records     int
	// jobs counts a job with several GPUs once.
	jobs float64
	// budgets counts the peaks by the quanta of the budget that holds them.
	budgets map[int32]int
	peaks   int
	// limited needed more than they had; how much is not known. unseen have no peak,
	// or only that of their last part.
	limited, unseen int
	// near came to nearLimit of their budget; held were held for another reason.
	near, held int
	// reserved and seconds are by job and GPU, joules and kilowatts of those known.
	reserved, seconds, joules, watts ratio
	// These are seconds by second.
	smLeast, sm, smMost, dram, idle ratio
	// These are seconds of multiprocessors by those kept for the job.
	usedLeast, used, usedMost ratio
	models                    map[string]int
	cpus                      ratio
	memory                    ratio
	curves                    curves
}

// nearLimit is the part of a budget from which on a job may have met its limit, as with [growth].
const nearLimit = 0.9

// The subcodes of holds for VRAM: over the budget, near the limit
// (docs/operations.md, "Why a job is held").
const (
	heldOverBudget = 76
	heldNearLimit  = 83
)

func (t *tally) add(j record.Job, gpus int, quantum gpu.MiB) {
	if t.records == 0 || j.Begin.Before(t.first) {
		t.first = j.Begin
	}
	if j.End.After(t.last) {
		t.last = j.End
	}
	t.records++
	t.jobs += 1 / float64(gpus)
	seconds := j.Seconds()
	t.seconds.add(seconds, 1)
	share, isKnown := shareOf(j)
	if isKnown {
		t.reserved.add(share*seconds, 1)
	}
	t.need(j, quantum)
	if t.models == nil {
		t.models = map[string]int{}
	}
	t.models[j.Model]++
	if j.Requested.CPUs != nil {
		t.cpus.add(*j.Requested.CPUs, 1)
	}
	if j.Requested.MemoryMiB != nil {
		t.memory.add(float64(*j.Requested.MemoryMiB), 1)
	}
	if j.Partial { // sums of a part say nothing of the whole
		return
	}
	t.joules.addKnown(j.Joules.Estimate, 1)
	t.watts.addKnown(j.Joules.Estimate, seconds)
	t.smLeast.addKnown(j.SM.Min, seconds)
	t.sm.addKnown(j.SM.Estimate, seconds)
	t.smMost.addKnown(j.SM.Max, seconds)
	if !shared(j) && share == 1 { // of others the memory interface is known for a part of the time
		t.dram.addKnown(j.DRAMSeconds, seconds)
	}
	t.idle.addKnown(j.IdleSeconds, seconds)
	t.curves.add(j)
	if isKnown {
		t.usedLeast.addKnown(j.SM.Min, share*seconds)
		t.used.addKnown(j.SM.Estimate, share*seconds)
		t.usedMost.addKnown(j.SM.Max, share*seconds)
	}
}

// shareOf is the part of the GPU that was kept for the job.
func shareOf(j record.Job) (float64, bool) {
	switch {
	case j.Share > 0 && j.Share <= 1:
		return j.Share, true
	case j.BudgetMiB > 0 && j.MemoryMiB >= j.BudgetMiB:
		return float64(j.BudgetMiB) / float64(j.MemoryMiB), true
	}
	return 0, false
}

// shared says that gpuslot gave the job a part of a GPU.
func shared(j record.Job) bool { return j.Mode == "mps" || j.Mode == "time-slice" || j.Mode == "mig" }

// need counts how much VRAM the job needed.
func (t *tally) need(j record.Job, quantum gpu.MiB) {
	over := j.BudgetMiB > 0 && shared(j) && j.PeakMiB != nil && *j.PeakMiB > j.BudgetMiB
	switch {
	case j.HoldCode == heldOverBudget || j.HoldCode == heldNearLimit || over:
		t.limited++
		return
	case j.HoldCode != 0:
		t.held++ // it did not run to its end
		t.unseen++
		return
	case j.PeakMiB == nil || *j.PeakMiB < 0 || j.Partial:
		t.unseen++
		return
	}
	if shared(j) && j.BudgetMiB > 0 && float64(*j.PeakMiB) >= nearLimit*float64(j.BudgetMiB) {
		t.near++
	}
	if t.budgets == nil {
		t.budgets = map[int32]int{}
	}
	t.budgets[quanta(gpu.MiB(*j.PeakMiB), quantum)]++
	t.peaks++
}

// mostQuanta is more than any GPU has.
const mostQuanta = 1 << 24

func quanta(m, quantum gpu.MiB) int32 {
	return int32(min((m+quantum-1)/quantum, mostQuanta)) //nolint:gosec // bounded
}

func (t *tally) merge(o *tally) {
	if o.records == 0 {
		return
	}
	if t.records == 0 || o.first.Before(t.first) {
		t.first = o.first
	}
	if o.last.After(t.last) {
		t.last = o.last
	}
	t.records += o.records
	t.jobs += o.jobs
	t.mergeNeeds(o)
	if t.models == nil {
		t.models = map[string]int{}
	}
	for m, n := range o.models {
		t.models[m] += n
	}
	for _, p := range [][2]*ratio{
		{&t.reserved, &o.reserved}, {&t.seconds, &o.seconds}, {&t.joules, &o.joules}, {&t.watts, &o.watts},
		{&t.smLeast, &o.smLeast},
		{&t.sm, &o.sm}, {&t.smMost, &o.smMost}, {&t.dram, &o.dram}, {&t.usedLeast, &o.usedLeast}, {&t.used, &o.used},
		{&t.usedMost, &o.usedMost}, {&t.idle, &o.idle}, {&t.cpus, &o.cpus}, {&t.memory, &o.memory},
	} {
		p[0].merge(*p[1])
	}
	t.curves.merge(o.curves)
}

func (t *tally) mergeNeeds(o *tally) {
	if t.budgets == nil {
		t.budgets = map[int32]int{}
	}
	for b, n := range o.budgets {
		t.budgets[b] += n
	}
	t.peaks += o.peaks
	t.limited += o.limited
	t.unseen += o.unseen
	t.near += o.near
	t.held += o.held
}
