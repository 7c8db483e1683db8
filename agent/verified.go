package agent

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/gpuslot/gpuslot/agent/admission"
	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/ending"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/agent/status"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// verified are the parts of the agent that agent/verify asks: it enters a GPU as a job does.
type verified struct {
	node      *node
	reader    *status.Reader
	proc      starter.Node
	admission *admission.Preparer
	jobs      *jobs.Table
	clients   Clients
	ender     *ending.Ender
	sweep     func()
}

// Open says whether a GPU takes jobs now.
func (n *verified) Open(g *plan.GPU) bool {
	node := n.node.lastRound(n.node.view.Load())
	return n.reader.GPU(&node, g, time.Now()).Reason == ""
}

// Well says whether a GPU would take jobs now if it were verified.
func (n *verified) Well(g *plan.GPU) bool {
	return n.node.unwell(g, time.Now()) == ""
}

// Reserve asks the real admission for a job of the default size and enters it. It lives as
// long as this process: release gives the GPU back and shuts the account out.
func (n *verified) Reserve(g *plan.GPU, uid uint32) (grant *api.Grant, release func(), refusal *api.Refusal) {
	now := time.Now()
	self, err := n.proc.Stat(os.Getpid())
	if err != nil {
		return nil, nil, api.Refuse(api.CodeClosed, fmt.Sprintf("gpuslotd does not find itself in /proc: %v", err))
	}
	budget := int64(g.DefaultRequest)
	c := starter.Caller{ // confirmed, because the startd has no ad of it
		UID: uid, PID: self.PID, Hook: true, Confirmed: true,
		Starter: starter.Starter{ID: process.ID{PID: self.PID, Started: self.Started}, Slot: admission.VerifySlot},
	}
	job := &api.Job{
		ID: admission.VerifySlot, Owner: "gpuslot", AssignedGPUs: []string{string(g.UUID)},
		ProvisionedVRAM: &budget, RequestVRAM: &budget,
	}
	grant, refusal = n.admission.Reserve(c, job, g, n.node.gpus(n.node.view.Load()).Unverified(g, now), now)
	if refusal != nil {
		return nil, nil, refusal
	}
	return grant, func() {
		n.jobs.Release(c.Starter, g.UUID)
		n.sweep()
	}, nil
}

// Busy says whether a job that has not ended has a part of a GPU.
func (n *verified) Busy(u gpu.UUID) bool {
	n.sweep()
	return n.jobs.Busy(u)
}

// Unknown says which job has a GPU that is not known; empty if there is none.
func (n *verified) Unknown() string { return n.jobs.Unknown() }

// Servers lists a GPU's MPS servers with their clients.
func (n *verified) Servers(ctx context.Context, u gpu.UUID) ([]mps.Server, error) {
	return n.clients.Servers(ctx, u)
}

// EndClient lets a client leave its server.
func (n *verified) EndClient(ctx context.Context, u gpu.UUID, pid int) {
	n.ender.EndClients(ctx, u, []int{pid}, starter.Starter{Slot: admission.VerifySlot})
}
