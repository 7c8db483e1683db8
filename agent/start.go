package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/budget"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/isolation"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
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
	return link(startLink(v.config.Paths), word)
}

// jobHolds answers the startd's monitor.
func (a *Agent) jobHolds() []api.Hold { return a.jobs.Holds() }

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
	return link(filepath.Join(a.view.Load().config.Paths.Run, "condor", "holds"), word)
}

// start puts the limits of a caller's cgroup in force: the VRAM that the driver
// holds a job to, and the device nodes of MIG devices that it may open. The caller
// is the job's supervisor, which HTCondor started in that cgroup.
func (a *Agent) start(ctx context.Context, c starter.Caller) api.Reply {
	if c.Starter.PID == 0 {
		return api.Reply{Error: "the caller is not below its slot's condor_starter: only HTCondor's job wrapper asks for a job's start"}
	}
	v := a.view.Load()
	held, why := a.jobs.Starting(c.Starter)
	if no := a.noStart(); no != "" {
		why = no
	}
	if why != "" {
		return api.Reply{Refusal: api.Refuse(api.CodeClosed, why)}
	}
	l := a.proc.Leaf(c.PID)
	if l.Left {
		return api.Reply{Refusal: api.Refuse(api.CodeClosed,
			"the job was moved out of its own cgroup before it began: some process of its account did that")}
	}
	if err := a.nodes.Starts(v.isolation(), c, l.Path); err != nil {
		return api.Reply{Refusal: api.Refuse(api.CodeClosed, err.Error())}
	}
	out := &api.Started{}
	for _, r := range held {
		if g, ok := find(&v.plan, r.GPU); !ok || !g.Shared() {
			continue
		}
		out.Supervise = true
		if !l.Login {
			out.Reserved = a.limitAtStart(ctx, v, r, l.Path) || out.Reserved
		}
	}
	if err := a.nodes.CloseAtStart(v.isolation(), c.Starter, held, l.Path); err != nil {
		return api.Reply{Refusal: api.Refuse(api.CodeClosed,
			fmt.Sprintf("the device nodes of other MIG devices cannot be closed to the job: %v: look at gpuslot status on the node", err))}
	}
	return api.Reply{Started: out}
}

// noStart is why no job gets the word to start; empty if nothing keeps all of them.
func (a *Agent) noStart() string {
	if v := a.view.Load(); !v.planned {
		return v.noPlan()
	}
	return ""
}

// cgroupsFile holds the limits that the driver was told to hold, for the next agent.
func cgroupsFile(p config.Paths) string { return filepath.Join(p.Run, "cgroups.json") }

// limitConditions are what the limits of cgroups rest on now.
func (a *Agent) limitConditions() budget.Conditions {
	v := a.view.Load()
	return budget.Conditions{
		Known: v.can.CgroupLimits.Known, Has: v.can.CgroupLimits.Has, Every: v.config.Usage.Interval,
		Shared: func(u gpu.UUID) bool {
			g, ok := find(&v.plan, u)
			return ok && g.Shared()
		},
	}
}

// limited says whether the jobs of a GPU get limits on their cgroups, as far as is known.
func (a *Agent) limited(v *view, u gpu.UUID) bool {
	return v.can.CgroupLimits.Has && a.limits.Works(u)
}

// limitAtStart limits a job's cgroup where the driver can, and says whether it was
// told to keep VRAM for it.
func (a *Agent) limitAtStart(ctx context.Context, v *view, r jobs.Job, leaf string) (reserved bool) {
	if !v.can.CgroupLimits.Has || r.Budget <= 0 || leaf == "" {
		return false
	}
	if !a.limits.Has(r.Starter, r.GPU) {
		a.limits.Take(ctx, r, leaf)
	}
	return a.limits.Has(r.Starter, r.GPU)
}

// isolation are the conditions of the rules for device nodes.
func (v *view) isolation() isolation.Conditions {
	return isolation.Conditions{
		Planned: v.planned, Observed: v.plan.Observe, Instances: v.instances, JobCgroups: v.settings.JobCgroups(),
		Device: func(u gpu.UUID) gpu.UUID {
			if g, ok := find(&v.plan, u); ok {
				return g.Device
			}
			return ""
		},
	}
}
