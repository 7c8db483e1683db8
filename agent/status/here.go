package status

import (
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
)

// Here is what the caller's job holds, by the job table and the last sample. No control daemon
// is asked: a job may call this as often as it likes.
func (r *Reader) Here(c starter.Caller, now time.Time) *api.Here {
	out := &api.Here{Slot: condor.SlotName(c.Starter.Slot), GPUs: []api.HereGPU{}}
	held, others, err := r.Callers.OfCaller(&c)
	if err != nil {
		return out // nothing was admitted for its slot
	}
	n := r.Node()
	out.Hold = r.Jobs.HoldOf(c.Starter).Reason
	for _, j := range held {
		out.Job = j.ID
		out.GPUs = append(out.GPUs, r.part(&n, j, others[j.GPU], now))
	}
	return out
}

// part is a job's part of one GPU.
func (r *Reader) part(n *Node, j jobs.Job, neighbours int, now time.Time) api.HereGPU {
	out := api.HereGPU{
		UUID: string(j.GPU), BudgetMiB: int64(j.Budget), EnforcedBy: j.EnforcedBy, Neighbours: neighbours,
		SMs: r.Partitions.SMs(j.Starter, j.GPU),
	}
	if j.Device != "" {
		out.UUID = string(j.Device)
	}
	var used api.StatusJob
	r.Samples.Uses(j.GPU).Of(&used, j.Starter)
	out.UseMiB = used.UseMiB
	g, ok := n.Plan.Find(j.GPU)
	if !ok {
		return out
	}
	out.Name = g.Model()
	if !g.Shared() {
		out.BudgetMiB = int64(g.Memory)
		return out
	}
	out.EnforcedBy = r.enforced(&GPU{GPU: g, Health: n.Health.Shared(g, now)}, j, now)
	return out
}
