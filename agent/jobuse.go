package agent

import (
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/rules"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// jobUses answers the startd's cron job for usage.
func (a *Agent) jobUses() []api.Use {
	a.sweepNow() // the slot's next job must not be told what the last one used
	if a.sampler == nil {
		return nil
	}
	return usesOf(a.sampler.Snapshot(), a.jobs.Running(), a.view.Load().config.Usage.Interval, time.Now())
}

// usesOf is what each running job used up to now. Where a slot has two starters
// for a moment nothing is told of it: whose the number would become is not
// known. A job that no sample knows yet, or lately, is left out.
func usesOf(snap *usage.Snapshot, running []jobs.Job, interval time.Duration, now time.Time) []api.Use {
	if now.Sub(snap.At) > staleAfter*interval {
		return nil
	}
	starters := map[string]starter.Starter{}
	several := map[string]bool{}
	for _, r := range running {
		name := condor.SlotName(r.Starter.Slot)
		if other, ok := starters[name]; ok && !other.Is(r.Starter) {
			several[name] = true
		}
		starters[name] = r.Starter
	}
	var out []api.Use
	var told []starter.Starter
	for _, r := range running {
		if several[condor.SlotName(r.Starter.Slot)] || slices.ContainsFunc(told, r.Starter.Is) {
			continue
		}
		told = append(told, r.Starter)
		if t, ok := totalOf(snap.Slots, rules.SlotKey(r.Starter)); ok {
			out = append(out, t.api(r, now))
		}
	}
	return out
}

// jobTotal is what a job used on all devices together.
type jobTotal struct {
	peak  gpu.Measured[gpu.Bytes]
	share float64
	// method is the least certain one.
	method usage.Method
	sums   usage.SlotTotals
}

// totalOf adds up a job's devices; false if there is none. A sum is known where
// all of its parts are: half of a sum is no number of the job's.
func totalOf(slots []usage.SlotUsage, key usage.SlotKey) (t jobTotal, ok bool) {
	for _, u := range slots {
		if u.Slot != key {
			continue
		}
		if !ok {
			t, ok = jobTotal{u.Peak, u.Share, u.Method, u.Job}, true
			continue
		}
		t.peak = gpu.Measured[gpu.Bytes]{Value: t.peak.Value + u.Peak.Value, Known: t.peak.Known && u.Peak.Known}
		t.share += u.Share
		t.sums.Allocated += u.Job.Allocated
		t.sums.SM, t.sums.Energy = bothKnown(t.sums.SM, u.Job.SM), bothKnown(t.sums.Energy, u.Job.Energy)
		if t.method != u.Method {
			t.method = usage.MethodNone
		}
	}
	return t, ok
}

func bothKnown(a, b usage.Spread) usage.Spread {
	add := func(a, b gpu.Measured[float64]) gpu.Measured[float64] {
		return gpu.Measured[float64]{Value: a.Value + b.Value, Known: a.Known && b.Known}
	}
	return usage.Spread{Lower: add(a.Lower, b.Lower), Estimate: add(a.Estimate, b.Estimate), Upper: add(a.Upper, b.Upper)}
}

func (t jobTotal) api(r jobs.Job, now time.Time) api.Use {
	sm := history.BoundsOf(t.sums.SM)
	return api.Use{
		Slot: condor.SlotName(r.Starter.Slot), Job: r.ID, Seconds: now.Sub(r.Since).Seconds(), PeakMiB: t.peakMiB(),
		GPUSeconds: sm.Estimate, GPUSecondsMin: sm.Min, GPUSecondsMax: sm.Max,
		Joules: history.BoundsOf(t.sums.Energy).Estimate,
	}
}

func (t jobTotal) peakMiB() *int64 {
	if !t.peak.Known {
		return nil
	}
	mib := int64(t.peak.Value.MiB())
	return &mib
}
