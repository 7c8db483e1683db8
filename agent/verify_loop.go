package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/gpu"
)

// verifyPace is how often the agent looks for GPUs to verify.
const verifyPace = time.Second

// verifyIdle verifies GPUs by itself where that is the condition for opening.
// It has a loop of its own: a client may take half a minute.
func (a *Agent) verifyIdle(ctx context.Context) {
	for ctx.Err() == nil {
		a.verifyDue(ctx)
		pause(ctx, verifyPace)
	}
}

// verifyDue verifies the idle GPUs whose time has come.
func (a *Agent) verifyDue(ctx context.Context) {
	v := a.view.Load()
	if !v.planned || v.config.Health.Open != config.OpenAfterVerify || a.verifier.start == nil {
		return
	}
	for i := range v.plan.GPUs {
		g, now := &v.plan.GPUs[i], time.Now()
		if ctx.Err() != nil {
			return
		}
		if !g.Shared() || !a.verifier.due(g.UUID, now) || a.notNow(g, true) != "" {
			continue
		}
		if a.pulsed(a.unverifiedHealth(v, g.UUID, now), g.UUID).Reason(now, v.config.Health.MaxAge) == "" {
			if r := a.verifyGPU(ctx, g.UUID); r.Skipped != "" && ctx.Err() == nil {
				a.verifier.skipped(g.UUID, r.Skipped, time.Now())
			}
		}
	}
}

// unverified says why a GPU is closed for want of a verification.
func (a *Agent) unverified(v *view, u gpu.UUID) string {
	if v.config.Health.Open != config.OpenAfterVerify {
		return ""
	}
	return a.verifier.missing(u)
}

// reviseVerified voids verifications after what may have changed their result.
func (a *Agent) reviseVerified(v *view, now time.Time) error {
	return a.verifier.revise(func(u gpu.UUID, r verified) string {
		g := v.guards[u]
		switch proc := g.proof.Process(); {
		case r.Driver != v.plan.Driver:
			return fmt.Sprintf("the driver is %s and was %s", v.plan.Driver, r.Driver)
		case proc.PID != 0 && proc != r.Daemon:
			return "its control daemon was started anew"
		case !g.servers.faulted.IsZero():
			return "its MPS server met a fatal GPU error"
		case a.troubles.Verdict(u, now).Closed():
			return "an event closed it: " + a.troubles.Verdict(u, now).Reason
		}
		return ""
	}, verifiedFile(v.config.Paths))
}

// beingVerified closes a GPU for some seconds.
const beingVerified = "it is being verified, which takes some seconds: see gpuslot status"

// open says whether a GPU takes jobs.
func (j judgement) open() bool { return j.reason == "" }
