package status

import (
	"cmp"
	"fmt"
	"time"

	"github.com/gpuslot/gpuslot/agent/admission"
	"github.com/gpuslot/gpuslot/agent/closures"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/startd"
	"github.com/gpuslot/gpuslot/gpu"
)

// OwnerElastic closes GPUs that serve the other kind of jobs.
const OwnerElastic = "elastic"

// judge finds whether a GPU or MIG device takes jobs now. It makes the cheap check, and never
// asks the control daemon.
func (r *Reader) judge(n *Node, g *plan.GPU, now time.Time) GPU {
	var j GPU
	switch {
	case g.Observed():
		j.setJobs(r.on(g.UUID)) // nothing closes it
		return j
	case g.Alone():
		j.Reason = n.Health.Alone(g, now)
		j.setJobs(r.on(g.UUID))
	case g.Shared():
		j = r.judgeShared(n, g, now)
	default:
		j.Reason = n.Health.Whole(g, now)
		j.setJobs(r.on(g.UUID))
	}
	j.Closures = r.Closures.On(g.UUID, g.Physical())
	if side := r.Elastic.Side(g.UUID); side != "" {
		j.Closures = append(j.Closures, closures.Closure{GPU: g.UUID, Owner: OwnerElastic, Reason: side, Since: now})
	}
	seen := cmp.Or(j.Reason, r.Closed(now))
	if r.Quiet() {
		seen = "" // what it does not look at it cannot miss
	}
	j.Reason = j.Closures.ReasonAnd(seen)
	if seen != "" {
		j.Closures = append(j.Closures, closures.Closure{
			GPU: g.UUID, Owner: closures.OwnerAgent, Reason: seen, Since: r.Faults.Verdict(g.Physical(), now).Since,
		})
	}
	return j
}

// on are the jobs on a GPU.
func (r *Reader) on(u gpu.UUID) (running []jobs.Job) {
	r.Jobs.Look(func(v *jobs.View) { running = v.On(u) })
	return running
}

// setJobs sets the jobs and the sum of their budgets.
func (j *GPU) setJobs(running []jobs.Job) {
	for _, one := range running {
		j.Jobs = append(j.Jobs, Job{Job: one})
		j.Budgeted += one.Budget
	}
}

// judgeShared leaves out who closed it.
func (r *Reader) judgeShared(n *Node, g *plan.GPU, now time.Time) GPU {
	j := GPU{Health: n.Health.Shared(g, now)}
	var running []jobs.Job
	var full bool
	var unknown, leaves string
	r.Jobs.Look(func(v *jobs.View) {
		running = v.On(g.UUID)
		full, unknown, leaves = v.IsFull(g.UUID), v.Unknown(), v.Leaves(g.UUID)
	})
	j.setJobs(running)
	j.Reason = cmp.Or(j.Health.Reason(now, n.Config.Health.MaxAge()), unknown, leaves)
	daemon := j.Health.Checked.Process()
	switch {
	case j.Reason != "":
	case full:
		j.Reason = "the startd wanted more of it than the plan has: restart the startd when its jobs are done " +
			"(condor_restart -peaceful -daemon STARTD)"
	case r.Startds.Said().Draining[g.UUID]:
		j.Reason = startd.Restarts
	case g.Tenancy.Policy == config.TenancyCommon && !n.Accounts[g.Tenancy.User].Known:
		j.Reason = fmt.Sprintf("its tenancy is common:%s, and there is no such account: create it or change tenancy",
			g.Tenancy.User)
	case g.Partitioned() && len(running) < g.Shares && !r.Partitions.HasFree(g.UUID, daemon):
		j.Reason = admission.NoPartition
	case r.Verifier.Runs(g.UUID):
		j.Reason = admission.BeingVerified
	case g.MPS() && g.Tenancy.Policy != config.TenancyMultiUser:
		j.Reason = r.Access.LeftBehind(g.UUID, r.Own, j.Health.Checked)
	}
	if key := g.Tenancy.Key(); key != "" {
		tenant, why := jobs.TenantOf(running, key)
		j.Tenant, j.Reason = tenant, cmp.Or(j.Reason, why)
	}
	return j
}

// enforced is what enforces a job's budget on a GPU now.
func (r *Reader) enforced(g *GPU, j jobs.Job, now time.Time) string {
	if !g.Shared() {
		return j.EnforcedBy
	}
	return r.Limits.EnforcedBy(j, admission.Enforcement(g.LargestRequest, j.Budget, g.Health), now)
}

// weaker orders what enforces budgets.
func weaker(a, b string) bool {
	order := map[string]int{
		jobs.EnforcedByNone: 0, jobs.EnforcedByWatch: 1, jobs.EnforcedByDaemon: 2, jobs.EnforcedByCgroup: 3,
		jobs.EnforcedByWhole: 4, jobs.EnforcedByMIG: 4,
	}
	return order[a] < order[b]
}
