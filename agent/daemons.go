package agent

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/daemons"
	"github.com/gpuslot/gpuslot/agent/partitions"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// ControlDaemons are the node's control daemons, by GPU; mps.Daemons is the real one.
type ControlDaemons interface {
	daemons.Daemons
	daemons.Checks
}

// Servers are the MPS servers of control daemons, and what they write; mps.Daemons is the
// real one.
type Servers interface {
	daemons.Servers
	daemons.Logs
}

// newKeeper makes what keeps control daemons and their static SM partitions.
func (a *Agent) newKeeper(servers Servers, p config.Paths) {
	sm, _ := a.daemons.(partitions.Daemons)
	a.partitions = partitions.New(partitions.Options{
		File: partitions.File(p), Daemons: sm, Jobs: a.jobs, Processes: a.proc, Log: a.log,
	})
	o := daemons.Options{
		Daemons: a.daemons, Checks: a.daemons, Clients: a.clients, Partitions: a.partitions,
		Jobs: a.jobs, Owners: a.jobs, Processes: a.proc, Work: work{a}, Metrics: a.metrics, Events: a.history,
		Log: a.log, Own: a.own, Beat: a.beat,
	}
	if servers != nil {
		o.Servers, o.Logs = servers, servers
	}
	a.keeper = daemons.New(o)
}

// work is what runs on the GPUs, as agent/daemons sees it.
type work struct{ *Agent }

// End lets MPS clients leave their server.
func (a work) End(ctx context.Context, u gpu.UUID, pids []int) {
	a.ender.EndClients(ctx, u, pids, starter.Starter{})
}

// None says for certain that nothing but MPS servers is on a GPU.
func (a work) None(u gpu.UUID, now time.Time) bool { return a.sampling.Unused(u, now) }

// restart restarts a GPU's control daemon for an operator.
func (a *Agent) restart(ctx context.Context, name string, force bool) (string, error) {
	g, err := gpuNamed(&a.view.Load().plan, name)
	if err != nil {
		return "", err
	}
	return a.keeper.Restart(ctx, g, force)
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
		return nil, fmt.Errorf("there is no GPU %q in the plan: name one by its index or UUID, as gpuslot status shows "+
			"them", foreign.Clip(name))
	}
	return nil, fmt.Errorf("%q begins the UUIDs of %d GPUs: give more of it", foreign.Clip(name), len(found))
}
