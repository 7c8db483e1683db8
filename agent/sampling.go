package agent

import (
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/dcgm"
	"github.com/gpuslot/gpuslot/agent/sampling"
	"github.com/gpuslot/gpuslot/agent/usage"
)

// newSampling wires what samples the GPUs. Source is nil where nothing reads them.
func (a *Agent) newSampling(source usage.Source, c config.Usage, proc string) error {
	o := sampling.Options{
		Source: source, Node: func() sampling.Node { return a.samplingNode(a.view.Load()) }, Jobs: a.jobs, Processes: a.proc,
		Daemons: a.daemons, Limits: a.limits, Sightings: a.keeper, Punisher: a.ender, Events: a.history, Log: a.log,
		Proc: proc, Published: a.lastHour.AddSample, Ended: a.sweepNow, Wake: func() { nudge(a.wake) },
	}
	if source != nil && c.DCGM != "" {
		exporter, err := dcgm.New(c.DCGM)
		if err != nil {
			return err
		}
		o.DCGM = exporter
	}
	a.sampling = sampling.New(o)
	return nil
}

// samplingNode is the node as samples see it.
func (a *Agent) samplingNode(v *view) sampling.Node {
	return sampling.Node{
		Plan: &v.plan, Config: &v.config, Daemons: v.daemons, Modes: v.modes, PrivilegeChecks: v.privilegeChecks(),
		CgroupLimits: v.can.CgroupLimits.Has, Quiet: a.closures.Node().Quiet(),
	}
}
