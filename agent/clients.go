package agent

import (
	"context"

	"github.com/gpuslot/gpuslot/agent/ending"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// Clients are the MPS clients of the node's control daemons.
type Clients interface {
	// Servers lists a daemon's servers with their clients: see mps.Daemon.Servers.
	Servers(ctx context.Context, u gpu.UUID) ([]mps.Server, error)
	// EndClients lets processes leave: see mps.Daemon.EndClients.
	EndClients(ctx context.Context, u gpu.UUID, pids []int, rules mps.EndRules) (mps.EndStep, error)
	// SetServers gives running servers their limits: see mps.Daemon.SetServers.
	SetServers(ctx context.Context, w mps.Wanted, servers []int) (mps.Proof, error)
}

// newEnder wires what ends MPS clients.
func (a *Agent) newEnder() *ending.Ender {
	return ending.New(ending.Options{
		Clients: a.clients, Jobs: a.jobs, Holds: a.jobs, Processes: a.proc, Starters: a.proc, Reservations: a.limits,
		Events: a.history, Metrics: a.metrics, Log: a.log, Root: a.cgroupRoot, LinkHolds: a.linkHolds,
		Shared: func(u gpu.UUID) bool {
			g, ok := a.view.Load().plan.Find(u)
			return ok && g.Shared()
		},
	})
}
