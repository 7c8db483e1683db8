package agent

import (
	"time"

	"github.com/gpuslot/gpuslot/agent/admission"
	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
)

// here is what the caller's job holds, by the job table and the last sample. The
// control daemons are not asked: a job may call this as often as it likes.
func (a *Agent) here(c starter.Caller) *api.Here {
	out := &api.Here{Slot: condor.SlotName(c.Starter.Slot), GPUs: []api.HereGPU{}}
	v, now := a.view.Load(), time.Now()
	held, others, err := a.jobs.OfCaller(&c)
	if err != nil {
		return out // nothing was admitted for its slot
	}
	out.Hold = a.jobs.HoldOf(c.Starter).Reason
	for _, r := range held {
		out.Job = r.ID
		out.GPUs = append(out.GPUs, a.herePart(v, r, others[r.GPU], now))
	}
	return out
}

// herePart is a job's part of one GPU.
func (a *Agent) herePart(v *view, r jobs.Job, neighbours int, now time.Time) api.HereGPU {
	part := api.HereGPU{
		UUID: string(r.GPU), BudgetMiB: int64(r.Budget), Wall: r.Wall, Neighbours: neighbours,
		SMs: a.partitions.SMs(r.Starter, r.GPU),
	}
	if r.Device != "" {
		part.UUID = string(r.Device)
	}
	var used api.StatusJob
	a.sampling.Uses(r.GPU).Of(&used, r.Starter)
	part.UseMiB = used.UseMiB
	g, ok := v.plan.Find(r.GPU)
	if !ok {
		return part
	}
	part.Name = g.Model()
	if !g.Shared() {
		part.BudgetMiB = int64(g.Memory)
		return part
	}
	part.Wall = a.limits.Wall(r, admission.Enforcement(g.LargestRequest, r.Budget, a.gpus(v).Seen(r.GPU, now)), now)
	return part
}
