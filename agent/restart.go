package agent

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/foreign"
	"github.com/gpuslot/gpuslot/mps"
)

// order is a restart that an operator asked for; the loop carries it out, so
// that no round meets a daemon in between.
type order struct {
	gpu   gpu.UUID
	force bool
	done  chan<- outcomeOf
}

type outcomeOf struct {
	text string
	err  error
}

// restart starts a GPU's control daemon anew. One with clients is left alone
// unless forced: their jobs would end.
func (a *Agent) restart(ctx context.Context, name string, force bool) (string, error) {
	v := a.view.Load()
	g, err := gpuNamed(&v.plan, name)
	if err != nil {
		return "", err
	}
	if !g.Shared() {
		return "", fmt.Errorf("GPU %d (%s) is not shared: it has no control daemon", g.Index, g.UUID)
	}
	done := make(chan outcomeOf, 1)
	select {
	case a.orders <- order{g.UUID, force, done}:
	case <-ctx.Done():
		return "", errors.New("the agent is busy with a round that takes long: try again, and see gpuslot status")
	}
	select {
	case o := <-done:
		return o.text, o.err
	case <-ctx.Done():
		return "", errors.New("the restart takes long: see gpuslot status for what came of it")
	}
}

// gpuNamed finds a GPU of the plan by its UUID, its index, its PCI bus id or the
// beginning of its UUID.
func gpuNamed(p *plan.Plan, name string) (*plan.GPU, error) {
	bus, errBus := gpu.ParsePCIBusID(name)
	var found []*plan.GPU
	for i := range p.GPUs {
		g := &p.GPUs[i]
		if !g.MIGDevice() && (strconv.Itoa(g.Index) == name || errBus == nil && g.PCI == bus) || string(g.UUID) == name {
			return g, nil
		}
		if name != "" && strings.HasPrefix(strings.TrimPrefix(string(g.UUID), "GPU-"), strings.TrimPrefix(name, "GPU-")) {
			found = append(found, g)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return nil, fmt.Errorf("there is no GPU %q in the plan: name one by its index or UUID, as gpuslot status shows them", foreign.Clip(name))
	}
	return nil, fmt.Errorf("%q begins the UUIDs of %d GPUs: give more of it", foreign.Clip(name), len(found))
}

// restartTimeout bounds one restart; tens of milliseconds are usual.
const restartTimeout = 20 * time.Second

// carryOut restarts a control daemon, in the loop.
func (a *Agent) carryOut(ctx context.Context, o order) {
	ctx, cancel := context.WithTimeout(ctx, restartTimeout)
	defer cancel()
	text, err := a.restartNow(ctx, o)
	o.done <- outcomeOf{text, err}
	nudge(a.wake)
}

func (a *Agent) restartNow(ctx context.Context, o order) (string, error) {
	v := a.view.Load()
	g, ok := v.plan.GPU(o.gpu)
	w, wanted := wantedOf(v.plan, o.gpu)
	if !ok || !wanted {
		return "", fmt.Errorf("%s left the plan meanwhile", o.gpu)
	}
	clients, err := a.allClients(ctx, o.gpu)
	switch {
	case !o.force && err != nil:
		return "", fmt.Errorf("GPU %d: whether jobs use it is not known, because %w; --force restarts it all the same", g.Index, err)
	case !o.force && len(clients) > 0:
		return "", fmt.Errorf("GPU %d has %d MPS clients (pids %s), whose jobs would fail: wait until they end, or use --force", g.Index, len(clients), numbers(clients))
	case len(clients) > 0:
		a.endClients(ctx, o.gpu, clients, starter.Starter{})
	}
	r := a.daemons.Restart(ctx, w)
	if r.Err != nil {
		return "", r.Err
	}
	a.note(history.Event{Kind: history.EventRestart, GPU: o.gpu, By: history.ByOperator, Text: fmt.Sprintf("Its control daemon was restarted with %d MPS clients (gpuslot mps restart).", len(clients))})
	a.log.Warn("control daemon restarted by an operator", "gpu", o.gpu, "pid", r.Proof.PID, "clients", len(clients))
	return fmt.Sprintf("control daemon of GPU %d (%s) restarted: pid %d, limit %s", g.Index, o.gpu, r.Proof.PID, r.Proof.Limit), nil
}

func wantedOf(p plan.Plan, u gpu.UUID) (mps.Wanted, bool) {
	for _, w := range p.ControlDaemons() {
		if w.GPU == u {
			return w, true
		}
	}
	return mps.Wanted{}, false
}

// allClients are the clients of all servers of a GPU.
func (a *Agent) allClients(ctx context.Context, u gpu.UUID) ([]int, error) {
	servers, err := a.clients.Servers(ctx, u)
	var all []int
	for _, s := range servers {
		all = append(all, s.Clients...)
	}
	return all, err
}
