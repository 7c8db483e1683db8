package sampling

import (
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/record"
	"github.com/gpuslot/gpuslot/agent/rules"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// JobUses is what each running job has used up to now, for the startd's ads.
func (l *Loop) JobUses(now time.Time) []api.Use {
	return usesOf(l.Last(), l.Jobs.Running(), l.Node().Config.Usage.Interval, now)
}

// usesOf leaves out what is not known: slots that have two starters for a moment, because the number
// could be either job's, and jobs that no sample has, or none lately.
func usesOf(snap *usage.Snapshot, running []jobs.Job, interval time.Duration, now time.Time) []api.Use {
	if now.Sub(snap.At) > StaleAfter*interval {
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
	var done []starter.Starter
	for _, r := range running {
		if several[condor.SlotName(r.Starter.Slot)] || slices.ContainsFunc(done, r.Starter.Is) {
			continue
		}
		done = append(done, r.Starter)
		if u, ok := useOf(snap.Slots, r, now); ok {
			out = append(out, u)
		}
	}
	return out
}

// useOf adds up what a job used on all its devices; false if no sample has it. A sum is known where
// all of its parts are.
func useOf(slots []usage.SlotUsage, r jobs.Job, now time.Time) (use api.Use, ok bool) {
	var peak gpu.Measured[gpu.Bytes]
	var sm, energy usage.Spread
	key := rules.SlotKey(r.Starter)
	for i := range slots {
		switch u := &slots[i]; {
		case u.Slot != key:
		case !ok:
			peak, sm, energy, ok = u.Peak, u.Job.SM, u.Job.Energy, true
		default:
			peak = gpu.Measured[gpu.Bytes]{Value: peak.Value + u.Peak.Value, Known: peak.Known && u.Peak.Known}
			sm, energy = bothKnown(sm, u.Job.SM), bothKnown(energy, u.Job.Energy)
		}
	}
	bounds := history.BoundsOf(sm)
	use = api.Use{
		Slot: condor.SlotName(r.Starter.Slot), Job: r.ID, Seconds: now.Sub(r.Since).Seconds(),
		GPUSeconds: bounds.Estimate, GPUSecondsMin: bounds.Min, GPUSecondsMax: bounds.Max,
		Joules: history.BoundsOf(energy).Estimate,
	}
	if peak.Known {
		mib := int64(peak.Value.MiB())
		use.PeakMiB = &mib
	}
	return use, ok
}

func bothKnown(a, b usage.Spread) usage.Spread {
	add := func(a, b gpu.Measured[float64]) gpu.Measured[float64] {
		return gpu.Measured[float64]{Value: a.Value + b.Value, Known: a.Known && b.Known}
	}
	return usage.Spread{
		Lower: add(a.Lower, b.Lower), Estimate: add(a.Estimate, b.Estimate), Upper: add(a.Upper, b.Upper),
	}
}

// Record is the record of a job that ended, by the last sample.
func (l *Loop) Record(r jobs.Job, now time.Time) record.Job {
	return recordOf(r, l.Last(), l.Node().Plan, now)
}

func recordOf(r jobs.Job, snap *usage.Snapshot, p *plan.Plan, now time.Time) record.Job {
	out := history.Complete(record.Job{
		Slot: condor.SlotName(r.Starter.Slot), Job: r.ID, Schedd: r.Work.Schedd, Owner: r.Owner, Group: r.Group, VO: r.VO,
		Program: r.Work.Program, Batch: r.Work.Batch, Requested: r.Work.Requested,
		GPU: r.GPU, BudgetMiB: int64(r.Budget), EnforcedBy: r.EnforcedBy, Begin: r.Since, End: now,
		Partial: r.Adopted, HoldCode: r.Hold.Code, HoldReason: r.Hold.Reason,
	}, rules.SlotKey(r.Starter), p, snap)
	if r.Beside {
		out.Share = 0 // the site's own sharing: not known
	}
	return out
}
