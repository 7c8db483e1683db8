package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/gpuslot/gpuslot/agent/admission"
	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/agent/verify"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// newVerifier makes what verifies GPUs.
func (a *Agent) newVerifier(o Options, p config.Paths) *verify.Verifier {
	return verify.New(verify.Options{
		Start: o.CUDA, Admission: verified{a}, Jobs: verified{a}, Servers: verified{a}, Log: a.log,
		File: verify.File(p), Own: a.own, Changed: func() { nudge(a.wake) },
		Node: func() verify.Node {
			v := a.view.Load()
			return verify.Node{
				Plan: &v.plan, First: v.planned && v.config.Health.Open == config.OpenAfterVerify,
				Deadline: config.ReplyDeadline,
				Daemon:   func(u gpu.UUID) process.ID { return v.daemons[u].Proof.Process() },
			}
		},
	})
}

// verify verifies one GPU, or, without a name, each shared one in turn.
func (a *Agent) verify(ctx context.Context, name string) ([]api.Verification, error) {
	v := a.view.Load()
	if !v.planned {
		return nil, errors.New(v.noPlan())
	}
	if v.plan.Observe {
		return nil, errors.New(`this node is observed (mode = "observe"): ` +
			`there is no control daemon to verify, and gpuslot starts nothing on its GPUs`)
	}
	var targets []gpu.UUID
	if name == "" {
		for _, g := range v.plan.GPUs {
			if g.Shared() {
				targets = append(targets, g.UUID)
			}
		}
	} else {
		g, err := gpuNamed(&v.plan, name)
		if err != nil {
			return nil, err
		}
		targets = []gpu.UUID{g.UUID}
	}
	out := []api.Verification{}
	for _, u := range targets {
		out = append(out, a.verifier.GPU(ctx, u))
	}
	return out, nil
}

// verificationFacts are what the result of a verification rests on.
func (a *Agent) verificationFacts(v *view, now time.Time) func(u gpu.UUID) verify.Facts {
	return func(u gpu.UUID) verify.Facts {
		f := verify.Facts{
			Driver: v.plan.Driver, Daemon: v.daemons[u].Proof.Process(), Faulted: v.daemons[u].Servers.Faulted(),
		}
		if verdict := a.troubles.Verdict(u, now); verdict.Closed() {
			f.Closed = verdict.Reason
		}
		return f
	}
}

// verified is the agent as agent/verify sees it.
type verified struct{ a *Agent }

// Open says whether a GPU takes jobs now.
func (n verified) Open(g *plan.GPU) bool {
	node := n.a.statusNode(n.a.view.Load())
	return n.a.reader.GPU(&node, g, time.Now()).Reason == ""
}

// Well says whether a GPU would take jobs now if it were verified.
func (n verified) Well(g *plan.GPU) bool {
	v, now := n.a.view.Load(), time.Now()
	return n.a.gpus(v).Unverified(g, now).Reason(now, v.config.Health.MaxAge) == ""
}

// Reserve asks the real admission for a job of the default size and enters it. It lives as
// long as this process: release gives the GPU back and shuts the account out.
func (n verified) Reserve(g *plan.GPU, uid uint32) (grant *api.Grant, release func(), refusal *api.Refusal) {
	a, v, now := n.a, n.a.view.Load(), time.Now()
	self, err := a.proc.Stat(os.Getpid())
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
	grant, refusal = a.admission.Reserve(c, job, g, a.gpus(v).Unverified(g, now), now)
	if refusal != nil {
		return nil, nil, refusal
	}
	return grant, func() {
		a.jobs.Release(c.Starter, g.UUID)
		a.sweepNow()
	}, nil
}

// Busy says whether a job that has not ended has a part of a GPU.
func (n verified) Busy(u gpu.UUID) bool {
	n.a.sweepNow()
	return n.a.jobs.Busy(u)
}

// Unknown says which job has a GPU that is not known; empty if there is none.
func (n verified) Unknown() string { return n.a.jobs.Unknown() }

// Servers lists a GPU's MPS servers with their clients.
func (n verified) Servers(ctx context.Context, u gpu.UUID) ([]mps.Server, error) {
	return n.a.clients.Servers(ctx, u)
}

// EndClient lets a client leave its server.
func (n verified) EndClient(ctx context.Context, u gpu.UUID, pid int) {
	n.a.ender.EndClients(ctx, u, []int{pid}, starter.Starter{Slot: admission.VerifySlot})
}
