package agent

import (
	"encoding/json"
	"path/filepath"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
)

// Record is what one job used of one GPU, kept when it has ended. A job with
// several GPUs has one for each. What is not known is absent.
type Record struct {
	// Slot is "slot1_2", Job is "cluster.proc"; Owner, Group and VO are the
	// job ad's.
	Slot  string `json:"slot"`
	Job   string `json:"job,omitempty"`
	Owner string `json:"owner,omitempty"`
	Group string `json:"group,omitempty"`
	VO    string `json:"vo,omitempty"`
	// GPU is a UUID, Model NVML's name of it.
	GPU   gpu.UUID `json:"gpu"`
	Model string   `json:"model,omitempty"`
	// Share is the part of the GPU that the slot was given, 0 to 1; BudgetMiB
	// its VRAM; Wall what enforced that.
	Share     float64 `json:"share,omitempty"`
	BudgetMiB int64   `json:"budget_mib,omitempty"`
	Wall      string  `json:"wall,omitempty"`
	// Begin is the admission, End when the starter was found gone: up to a few
	// seconds late.
	Begin time.Time `json:"begin"`
	End   time.Time `json:"end"`
	// PeakMiB is the largest VRAM in any sample.
	PeakMiB *int64 `json:"vram_peak_mib,omitempty"`
	// Method says how SM was found (see agent/usage). SM are physical
	// GPU-seconds, Joules the apportioned energy, each with bounds.
	Method usage.Method `json:"method,omitempty"`
	SM     Bounds       `json:"sm_seconds,omitzero"`
	Joules Bounds       `json:"joules,omitzero"`
	// Partial: the agent began to sample after the job had begun, so the sums
	// are of its last part only.
	Partial bool `json:"partial,omitempty"`
	// HoldCode and HoldReason are set if the agent had it held.
	HoldCode   int    `json:"hold_code,omitempty"`
	HoldReason string `json:"hold_reason,omitempty"`
}

// Bounds is an amount with its bounds.
type Bounds struct {
	Min      *float64 `json:"min,omitempty"`
	Estimate *float64 `json:"estimate,omitempty"`
	Max      *float64 `json:"max,omitempty"`
}

func boundsOf(s usage.Spread) Bounds {
	return Bounds{pointer(s.Lower), pointer(s.Estimate), pointer(s.Upper)}
}

// recordsOf is where records are kept: at most eleven files of 8 MiB, more than
// a hundred thousand jobs.
func recordsOf(p config.Paths) lines {
	return lines{dir: filepath.Join(p.State, "records"), name: "jobs", most: 8 << 20, kept: 10}
}

// Records are the jobs that ended at a time or later, the oldest first. What is
// not a record, such as a line that a power cut tore, is skipped.
func Records(p config.Paths, since time.Time) ([]Record, error) {
	var all []Record
	err := recordsOf(p).read(func(line []byte) {
		var r Record
		if json.Unmarshal(line, &r) == nil && r.Slot != "" && !r.End.IsZero() && !r.End.Before(since) {
			all = append(all, r)
		}
	})
	return all, err
}

// recordOf is the record of a job that ended, by the last sample and the plan.
func recordOf(r Running, snap *usage.Snapshot, p *plan.Plan, now time.Time) Record {
	out := Record{
		Slot: shortName(r.Starter.Slot), Job: r.Job, Owner: r.Owner, Group: r.Group, VO: r.VO,
		GPU: r.GPU, BudgetMiB: int64(r.Budget), Wall: r.Wall, Begin: r.Since, End: now,
		Partial: r.Adopted, HoldCode: r.Hold.Code, HoldReason: r.Hold.Reason,
	}
	if g, ok := find(p, r.GPU); ok {
		out.Model, out.Share = g.Name, 1
		if g.Shared() {
			out.Share = float64(r.Budget) / float64(max(g.Pool, 1))
		}
	}
	u, ok := lastOf(snap, slotKey(r.Starter), deviceOf(snap, r.GPU))
	if !ok {
		return out
	}
	out.PeakMiB = jobTotal{peak: u.Peak}.peakMiB()
	out.Method, out.SM, out.Joules = u.Method, boundsOf(u.Job.SM), boundsOf(u.Job.Energy)
	return out
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
		a.keeper.put(recordsOf(v.config.Paths), rec)
		a.note(Event{Time: now, Kind: EventEnd, GPU: r.GPU, Slot: r.Starter.Slot, Job: r.Job, Text: rec.sentence()})
		nudge(a.cgroups.wake)
		nudge(a.nodes.wake)
	}
}
