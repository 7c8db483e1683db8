package agent

import (
	"fmt"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/health"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/sampling"
	"github.com/gpuslot/gpuslot/agent/status"
	"github.com/gpuslot/gpuslot/gpu"
)

// newReader wires what takes snapshots of the node for readers.
func (a *Agent) newReader() *status.Reader {
	return status.New(status.Options{
		Version: a.version, ConfigFile: a.configFile, Own: a.own, Closed: a.admission.Closed, Warnings: a.partWarnings,
		Node: func() status.Node { return a.statusNode(a.view.Load()) },
		Seen: func(n *status.Node, g *plan.GPU, now time.Time) gpu.Measured[bool] {
			return a.sampling.Sees(n.Health.(health.GPUs).Sampling, g, now)
		},
		Unlisted: func(n *status.Node, g *plan.GPU, now time.Time) sampling.Unlisted {
			return a.sampling.Unlisted(n.Health.(health.GPUs).Sampling, g.UUID, now)
		},
		Quiet: func() bool { return a.quiescer.Quiet }, Jobs: a.jobs, Callers: a.jobs, Closures: a.closures,
		Quiescer: a.quiescer, Faults: a.troubles, Elastic: a.elastic, Partitions: a.partitions, Verifier: a.verifier,
		Access: a.access, Limits: a.limits, Samples: a.sampling, Startds: a.startds, Feedback: &a.feedback,
	})
}

// statusNode is the last round as readers see it.
func (a *Agent) statusNode(v *view) status.Node {
	return status.Node{
		Config: v.config, Plan: v.plan, Planned: v.planned, Applied: v.applied, Before: a.recalled,
		ConfigError: v.configError, ConfigRead: v.configRead, ConfigOK: v.configOK,
		Written: v.written, Closed: v.closed, NoPlan: v.noPlan(),
		Daemons: v.daemons, Modes: v.modes, Present: v.present, Accounts: v.accounts, Can: v.can,
		HTCondor: v.condorText(), Overridden: v.overridden, Repartition: v.repartition, Below: v.below,
		LaidOut: v.laidOut, Problems: v.problems, Rounds: v.rounds, RoundTook: v.took, RoundOK: v.roundOK,
		Health: a.gpus(v),
	}
}

// acceptances answers the startd's monitor: the GPUs and MIG devices of the plan.
func (a *Agent) acceptances() []api.Acceptance {
	a.sweepNow() // a tenant must not outlive its last job here
	s := a.reader.Take(time.Now())
	reserved, least := a.reserve(s)
	return a.monitor.Answer(s, reserved, least)
}

// partWarnings are what parts of the agent have to report, as complete sentences.
func (a *Agent) partWarnings() []string {
	var out []string
	if err := a.queue.Err(); err != nil {
		out = append(out, fmt.Sprintf("What waits in the pool is not known, so nothing on this node follows it, and "+
			"elastic GPUs change sides every elastic.stay: %v.", err))
	}
	if why := a.port.Down(); why != "" {
		out = append(out, fmt.Sprintf("Metrics are not served, and nothing alerts on this node: %s: see which process has "+
			"the port (ss -lptn); gpuslotd tries again.", why))
	}
	out = append(out, a.limits.Warnings()...)
	return append(out, a.nodes.Warnings()...)
}
