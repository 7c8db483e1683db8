package daemons

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// Order is a restart that an operator asked for; the loop carries it out, so
// that no round meets a daemon in between.
type Order struct {
	gpu   gpu.UUID
	force bool
	done  chan<- orderEnd
}

type orderEnd struct {
	text string
	err  error
}

// Restart restarts a GPU's control daemon for an operator. One with clients is left alone
// unless forced: their jobs would end. It waits for the loop.
func (k *Keeper) Restart(ctx context.Context, g *plan.GPU, force bool) (string, error) {
	if !g.MPS() {
		return "", fmt.Errorf("GPU %d (%s) is not shared through MPS: it has no control daemon", g.Index, g.UUID)
	}
	done := make(chan orderEnd, 1)
	select {
	case k.orders <- Order{g.UUID, force, done}:
	case <-ctx.Done():
		return "", errors.New(
			"the agent is busy with a round that takes long: try again, and see gpuslot status")
	}
	select {
	case o := <-done:
		return o.text, o.err
	case <-ctx.Done():
		return "", errors.New("the restart takes long: see gpuslot status for what came of it")
	}
}

// Orders are the restarts that operators asked for. The loop receives each and calls Carry.
func (k *Keeper) Orders() <-chan Order { return k.orders }

// restartTimeout bounds one restart; tens of milliseconds are usual.
const restartTimeout = 20 * time.Second

// Carry restarts a control daemon of the plan, in the loop.
func (k *Keeper) Carry(ctx context.Context, o Order, p *plan.Plan) {
	ctx, cancel := context.WithTimeout(ctx, restartTimeout)
	defer cancel()
	text, err := k.restartNow(ctx, o, p)
	o.done <- orderEnd{text, err}
}

func (k *Keeper) restartNow(ctx context.Context, o Order, p *plan.Plan) (string, error) {
	g, ok := p.GPU(o.gpu)
	var wanted mps.Wanted
	for _, w := range p.ControlDaemons() {
		if w.GPU == o.gpu {
			wanted = w
		}
	}
	if !ok || wanted.GPU == "" {
		return "", fmt.Errorf("%s left the plan during that time", o.gpu)
	}
	clients, err := k.clients(ctx, o.gpu)
	switch {
	case !o.force && err != nil:
		return "", fmt.Errorf("GPU %d: whether jobs use it is not known, because %w; "+
			"--force restarts it all the same", g.Index, err)
	case !o.force && len(clients) > 0:
		return "", fmt.Errorf("GPU %d has %d MPS clients (pids %s), whose jobs would fail: "+
			"wait until they end, or use --force", g.Index, len(clients), strings.Trim(fmt.Sprint(clients), "[]"))
	case len(clients) > 0:
		k.Work.End(ctx, o.gpu, clients)
	}
	r := k.Daemons.Restart(ctx, wanted)
	if r.Err != nil {
		return "", r.Err
	}
	k.Events.Event(history.Event{
		Kind: history.EventRestart, GPU: o.gpu, By: history.ByOperator,
		Text: fmt.Sprintf("Its control daemon was restarted with %d MPS clients (gpuslot gpu restart).", len(clients)),
	})
	k.Log.Warn("control daemon restarted by an operator", "gpu", o.gpu, "pid", r.Checked.PID, "clients", len(clients))
	return fmt.Sprintf("control daemon of GPU %d (%s) restarted: pid %d, limit %s",
		g.Index, o.gpu, r.Checked.PID, r.Checked.Limit), nil
}

// A control daemon serves one connection at a time, and reads one log pipe. A job that keeps
// them open, or passes them on to another job of its account, keeps the daemon from answering
// after its own end. A restart ends both for good (mps TestKeptConnection), and harms nobody
// while the GPU has no jobs.

const (
	// unansweredFor is how long a daemon that does not answer is left alone on an idle GPU.
	unansweredFor = time.Minute
	// unansweredAgain is the time from one such restart to the next: a driver that hangs
	// keeps the new daemon from answering, too.
	unansweredAgain = 10 * time.Minute
)

// restartUnanswered restarts the daemons that have not answered for a while, on GPUs
// without jobs.
func (k *Keeper) restartUnanswered(ctx context.Context, states map[gpu.UUID]State, now time.Time) {
	for u, s := range states {
		f := mps.FaultOf(s.Err)
		switch {
		case f != mps.Busy && f != mps.Wedged:
			s.restartAt = time.Time{}
		case s.restartAt.IsZero():
			s.restartAt = now.Add(unansweredFor)
		case !now.Before(s.restartAt) && !k.Jobs.Busy(u) && k.Jobs.Unknown() == "" && k.Work.None(u, now):
			s = k.restartOne(ctx, u, s)
			s.restartAt = now.Add(unansweredAgain)
		}
		states[u] = s
	}
}

func (k *Keeper) restartOne(ctx context.Context, u gpu.UUID, s State) State {
	why := s.Err
	ctx, cancel := context.WithTimeout(ctx, restartTimeout)
	defer cancel()
	r := k.Daemons.Restart(ctx, s.Wanted)
	if r.Err != nil {
		k.Log.Error("a control daemon that answers nobody was not restarted", "gpu", u, "err", r.Err)
	} else {
		k.Events.Event(history.Event{
			Kind: history.EventRestart, GPU: u, By: history.ByAgent,
			Text: fmt.Sprintf("Its control daemon was restarted: it had not answered for %s, and no job was there.",
				unansweredFor),
		})
		k.Log.Warn("a control daemon that did not answer was restarted", "gpu", u, "pid", r.Checked.PID, "why", why)
	}
	return s.next(s.Wanted, r.Checked, r.Err)
}
