package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// ServerControl starts and ends the MPS servers of the node's control daemons,
// and keeps what they write.
type ServerControl interface {
	// StartServer asks for an account's server: see mps.Daemon.StartServer.
	StartServer(ctx context.Context, u gpu.UUID, uid uint32) error
	// ShutdownServer asks a server to end when its clients have: see
	// mps.Daemon.ShutdownServer.
	ShutdownServer(ctx context.Context, u gpu.UUID, server int) error
	// Log is what a daemon wrote since a time: see mps.Daemons.Log.
	Log(ctx context.Context, u gpu.UUID, since time.Time) ([]string, error)
	// TrimLog bounds a log: see mps.Daemons.TrimLog.
	TrimLog(u gpu.UUID) error
}

func (c controlDaemons) StartServer(ctx context.Context, u gpu.UUID, uid uint32) error {
	d, err := c.Daemon(u)
	if err != nil {
		return err
	}
	return d.StartServer(ctx, uid)
}

func (c controlDaemons) ShutdownServer(ctx context.Context, u gpu.UUID, server int) error {
	d, err := c.Daemon(u)
	if err != nil {
		return err
	}
	return d.ShutdownServer(ctx, server, false)
}

// trialAccount is whose server is tried on a GPU, and whether it stays for the
// jobs: not ok if the account is not known.
func (a *Agent) trialAccount(v *view, g *plan.GPU) (uid uint32, stays, ok bool) {
	switch {
	case g.MultiUser():
		return a.own, true, true
	case g.Tenancy.Policy == config.TenancyCommon:
		account := v.accounts[g.Tenancy.User]
		return account.UID, true, account.Known
	}
	return a.own, a.own != 0, true
}

// tryServers asks each control daemon once for a server, so that what keeps
// one from starting is known before a job meets it.
func (a *Agent) tryServers(ctx context.Context, v *view) {
	if a.servers == nil {
		return
	}
	for i := range v.plan.GPUs {
		gp := &v.plan.GPUs[i]
		g, shared := v.guards[gp.UUID]
		if !shared || g.err != nil || g.proof.PID == 0 || g.otherwise != "" {
			continue
		}
		uid, stays, ok := a.trialAccount(v, gp)
		if !ok {
			continue
		}
		of := trialOf{g.proof.Process(), g.wanted, v.plan.Driver, uid}
		idle := !a.jobs.Busy(gp.UUID) && a.jobs.Unknown() == ""
		was := g.trial
		next, step := was.next(of, stays, g.proof, idle)
		g.trial = a.trialDo(ctx, gp.UUID, next, step, g.proof, v.config.Health.Deadline)
		v.guards[gp.UUID] = g
		a.tellTrial(gp.UUID, was, g.trial)
	}
}

// trialDo takes one step of a trial.
func (a *Agent) trialDo(ctx context.Context, u gpu.UUID, t trial, step trialStep, p mps.Proof, deadline time.Duration) trial {
	if step == trialRests {
		return t
	}
	a.beat()
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	switch step {
	case trialAsks:
		t.asked = time.Now()
		if err := a.servers.StartServer(ctx, u, t.of.uid); err != nil {
			t.failure, t.over = err.Error(), true
		}
	case trialReads:
		lines, err := a.servers.Log(ctx, u, t.asked)
		if err != nil && t.looks >= trialLooks {
			t.failure, t.over = fmt.Sprintf("none came, and why is not known: %v", err), true
			return t
		}
		return t.told(lines)
	case trialEnds:
		// One that does not end makes way for another account's all the same.
		if err := a.servers.ShutdownServer(ctx, u, p.States[0].PID); err != nil && mps.FaultOf(err) != mps.NoServer {
			a.log.Warn("the server of a trial was not ended", "gpu", u, "pid", p.States[0].PID, "err", err)
		}
		t.over = true
	}
	return t
}

// tellTrial logs what came of a trial, once.
func (a *Agent) tellTrial(u gpu.UUID, was, now trial) {
	switch {
	case now.failure != "" && (was.failure != now.failure || was.of != now.of):
		a.log.Warn("no MPS server starts", "gpu", u, "uid", now.of.uid, "err", now.failure)
	case now.over && !was.over && !now.asked.IsZero() && !now.proven.Before(now.asked):
		a.log.Info("an MPS server was tried and is well", "gpu", u, "uid", now.of.uid)
	}
}

// trimLogs bounds the logs of the control daemons where nobody else does.
func (a *Agent) trimLogs(wanted []mps.Wanted) error {
	if a.servers == nil {
		return nil
	}
	for _, w := range wanted {
		if err := a.servers.TrimLog(w.GPU); err != nil {
			return fmt.Errorf("the log of the control daemon of %s grows without end: %w", w.GPU, err)
		}
	}
	return nil
}
