package agent

import (
	"time"

	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/record"
	"github.com/gpuslot/gpuslot/agent/usage"
)

func boundsOf(s usage.Spread) record.Bounds {
	return record.Bounds{Min: pointer(s.Lower), Estimate: pointer(s.Estimate), Max: pointer(s.Upper)}
}

// recordOf is the record of a job that ended, by the last sample and the plan.
func recordOf(r Running, snap *usage.Snapshot, p *plan.Plan, now time.Time) record.Job {
	out := record.Job{
		Slot: shortName(r.Starter.Slot), Job: r.Job, Schedd: r.Work.Schedd, Owner: r.Owner, Group: r.Group, VO: r.VO,
		Program: r.Work.Program, Batch: r.Work.Batch, Requested: r.Work.Requested,
		GPU: r.GPU, BudgetMiB: int64(r.Budget), Wall: r.Wall, Begin: r.Since, End: now,
		Partial: r.Adopted, HoldCode: r.Hold.Code, HoldReason: r.Hold.Reason,
	}
	if g, ok := find(p, r.GPU); ok {
		out.Model, out.Mode, out.MemoryMiB, out.Share = g.Name, string(g.Mode), int64(g.Memory), 1
		switch {
		case r.Beside:
			out.Share = 0 // the site's own sharing: not known
		case g.Shared():
			out.Share = float64(r.Budget) / float64(max(g.Pool, 1))
		}
		out.Share *= partOf(p, g)
	}
	u, ok := lastOf(snap, slotKey(r.Starter), deviceOf(snap, r.GPU))
	if !ok {
		return out
	}
	out.PeakMiB, out.Curve = jobTotal{peak: u.Peak}.peakMiB(), u.Curve
	out.Method, out.SM, out.Joules = string(u.Method), boundsOf(u.Job.SM), boundsOf(u.Job.Energy)
	out.DRAMSeconds, out.IdleSeconds = pointer(u.Job.DRAM), pointer(u.Job.Idle)
	return out
}

// partOf is a MIG device's part of its GPU, by compute slices where they are
// published, else by memory; 1 of a GPU.
func partOf(p *plan.Plan, g *plan.GPU) float64 {
	for _, m := range p.MIG {
		switch {
		case m.UUID != g.Parent:
		case g.Slices > 0 && m.Slices > 0:
			return float64(g.Slices) / float64(m.Slices)
		case m.Memory > 0:
			return float64(g.Memory) / float64(m.Memory)
		}
	}
	return 1
}

// lastOf is what the samples say of a job that may have ended.
func lastOf(snap *usage.Snapshot, key usage.SlotKey, d usage.Device) (usage.SlotUsage, bool) {
	if u, ok := snap.Slot(key, d); ok {
		return u, true
	}
	for _, u := range snap.Ended {
		if u.Slot == key && u.Device == d {
			return u, true
		}
	}
	return usage.SlotUsage{}, false
}

// finish books the end of jobs. It is called with the books locked, too, and
// waits for nothing.
func (a *Agent) finish(ended []Running) {
	snap := &usage.Snapshot{}
	if a.sampler != nil {
		snap = a.sampler.Snapshot()
	}
	v, now := a.view.Load(), time.Now()
	for _, r := range ended {
		a.log.Info("a job ended", "slot", r.Starter.Slot, "job", r.Job, "gpu", r.GPU)
		rec := recordOf(r, snap, &v.plan, now)
		a.keeper.put(history.RecordLog(v.config.Paths), rec)
		a.note(history.Event{Time: now, Kind: history.EventEnd, GPU: r.GPU, Slot: r.Starter.Slot, Job: r.Job, Text: endSentence(rec)})
		nudge(a.cgroups.wake)
		nudge(a.nodes.wake)
	}
}
