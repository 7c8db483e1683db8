package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/cuda"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// CUDAClient is a CUDA client that runs; cuda.Client is the real one.
type CUDAClient interface {
	PID() int
	// Tried is closed when it holds still or has ended.
	Tried() <-chan struct{}
	Report() cuda.Report
	// End lets it leave or kills it; false if it is still there.
	End() bool
}

// verify runs a CUDA client through the way of a job on one GPU, or, without a
// name, on each shared one in turn.
func (a *Agent) verify(ctx context.Context, name string) ([]api.Verification, error) {
	v := a.view.Load()
	if !v.planned {
		return nil, errors.New(v.noPlan())
	}
	if v.plan.Observe {
		return nil, errors.New(`this node is observed (mode = "observe"): there is no control daemon to verify, and gpuslot starts nothing on its GPUs`)
	}
	targets, err := named(&v.plan, name)
	if err != nil {
		return nil, err
	}
	out := []api.Verification{}
	for _, u := range targets {
		out = append(out, a.verifyGPU(ctx, u))
	}
	return out, nil
}

// named are the GPUs to try.
func named(p *plan.Plan, name string) ([]gpu.UUID, error) {
	if name != "" {
		g, err := gpuNamed(p, name)
		if err != nil {
			return nil, err
		}
		return []gpu.UUID{g.UUID}, nil
	}
	var all []gpu.UUID
	for _, g := range p.GPUs {
		if g.Shared() {
			all = append(all, g.UUID)
		}
	}
	return all, nil
}

// verifyGPU tries one GPU. It holds the GPU as a job does, for as long as it
// takes; whatever happens, nothing of it stays but the result.
func (a *Agent) verifyGPU(ctx context.Context, u gpu.UUID) api.Verification {
	skip := func(why string) api.Verification { return api.Verification{UUID: string(u), Skipped: why} }
	if a.verifier.start == nil {
		return skip(noClients)
	}
	leave, err := a.verifier.enter(ctx)
	if err != nil {
		return skip(err.Error())
	}
	defer leave()
	v := a.view.Load()
	g, ok := find(&v.plan, u)
	if why := a.notNow(g, ok); why != "" {
		return skip(why)
	}
	who, err := a.verifyAs(ctx, g)
	if err != nil {
		return skip(err.Error())
	}
	open := a.judge(v, g, time.Now()).open()
	a.verifier.announce(u)
	if open {
		pause(ctx, a.verifier.hears)
	}
	grant, release, refusal := a.reserveForVerification(v, g, who, time.Now())
	if refusal != nil {
		return skip(refusal.Reason)
	}
	defer release()
	t := a.tryClient(ctx, v, g, who, grant)
	if ctx.Err() != nil {
		return skip("gpuslotd is ending: try again when it runs")
	}
	r := verified{Verification: t.verdict(time.Now()), Daemon: v.guards[u].proof.Process()}
	r.UUID, r.Driver = string(u), v.plan.Driver
	a.log.Info("verified a GPU", "gpu", u, "ok", r.OK, "text", r.Text)
	if err := a.verifier.note(u, r, verifiedFile(v.config.Paths)); err != nil {
		a.log.Error("the result of a verification is not kept", "gpu", u, "err", err)
	}
	nudge(a.wake)
	return r.Verification
}

// startHears is how long START may take to hear that a GPU is closed. A job
// that was matched meanwhile has its hook run by then.
const startHears = 2 * time.Second

// noClients says why nothing can be verified.
const noClients = "this gpuslotd runs no CUDA clients: its GPUs are read from a recorded file"

// notNow says why a GPU cannot be verified now; empty if it can. What else
// closes it, admission says.
func (a *Agent) notNow(g *plan.GPU, planned bool) string {
	switch {
	case !planned:
		return "it is not in the plan any more: gpuslot status lists the GPUs that are"
	case !g.Shared():
		return "it is not shared: its jobs have no limits to verify"
	case a.jobs.Unknown() != "":
		return a.jobs.Unknown()
	}
	a.sweepNow()
	if a.jobs.Busy(g.UUID) {
		return "jobs run on it: try again when they have ended"
	}
	return ""
}

// verifySlot is the name of the slot that a verification has in the job table; no slot
// of HTCondor's has it.
const verifySlot = "verify"

// reserveForVerification asks the real admission for a job of the default size and enters
// it, so that nobody else gets the GPU. It lives as long as this process: release gives the
// GPU back and shuts the account out.
func (a *Agent) reserveForVerification(
	v *view, g *plan.GPU, who persona, now time.Time,
) (grant *api.Grant, release func(), refusal *api.Refusal) {
	self, err := a.proc.Stat(os.Getpid())
	if err != nil {
		return nil, nil, api.Refuse(api.CodeClosed, fmt.Sprintf("gpuslotd does not find itself in /proc: %v", err))
	}
	budget := int64(g.DefaultRequest)
	c := starter.Caller{ // confirmed, because the startd has no ad of it
		UID: who.uid, PID: self.PID, Hook: true, Confirmed: true,
		Starter: starter.Starter{ID: process.ID{PID: self.PID, Started: self.Started}, Slot: verifySlot},
	}
	job := &api.Job{
		ID: verifySlot, Owner: "gpuslot", AssignedGPUs: []string{string(g.UUID)},
		ProvisionedVRAM: &budget, RequestVRAM: &budget,
	}
	s := State{Plan: &v.plan, Pipes: v.config.Paths.PipeRoot(), Now: now, MaxAge: v.config.Health.MaxAge,
		Health: a.pulsed(a.unverifiedHealth(v, g.UUID, now), g.UUID), Common: v.accounts[g.Tenancy.User]}
	only := []gpu.UUID{g.UUID}
	after := entered{shared: g.UUID}
	a.jobs.Admit(c, func(running *jobs.View) (enter []jobs.Job) {
		if len(running.On(g.UUID)) > 0 {
			refusal = api.Refuse(api.CodeClosed, "a job came: try again when it has ended")
			return nil
		}
		grant, refusal, after.ended = a.decide(running, &s, c, job, only)
		if refusal == nil {
			enter, after.partition = a.entries(s, c, job, g, only, grant)
		}
		return enter
	})
	if refusal = a.settleEntry(s, c, after, refusal); refusal != nil {
		return nil, nil, refusal
	}
	return grant, func() {
		a.jobs.Release(c.Starter, g.UUID)
		a.sweepNow()
	}, nil
}

// hasVerification says whether a verification is among the jobs of a GPU.
func hasVerification(running []jobs.Job) bool {
	return slices.ContainsFunc(running, func(r jobs.Job) bool { return r.Starter.Slot == verifySlot })
}
