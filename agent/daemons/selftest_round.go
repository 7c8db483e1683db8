package daemons

import (
	"context"
	"fmt"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// testAccount is whose server is tested on a GPU, and whether it stays for the
// jobs: not ok if the account is not known.
func testAccount(n *Node, g *plan.GPU, own uint32) (uid uint32, stays, ok bool) {
	switch {
	case g.MultiUser():
		return own, true, true
	case g.Tenancy.Policy == config.TenancyCommon:
		account := n.Accounts[g.Tenancy.User]
		return account.UID, true, account.Known
	}
	return own, own != 0, true
}

// testServers asks each control daemon once for a server, so that what keeps
// one from starting is known before a job meets it.
func (k *Keeper) testServers(ctx context.Context, n *Node, now map[gpu.UUID]State) {
	if k.Servers == nil {
		return
	}
	for i := range n.Plan.GPUs {
		g := &n.Plan.GPUs[i]
		s, shared := now[g.UUID]
		uid, stays, ok := testAccount(n, g, k.Own)
		if !ok || !shared || s.Err != nil || s.Checked.PID == 0 || s.Otherwise != "" {
			continue
		}
		of := subject{s.Checked.Process(), s.Wanted, n.Plan.Driver, uid}
		idle := !k.Jobs.Busy(g.UUID) && k.Jobs.Unknown() == ""
		was := s.SelfTest
		next, step := was.next(of, stays, s.Checked, idle)
		s.SelfTest = k.testStep(ctx, g.UUID, next, step, s.Checked, n.Deadline)
		if s.SelfTest.differs != "" && (was.differs == "" || was.of != of) {
			s = k.repeat(ctx, g.UUID, s)
		}
		now[g.UUID] = s
		switch t := s.SelfTest; {
		case t.failure != "" && (was.failure != t.failure || was.of != t.of):
			k.Log.Warn("no MPS server starts", "gpu", g.UUID, "uid", t.of.uid, "err", t.failure)
		case t.over && !was.over && !t.asked.IsZero() && !t.well.Before(t.asked):
			k.Log.Info("an MPS server was tested and is well", "gpu", g.UUID, "uid", t.of.uid)
		}
	}
}

// repeated is a daemon that was restarted because of what a job can bring about, too. given is as Access says.
type repeated struct {
	daemon process.ID
	given  int
}

// repeat is about a self-test whose server logged another limit. A job that keeps the log pipe can write
// such a line. So it closes the GPU only if it comes again from a daemon that no account could reach.
func (k *Keeper) repeat(ctx context.Context, u gpu.UUID, s State) State {
	given, before, why := k.Access.Given(u), k.repeated[u], s.SelfTest.differs
	own := before.daemon == s.Checked.Process()
	if own && given >= 0 && before.given == given {
		return s
	}
	s.SelfTest.differs = ""
	if own || !k.idle(ctx, u) {
		k.Log.Warn("a self-test found another limit, which a job can write: the GPU stays open", "gpu", u, "err", why)
		return s
	}
	ctx, cancel := context.WithTimeout(ctx, restartTimeout)
	defer cancel()
	r := k.Daemons.Restart(ctx, s.Wanted)
	k.Log.Warn("a self-test found another limit: the daemon restarts and is tested again", "gpu", u, "err", why)
	if r.Err == nil {
		k.repeated[u] = repeated{r.Checked.Process(), given}
	}
	return s.next(s.Wanted, r.Checked, r.Err)
}

// testStep takes one step of a self-test.
func (k *Keeper) testStep(
	ctx context.Context, u gpu.UUID, t SelfTest, do step, p mps.Checked, deadline time.Duration,
) SelfTest {
	if do == rest {
		return t
	}
	k.Beat()
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	switch do {
	case ask:
		t.asked, t.tries = time.Now(), t.tries+1
		if err := k.Servers.StartServer(ctx, u, t.of.uid); err != nil {
			t.failure, t.over = err.Error(), true
		}
	case read:
		lines, err := k.Logs.Log(ctx, u, t.asked)
		if err != nil && t.looks >= mostLooks {
			t.failure, t.over = fmt.Sprintf("none came, and why is not known: %v", err), true
			return t
		}
		return t.after(lines)
	case keep, end:
		t = t.limited(k.logged[u], p.States[0].ID)
		if do == keep {
			return t
		}
		// One that does not end makes way for another account's all the same.
		err := k.Servers.ShutdownServer(ctx, u, p.States[0].PID)
		if err != nil && mps.FaultOf(err) != mps.NoServer {
			k.Log.Warn("the server of a self-test was not ended", "gpu", u, "pid", p.States[0].PID, "err", err)
		}
		t.over = true
	}
	return t
}
