package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// ControlDaemons are the node's control daemons, by GPU.
type ControlDaemons interface {
	// Set makes the running daemons the wanted ones: see mps.Daemons.Set.
	Set(ctx context.Context, wanted []mps.Wanted) ([]mps.Result, error)
	// Prove asks one daemon for its limits: see mps.Daemon.Prove.
	Prove(ctx context.Context, w mps.Wanted) (mps.Proof, error)
	// Restart ends a daemon and starts it anew: see mps.Daemons.Restart.
	Restart(ctx context.Context, w mps.Wanted) mps.Result
	// Pulse checks in microseconds that the proven processes still run.
	Pulse(u gpu.UUID, p mps.Proof) mps.Pulse
}

// controlDaemons speaks to the real ones.
type controlDaemons struct{ *mps.Daemons }

func (c controlDaemons) Prove(ctx context.Context, w mps.Wanted) (mps.Proof, error) {
	d, err := c.Daemon(w.GPU)
	if err != nil {
		return mps.Proof{}, err
	}
	return d.Prove(ctx, w)
}

func (c controlDaemons) Pulse(u gpu.UUID, p mps.Proof) mps.Pulse {
	d, err := c.Daemon(u)
	if err != nil {
		return mps.Pulse{Err: err}
	}
	return d.Pulse(p)
}

// guard is what the agent knows of one control daemon. It is a value: the loop
// makes the next one from the last.
type guard struct {
	wanted mps.Wanted
	proof  mps.Proof
	// failures counts the proofs in a row that were not had.
	failures int
	err      error
	// restarts counts the processes seen beyond the first.
	restarts int
	// otherwise says why it cannot serve although it is well: it was started with
	// other flags, or lacks its partitions.
	otherwise string
	// servers is what the proofs told of its MPS servers.
	servers serverState
	// trial is whether a server starts.
	trial trial
	// restartAt is when a daemon that answers nobody may be restarted; zero for one that does.
	restartAt time.Time
}

// closeAfter is how many proofs in a row a daemon may fail that is merely busy:
// any local account may keep its only connection for a moment. One that does
// not answer at all closes its GPU at once.
const closeAfter = 2

// at most this many daemons are asked at once.
const provers = 8

// next is the guard after one more attempt at a proof.
func (g guard) next(w mps.Wanted, p mps.Proof, err error) guard {
	g.wanted = w
	if err != nil {
		g.failures++
		g.err = err
		return g
	}
	if g.proof.PID != 0 && g.proof.Process() != p.Process() {
		g.restarts++
	}
	g.proof, g.failures, g.err = p, 0, nil
	g.servers = g.servers.next(p.States, p.At)
	g.trial = g.trial.seen(p)
	return g
}

// closed says why the GPU takes no jobs; empty if it does. A wrong or missing
// daemon closes it at once.
func (g guard) closed() string {
	switch f := mps.FaultOf(g.err); {
	case g.err == nil && g.otherwise != "":
		return g.otherwise
	case g.err == nil:
		return g.trial.closed(g.proof.Process())
	case f == mps.Busy && g.failures < closeAfter && !g.proof.At.IsZero():
		return ""
	}
	return daemonSays(g.err)
}

// mendable says whether setting the whole state anew may help.
func (g guard) mendable() bool {
	switch mps.FaultOf(g.err) {
	case mps.NotRunning, mps.Gone, mps.WrongLimits, mps.Foreign, mps.NotInstalled, mps.Unwritable:
		return true
	}
	return g.proof.At.IsZero()
}

// proveAll asks every daemon once, several at a time.
func (a *Agent) proveAll(ctx context.Context, old map[gpu.UUID]guard, wanted []mps.Wanted, deadline time.Duration) map[gpu.UUID]guard {
	guards := make([]guard, len(wanted))
	free := make(chan struct{}, provers)
	var wg sync.WaitGroup
	for i, w := range wanted {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			ctx, cancel := context.WithTimeout(ctx, deadline)
			defer cancel()
			p, err := a.daemons.Prove(ctx, w)
			guards[i] = old[w.GPU].next(w, p, err)
		})
	}
	wg.Wait()
	out := make(map[gpu.UUID]guard, len(wanted))
	for i, w := range wanted {
		out[w.GPU] = guards[i]
	}
	return out
}

// setTimeout bounds one Set of all daemons: starting one takes milliseconds,
// and a wedged one is left alone after a few seconds.
const setTimeout = 20 * time.Second

// setAll gives all daemons their state anew and books what came of it.
func (a *Agent) setAll(ctx context.Context, guards map[gpu.UUID]guard, wanted []mps.Wanted) error {
	ctx, cancel := context.WithTimeout(ctx, setTimeout)
	defer cancel()
	results, err := a.daemons.Set(ctx, wanted)
	var left error
	byGPU := make(map[gpu.UUID]mps.Wanted, len(wanted))
	for _, w := range wanted {
		byGPU[w.GPU] = w
	}
	for _, r := range results {
		w, kept := byGPU[r.GPU]
		switch {
		case !kept && r.Err != nil:
			left = errors.Join(left, fmt.Errorf("stop the control daemon of %s: %w", r.GPU, r.Err))
			a.log.Error("control daemon not stopped", "gpu", r.GPU, "err", r.Err)
		case !kept:
			a.log.Info("control daemon stopped", "gpu", r.GPU)
		default:
			g := guards[r.GPU].next(w, r.Proof, r.Err)
			if r.Err == nil && (r.Action == mps.Started || guards[r.GPU].wanted != w || guards[r.GPU].err != nil) {
				a.note(history.Event{Kind: history.EventRestart, GPU: r.GPU, By: history.ByAgent, Text: fmt.Sprintf("Its control daemon was set (%s): pid %d, limit %s.", r.Action, r.Proof.PID, r.Proof.Limit)})
				a.log.Info("control daemon set", "gpu", r.GPU, "did", r.Action, "pid", r.Proof.PID, "limit", r.Proof.Limit)
			}
			guards[r.GPU] = g
		}
	}
	if err != nil {
		return fmt.Errorf("control daemons: %w", err)
	}
	return left // tried again in the next round
}
