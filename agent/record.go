package agent

import (
	"time"

	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/record"
	"github.com/gpuslot/gpuslot/agent/rules"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/condor"
)

// recordOf is the record of a job that ended, by the last sample and the plan.
func recordOf(r jobs.Job, snap *usage.Snapshot, p *plan.Plan, now time.Time) record.Job {
	out := history.Complete(record.Job{
		Slot: condor.SlotName(r.Starter.Slot), Job: r.ID, Schedd: r.Work.Schedd, Owner: r.Owner, Group: r.Group, VO: r.VO,
		Program: r.Work.Program, Batch: r.Work.Batch, Requested: r.Work.Requested,
		GPU: r.GPU, BudgetMiB: int64(r.Budget), Wall: r.Wall, Begin: r.Since, End: now,
		Partial: r.Adopted, HoldCode: r.Hold.Code, HoldReason: r.Hold.Reason,
	}, rules.SlotKey(r.Starter), p, snap)
	if r.Beside {
		out.Share = 0 // the site's own sharing: not known
	}
	return out
}

// finish records the end of jobs. It waits for nothing.
func (a *Agent) finish(ended []jobs.Job) {
	snap := &usage.Snapshot{}
	if a.sampler != nil {
		snap = a.sampler.Snapshot()
	}
	v, now := a.view.Load(), time.Now()
	for _, r := range ended {
		a.log.Info("a job ended", "slot", r.Starter.Slot, "job", r.ID, "gpu", r.GPU)
		rec := recordOf(r, snap, &v.plan, now)
		a.history.Record(rec)
		a.history.Event(history.Event{Time: now, Kind: history.EventEnd, GPU: r.GPU, Slot: condor.SlotName(r.Starter.Slot), Job: r.ID,
			Text: history.EndText(rec)})
		a.ender.Forget(r.Starter)
		a.admission.Forget(r.Starter)
		a.limits.Wake()
		a.nodes.Wake()
	}
}
