package daemons

import (
	"context"
	"time"

	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/gpu"
)

const (
	// culpritLooks is how many rounds the log of a server in FAULT is read for a
	// culprit: it may lag behind the state.
	culpritLooks = 3
	// culpritBack is how far the first answer of all looks back.
	culpritBack = 10 * time.Minute
)

// findCulprits counts the servers that went to FAULT and looks in their logs
// for the cause.
func (k *Keeper) findCulprits(ctx context.Context, now map[gpu.UUID]State, deadline time.Duration) {
	for u, s := range now {
		if !s.Servers.Faulted() || s.Err != nil {
			continue
		}
		if s.Servers.looks == 0 {
			k.Metrics.ServerFault(u)
			k.Log.Error("MPS server in FAULT", "gpu", u, "pid", s.Servers.pid, "clients", s.Servers.clients)
		}
		if k.Logs == nil || s.Servers.culprit != "" || s.Servers.looks >= culpritLooks {
			s.Servers.looks = max(s.Servers.looks, 1)
			now[u] = s
			continue
		}
		s.Servers.looks++
		ctx, cancel := context.WithTimeout(ctx, deadline)
		lines, err := k.Logs.Log(ctx, u, s.Servers.before)
		cancel()
		s.Servers.culprit = k.Culprits.Of(u, lines)
		now[u] = s
		switch {
		case err != nil:
			k.Log.Warn("the log of a server in FAULT cannot be read", "gpu", u, "err", err)
		case s.Servers.culprit != "":
			k.Events.Event(history.Event{
				Kind: history.EventCulprit, GPU: u,
				Text: "The log of its MPS server names the cause of a fault: " + s.Servers.culprit + ".",
			})
			k.Log.Warn("the log names the cause of a FAULT", "gpu", u, "culprit", s.Servers.culprit)
		}
	}
}
