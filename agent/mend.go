package agent

import (
	"context"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// tellForeignChanges tells of limits that somebody else changed on a daemon that
// had them right: up to driver 535 any account may. The round sets them anew.
func (a *Agent) tellForeignChanges(old, now map[gpu.UUID]guard) {
	for u, g := range now {
		if old[u].err != nil || old[u].proof.PID == 0 || old[u].wanted != g.wanted {
			continue
		}
		for _, d := range mps.DifferencesOf(g.err) {
			a.metrics.ForeignChange(u, string(d.Setting))
			a.log.Error("somebody else changed a limit of a control daemon; it is set anew", "gpu", u, "setting", d.Setting, "read", d.Read, "want", d.Want)
		}
	}
}

// mendServers gives running servers the limits of their daemon where they have
// others: they were started before, or somebody changed theirs. It acts on
// their later clients.
func (a *Agent) mendServers(ctx context.Context, guards map[gpu.UUID]guard, deadline time.Duration) {
	for u, g := range guards {
		if g.err != nil || len(g.proof.Stale) == 0 {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, deadline)
		p, err := a.clients.SetServers(ctx, g.wanted, g.proof.Stale)
		cancel()
		if err != nil {
			a.log.Error("MPS servers keep other limits than their daemon", "gpu", u, "pids", g.proof.Stale, "err", err)
			continue
		}
		a.log.Warn("MPS servers had other limits than their daemon; later clients get the daemon's", "gpu", u, "pids", g.proof.Stale)
		guards[u] = g.next(g.wanted, p, nil)
	}
}
