package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/elastic"
	"github.com/gpuslot/gpuslot/agent/isolation"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/layouts"
	"github.com/gpuslot/gpuslot/agent/observe"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/sampling"
	"github.com/gpuslot/gpuslot/agent/store"
	"github.com/gpuslot/gpuslot/gpu"
)

// planner makes the plan of a round, and the MIG layouts that it needs.
type planner struct {
	jobs     *jobs.Table
	layouts  *layouts.Layouts
	sampling *sampling.Loop
	elastic  *elastic.Group
	before   *before
}

// plan plans again; a plan that cannot be made leaves the last in force.
func (m *planner) plan(v *view, inv gpu.Inventory, start time.Time) {
	v.instances = isolation.InstancesOf(inv, v.instances)
	inv.Host = v.settings.Within(inv.Host)
	p, err := plan.Build(v.next, m.layouts.Owned(m.withServers(v, inv)))
	if err == nil {
		if !p.Observe {
			v.instances.Divide(layouts.Planned(p)) // users could open what is made before it is known
			p.Divided = v.instances.Divided()
		}
		p = m.elastic.Follow(p, m.before.plan, start)
	}
	if err == nil {
		err = p.Check(v.can.MPS, v.can.CgroupLimits)
	}
	if err == nil {
		var inForce *plan.Plan
		if v.planned {
			inForce = &v.plan
		}
		left := m.before.lost != nil || m.before.plan.Schema != "" && !m.before.plan.Observe
		err = observe.Duty(inForce, p, left, v.next.Paths)
	}
	switch {
	case err == nil:
		if !v.planned || len(plan.Diff(v.plan, p)) > 0 { // warnings do not count
			v.applied = start
			m.jobs.NewPlan()
		}
		v.config, v.plan, v.planned, v.pending = v.next, p, true, false
	case v.pending:
		v.reject(err)
	default:
		v.problem(err)
	}
	v.instances.Divide(layouts.Planned(v.plan))
	v.forJobs = layouts.ForJobs(v.plan, inv, v.forJobs)
	v.present = layouts.Present(v.plan, inv)
}

// withServers is the inventory with the VRAM that MPS servers use, as the last sample and
// the plan in force have it.
func (m *planner) withServers(v *view, inv gpu.Inventory) gpu.Inventory {
	inForce := v.plan
	if !v.planned {
		inForce, _ = plan.Read(v.next.Paths.PlanFile()) // none after a boot
	}
	return plan.WithServers(inv, inForce.Servers(), m.sampling.Servers())
}

// node is what MIG layouts rest on.
func (m *planner) node(v *view, inv gpu.Inventory) layouts.Node {
	return layouts.Node{Config: v.config, Plan: v.plan, Inventory: inv}
}

// before is what the agent before this one left. Only the loop changes it.
type before struct {
	// plan is the plan of that agent; the zero Plan if there is none.
	plan plan.Plan
	// lost is why it could not be read.
	lost error
}

// read reads the plan; none after a boot.
func (b *before) read(p config.Paths) error {
	old, err := plan.Read(p.PlanFile())
	switch {
	case err == nil:
		b.plan = old
	case !errors.Is(err, fs.ErrNotExist):
		b.lost = err
	}
	return b.lost
}

// unknown says why the plan is not known, while jobs from then run. Until they have ended no
// control daemon is started or stopped, no compute mode is given back, and no other plan
// takes the file's place.
func (b *before) unknown(p config.Paths, table *jobs.Table) error {
	if b.lost == nil {
		return nil
	}
	runs := table.Unknown()
	for _, r := range table.Running() {
		if r.Adopted {
			runs = r.Starter.Slot + " runs since before gpuslotd started"
		}
	}
	if runs != "" {
		return fmt.Errorf("which control daemons the jobs use is not known, so none is started or stopped until they have "+
			"ended: %s: %w", runs, b.lost)
	}
	if err := store.Aside(p.PlanFile()); err != nil {
		return err
	}
	b.lost = nil
	return nil
}
