package agent

import (
	"errors"
	"path/filepath"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/budget"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/isolation"
	"github.com/gpuslot/gpuslot/agent/store"
	"github.com/gpuslot/gpuslot/gpu"
)

// startLink is where a job's supervisor looks whether to ask before the job's
// program runs; none where nothing has to be put in force.
func startLink(p config.Paths) string { return filepath.Join(p.Run, "condor", "start") }

// linkStart writes what supervisors do on this node. It outlives the agent: where
// isolation was promised no job starts while the agent is dead.
func (a *Agent) linkStart(v *view) error {
	word := ""
	switch {
	case !v.config.HTCondor.Supervise || v.plan.Observe:
	case v.isolation().Divided() && a.nodes.Enforced():
		word = api.StartRequired
	case v.can.CgroupLimits.Has:
		word = api.StartAsked
	}
	return store.Link(startLink(v.config.Paths), word)
}

// tellSupervisors writes both again.
func (a *Agent) tellSupervisors() {
	if err := errors.Join(a.linkStart(a.view.Load()), a.linkHolds()); err != nil {
		a.log.Error("what supervisors read is not up to date", "err", err)
	}
}

// linkHolds tells supervisors whether HTCondor is to hold any job of this node: a
// job that ends meanwhile asks whether it is the one.
func (a *Agent) linkHolds() error {
	a.linking.Lock()
	defer a.linking.Unlock()
	word := ""
	if len(a.jobs.Holds()) > 0 {
		word = "some"
	}
	return store.Link(filepath.Join(a.view.Load().config.Paths.Run, "condor", "holds"), word)
}

// noStart is why no job gets the word to start; empty if nothing keeps all of them.
func (v *view) noStart() string {
	if v.planned {
		return ""
	}
	return v.noPlan()
}

// cgroupsFile holds the limits that the driver was told to hold, for the next agent.
func cgroupsFile(p config.Paths) string { return filepath.Join(p.Run, "cgroups.json") }

// limitConditions are what the limits of cgroups rest on now.
func (a *Agent) limitConditions() budget.Conditions {
	v := a.view.Load()
	return budget.Conditions{
		Known: v.can.CgroupLimits.Known, Has: v.can.CgroupLimits.Has, Every: v.config.Usage.Interval,
		Shared: func(u gpu.UUID) bool {
			g, ok := v.plan.Find(u)
			return ok && g.Shared()
		},
	}
}

// isolation are the conditions of the rules for device nodes.
func (v *view) isolation() isolation.Conditions {
	return isolation.Conditions{
		Planned: v.planned, Observed: v.plan.Observe, Instances: v.instances, JobCgroups: v.settings.JobCgroups(),
		Device: func(u gpu.UUID) gpu.UUID {
			if g, ok := v.plan.Find(u); ok {
				return g.Device
			}
			return ""
		},
	}
}
