package admission

import (
	"context"
	"fmt"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/starter"
)

// Start puts the limits of a caller's cgroup in force: the VRAM that the driver
// holds a job to, and the device nodes of MIG devices that it may open. The caller
// is the job's supervisor, which HTCondor started in that cgroup. Where nothing else
// holds the job to its budget it starts with its limit, or not at all.
func (p *Preparer) Start(ctx context.Context, c starter.Caller) api.Reply {
	if c.Starter.PID == 0 {
		return api.Reply{Error: "the caller is not below its slot's condor_starter: " +
			"only HTCondor's job wrapper asks for a job's start"}
	}
	n := p.Node()
	held, why := p.Jobs.Starting(c.Starter)
	if n.NoPlan != "" {
		why = n.NoPlan
	}
	if why != "" {
		return api.Reply{Refusal: api.Refuse(api.CodeClosed, why)}
	}
	if c.Leaf.Left {
		return api.Reply{Refusal: api.Refuse(api.CodeClosed,
			"the job was moved out of its own cgroup before it began: some process of its account did that")}
	}
	if err := n.Cgroups.Starts(c); err != nil {
		return api.Reply{Refusal: api.Refuse(api.CodeClosed, err.Error())}
	}
	out := &api.Started{}
	for _, j := range held {
		g, ok := n.Plan.Find(j.GPU)
		if !ok || !g.Shared() {
			continue
		}
		out.Supervise = true
		if c.Leaf.Login {
			continue
		}
		reserved, err := n.Cgroups.Limit(ctx, j, c.Leaf.Path)
		if err != nil && g.NeedsLimits() {
			p.Changed()
			return api.Reply{Refusal: api.Refuse(api.CodeClosed, fmt.Sprintf("the driver does not limit the job's VRAM on "+
				"%s: %v: look at gpuslot status on the node", j.GPU, err))}
		}
		out.Reserved = reserved || out.Reserved
	}
	if err := n.Cgroups.CloseNodes(c.Starter, held, c.Leaf.Path); err != nil {
		return api.Reply{Refusal: api.Refuse(api.CodeClosed, fmt.Sprintf(
			"the device nodes of other MIG devices cannot be closed to the job: %v: look at gpuslot status on the node", err))}
	}
	return api.Reply{Started: out}
}
