package agent

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/agent/admission"
	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/closures"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/metrics"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/sampling"
	"github.com/gpuslot/gpuslot/agent/startd"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
	"github.com/gpuslot/gpuslot/mps"
)

// judgement is one shared GPU or MIG device at one moment.
type judgement struct {
	health  admission.Health
	running []jobs.Job
	// closures are those of its owners, and the agent's own. Reason is all of
	// them in words; empty if it takes jobs.
	closures closures.List
	reason   string
	tenant   string
	used     gpu.MiB
}

// judge looks at a GPU or MIG device now. It makes the cheap check, and never asks
// the control daemon.
func (a *Agent) judge(v *view, g *plan.GPU, now time.Time) judgement {
	var j judgement
	switch {
	case g.Observed():
		return judgement{running: a.jobs.On(g.UUID)} // nothing closes it
	case g.Alone():
		j = judgement{reason: a.gpus(v).Alone(g, now), running: a.jobs.On(g.UUID)}
		for _, r := range j.running {
			j.used += r.Budget
		}
	case g.Shared():
		j = a.judgeShared(v, g, now)
	default:
		j = judgement{reason: a.gpus(v).Whole(g, now), running: a.jobs.On(g.UUID)}
	}
	j.closures = a.closedBy(g)
	if side := a.elastic.Side(g.UUID); side != "" {
		j.closures = append(j.closures, closures.Closure{GPU: g.UUID, Owner: ownerElastic, Reason: side, Since: now})
	}
	if j.reason == "" {
		j.reason = a.admission.Closed(now)
	}
	seen := j.reason
	if a.quiescer.Quiet {
		seen = "" // what it does not look at it cannot miss
	}
	j.reason = j.closures.ReasonAnd(seen)
	if seen != "" {
		j.closures = append(j.closures, closures.Closure{GPU: g.UUID, Owner: closures.OwnerAgent, Reason: seen, Since: a.troubles.Verdict(g.Physical(), now).Since})
	}
	return j
}

// judgeShared leaves out who holds it closed.
func (a *Agent) judgeShared(v *view, g *plan.GPU, now time.Time) judgement {
	j := judgement{health: a.gpus(v).Shared(g, now)}
	var full bool
	var unknown, leaves string
	a.jobs.Look(func(running *jobs.View) {
		j.running = running.On(g.UUID)
		full, unknown, leaves = running.IsFull(g.UUID), running.Unknown(), running.Leaves(g.UUID)
	})
	for _, r := range j.running {
		j.used += r.Budget
	}
	j.reason = j.health.Reason(now, v.config.Health.MaxAge)
	if j.reason == "" {
		j.reason = unknown
	}
	if j.reason == "" {
		j.reason = leaves
	}
	if j.reason == "" && full {
		j.reason = "the startd wanted more of it than the plan has: restart the startd when its jobs are done (condor_restart -peaceful -daemon STARTD)"
	}
	if j.reason == "" && a.startds.Said().Draining[g.UUID] {
		j.reason = startd.Restarts
	}
	if j.reason == "" && g.Tenancy.Policy == config.TenancyCommon && !v.accounts[g.Tenancy.User].Known {
		j.reason = fmt.Sprintf("its tenancy is common:%s, and there is no such account: create it or change tenancy", g.Tenancy.User)
	}
	if j.reason == "" && g.Partitioned() && len(j.running) < g.Shares && !a.partitions.HasFree(g.UUID, j.health.Proof.Process()) {
		j.reason = admission.NoPartition
	}
	if j.reason == "" && a.verifier.Runs(g.UUID) {
		j.reason = admission.BeingVerified
	}
	if j.reason == "" && g.Tenancy.Policy != config.TenancyMultiUser {
		j.reason = a.access.LeftBehind(g.UUID, a.own, j.health.Proof)
	}
	if key := g.Tenancy.Key(); key != "" {
		tenant, why := jobs.TenantOf(j.running, key)
		j.tenant = tenant
		if j.reason == "" {
			j.reason = why
		}
	}
	return j
}

// acceptances answers the startd's monitor: the GPUs and MIG devices of the plan.
func (a *Agent) acceptances() []api.Acceptance {
	a.sweepNow() // a tenant must not outlive its last job here
	v, now := a.view.Load(), time.Now()
	out, judged := []api.Acceptance{}, map[gpu.UUID]judgement{}
	if v.plan.Observe {
		return out // what a startd of an earlier mode knows grows old, and closes its GPUs
	}
	pending := a.startds.Said().Pending()
	if !v.planned {
		// The startd may run with the plan of the agent before this one.
		for _, w := range a.recalled.ControlDaemons() {
			out = append(out, api.Acceptance{UUID: string(w.GPU), Reason: v.noPlan(), Time: now})
		}
	}
	for i := range v.plan.GPUs {
		g := &v.plan.GPUs[i]
		j := a.judge(v, g, now)
		judged[g.UUID] = j
		below := v.below[g.UUID]
		said := api.Acceptance{UUID: string(g.UUID), Whole: !g.Shared() && !g.Alone() && !g.Elastic,
			Accept: j.reason == "", Reason: j.reason, ClosedBy: j.closures.Owners(), Tenant: j.tenant,
			AboveMiB: int64(below.Pool), AboveCPUs: below.Resources.CPUs, AboveMemoryMiB: int64(below.Resources.Memory),
			Pending: pending, Time: now}
		if last := a.verifier.Last(g.UUID); last != nil {
			said.Verified = &last.OK
		}
		unlisted := a.sampling.Unlisted(a.samplingNode(v), g.UUID, now)
		said.UnlistedMiB, said.TakenMiB = int64(unlisted.VRAM), int64(unlisted.Taken)
		out = append(out, said)
	}
	if u, least := a.reserve(judged, &v.plan, now); u != "" {
		for i := range out {
			if out[i].UUID == string(u) {
				out[i].LeastMiB = int64(least)
			}
		}
	}
	out = a.said.left(out, now)
	a.said.date(out)
	return out
}

// status is everything the agent knows, for "gpuslot status". Where that is bad
// news of the startd, somebody looks who may just have restarted it, and the
// next answer shall know.
func (a *Agent) status() *api.Status {
	v, now := a.view.Load(), time.Now()
	if said := a.startds.Said(); said.Err != nil || len(said.Changes) > 0 {
		a.startds.Entered()
	}
	s := &api.Status{
		Version: a.version, Host: hostName(v), Driver: v.plan.Driver, HTCondor: v.condorText(),
		ConfigFile: a.configFile, ConfigError: v.configError, PlanApplied: v.applied,
		Startds: a.startds.Said().Startds, Changes: a.startds.Said().Changes,
		Node: a.nodePhase(), Observe: v.plan.Observe,
		MPS: v.can.Status(), Warnings: a.warnings(v),
		Walls:  append(v.can.Missing(v.plan), v.plan.UnheldThreads()...),
		Errors: a.errors(v, now), GPUs: []api.StatusGPU{}, Repartition: v.repartition,
	}
	if s.Observe {
		s.MPS = nil // nobody asked
	}
	if a.closures.Node().Phase == closures.Reverted {
		s.PlanApplied = time.Time{} // it was withdrawn
	}
	for _, u := range v.plan.Absent {
		s.Absent = append(s.Absent, string(u))
	}
	silent, _ := a.silence(v, now)
	for i := range v.plan.GPUs {
		g := a.statusGPU(v, &v.plan.GPUs[i], now)
		if silent > 0 && g.Accept {
			g.Accept, g.Reason = false, silentSays(silent)
		}
		s.GPUs = append(s.GPUs, g)
	}
	return s
}

// nodePhase is nil for a node that serves.
func (a *Agent) nodePhase() *api.NodeStatus {
	if a.closures.Node().Phase == closures.Serving {
		return nil
	}
	s := a.quiescer.Status()
	return &s
}

// hostName is the plan's, or the kernel's where there is no plan yet.
func hostName(v *view) string {
	if v.planned {
		return v.plan.Host.Name
	}
	name, _ := os.Hostname() // empty is as good
	return name
}

func (a *Agent) statusGPU(v *view, g *plan.GPU, now time.Time) api.StatusGPU {
	s := api.StatusGPU{
		UUID: string(g.UUID), Index: g.Index, Name: g.Model(), Mode: string(g.Mode), Shares: g.Shares,
		PoolMiB: int64(g.Pool), Accept: true, Wall: jobs.WallWhole, Place: g.Place,
	}
	if g.Place != "" {
		s.Device = string(g.Device)
	}
	j, guard := a.judge(v, g, now), v.daemons[g.UUID]
	unlisted := a.sampling.Unlisted(a.samplingNode(v), g.UUID, now)
	s.UnlistedMiB, s.Unlisted = int64(unlisted.VRAM), unlisted.String()
	s.Accept, s.Reason, s.Holds = j.reason == "", j.reason, statusClosures(j.closures)
	if g.Alone() {
		s.Wall = jobs.WallMIG
	}
	if g.Observed() {
		s.Wall = ""
	}
	if g.Elastic && !g.Shared() {
		// The other side's jobs are kept away, its own may come.
		mine := slices.DeleteFunc(slices.Clone(j.closures), func(c closures.Closure) bool { return c.Owner == ownerElastic })
		s.Accept, s.Reason, s.Holds = len(mine) == 0, mine.Reason(), statusClosures(mine)
	}
	if !g.Shared() {
		return a.statusAlone(j, g, s)
	}
	s.Tenant, s.UsedMiB = j.tenant, int64(j.used)
	s.ComputeMode, s.Wall = v.modes[g.UUID], admission.Enforcement(g.LargestRequest, g.DefaultRequest, j.health)
	if p := guard.Proof; !p.At.IsZero() {
		s.ProvedAt, s.LimitMiB, s.LimitProof = p.At, int64(guard.Wanted.Limit), guard.LimitProof()
		if j.health.Check == nil {
			s.DaemonPID = p.PID
		}
		s.Server, s.Servers = guard.ServersText(), statusServers(guard.Proof.States)
	}
	s.Verified = a.verifier.Last(g.UUID)
	uses := a.sampling.Uses(g.UUID)
	s.UseMiB, s.Strangers, s.SM, s.Watts = uses.MiB, uses.Strangers, uses.SM, uses.Watts
	for _, r := range j.running {
		r.Wall = a.limits.Wall(r, admission.Enforcement(g.LargestRequest, r.Budget, j.health), now)
		if len(s.Jobs) == 0 || weaker(r.Wall, s.Wall) {
			s.Wall = r.Wall
		}
		s.Jobs = append(s.Jobs, api.StatusJob{
			Slot: r.Starter.Slot, ID: r.ID, Account: r.AccountName(), BudgetMiB: int64(r.Budget),
			Wall: r.Wall, Since: r.Since, Confirmed: r.Confirmed, Hold: a.jobs.HoldOf(r.Starter).Reason,
			SMs: a.partitions.SMs(r.Starter, g.UUID),
		})
		uses.Of(&s.Jobs[len(s.Jobs)-1], r.Starter)
	}
	return s
}

// ownerElastic closes GPUs that serve the other kind of jobs.
const ownerElastic = "elastic"

// statusAlone is a GPU or MIG device that jobs have alone.
func (a *Agent) statusAlone(j judgement, g *plan.GPU, s api.StatusGPU) api.StatusGPU {
	uses := a.sampling.Uses(g.UUID)
	s.UseMiB, s.SM, s.Watts = uses.MiB, uses.SM, uses.Watts
	for _, r := range j.running {
		s.Jobs = append(s.Jobs, api.StatusJob{
			Slot: r.Starter.Slot, ID: r.ID, Account: r.AccountName(), BudgetMiB: int64(g.Memory),
			Wall: r.Wall, Since: r.Since, Confirmed: r.Confirmed, Hold: a.jobs.HoldOf(r.Starter).Reason,
		})
		uses.Of(&s.Jobs[len(s.Jobs)-1], r.Starter)
		s.UsedMiB += int64(g.Memory)
	}
	return s
}

func statusServers(states []mps.Server) []api.StatusServer {
	var out []api.StatusServer
	for _, s := range states {
		uid := s.UID
		out = append(out, api.StatusServer{PID: s.PID, UID: &uid, Status: string(s.Status), Clients: len(s.Clients)})
	}
	return out
}

// startdStarts is what to do about a startd that does not answer.
const startdStarts = "one that starts needs some seconds, else see systemctl status condor"

// warnings are complete sentences, the gravest first.
func (a *Agent) warnings(v *view) []string {
	var out []string
	said := a.startds.Said()
	switch {
	case v.closed != "" && v.plan.Observe:
		out = append(out, "The GPUs are not observed now: "+v.closed)
	case v.closed != "":
		out = append(out, "No GPU takes jobs: "+v.closed)
	}
	out = append(out, a.observedFaults(v, time.Now())...)
	switch {
	case said.Err != nil && v.plan.Observe:
		out = append(out, fmt.Sprintf("The startd does not tell of its slots, so new jobs are not known; %s: %v.", startdStarts, said.Err))
	case said.Err != nil:
		out = append(out, fmt.Sprintf("The startd does not tell of its slots, so budgets rest on what the hooks told; %s: %v.", startdStarts, said.Err))
	}
	for _, text := range said.Unreadable {
		out = append(out, "What a slot has is not known: "+text+"; see condor_status -direct \"\" -json.")
	}
	for _, c := range said.Changes {
		out = append(out, c.Says)
	}
	for _, o := range v.overridden {
		if o.Breaks == condor.BreaksNothing {
			out = append(out, o.Says+".")
		}
	}
	if a.own != 0 {
		out = append(out, "gpuslotd does not run as root: it serves its own account only, and all its jobs are one trust domain.")
	}
	if err := a.queue.Err(); err != nil {
		out = append(out, fmt.Sprintf("What waits in the pool is not known, so nothing on this node follows it, and elastic GPUs change sides every elastic.stay: %v.", err))
	}
	if why := a.metricsDown.Load(); why != nil {
		out = append(out, fmt.Sprintf("Metrics are not served, and nothing alerts on this node: %s: see which process has the port (ss -lptn); gpuslotd tries again.", *why))
	}
	out = append(out, a.limits.Warnings()...)
	out = append(out, a.nodes.Warnings()...)
	out = append(out, v.problems...)
	return append(out, v.plan.Warnings...)
}

// snapshot is the agent's state for Prometheus.
func (a *Agent) snapshot() metrics.Snapshot {
	v, now := a.view.Load(), time.Now()
	s := metrics.Snapshot{
		Absent: v.plan.Absent, Planned: v.planned, ConfigRead: v.configRead, ConfigOK: v.configOK,
		Rounds: v.rounds, RoundOK: v.roundOK, RoundTook: v.took, Applied: v.applied,
	}
	s.Capabilities = v.can.Known()
	s.Driver, s.CUDA, s.LayoutMatches = v.plan.Driver, v.plan.CUDA, v.laidOut
	if ok, at, asked := a.feedback.Worst(); asked {
		s.Feedback = &metrics.Feedback{OK: ok, At: at}
	}
	if a.closures.Node().Phase == closures.Reverted {
		s.Feedback = nil // its programs went with the configuration
	}
	if said := a.startds.Said(); said.Err == nil && !said.At.IsZero() {
		older := said.Older()
		s.OlderLayout = &older
	}
	silent, known := a.silence(v, now)
	if known {
		asks := silent == 0
		s.StartdAsks = &asks
	}
	for i := range v.plan.GPUs {
		g := &v.plan.GPUs[i]
		m := metrics.GPU{UUID: g.UUID, Index: g.Index, Name: g.Model(), PCI: g.PCI, Mode: string(g.Mode),
			Memory: g.Memory, Shared: g.Shared()}
		j := a.judge(v, g, now)
		m.ClosedBy = j.closures.Owners()
		if m.Shared {
			guard := v.daemons[g.UUID]
			m.Accept, m.Shares, m.Used, m.Pool, m.Budgeted = j.reason == "" && silent == 0, g.Shares, len(j.running), g.Pool, j.used
			up := guard.Err == nil && guard.Proof.PID != 0 && j.health.Check == nil
			if !a.closures.Node().Quiet() && (g.Place == "" || g.Device != "") {
				m.DaemonUp = &up
			}
			if m.Device = sampling.Device(g); up {
				m.Clients, m.ThreadRatio = clientsOf(guard.Proof), threadRatio(guard.Proof)
			}
			m.ProvedAt, m.Restarts = guard.Proof.At, guard.Restarts
			m.Walls = map[string]int{}
			for _, r := range j.running {
				m.Walls[a.limits.Wall(r, admission.Enforcement(g.LargestRequest, r.Budget, j.health), now)]++
			}
			m.Watched = a.sampling.Sees(a.samplingNode(v), g, now)
			if last := a.verifier.Last(g.UUID); last != nil {
				m.Verified, m.VerifiedAt = &last.OK, last.At
			}
		}
		s.GPUs = append(s.GPUs, m)
	}
	for _, r := range v.repartition {
		m := metrics.Repartition{Setting: r.Setting, Told: r.Told, Waiting: map[string]int{},
			Proposed: r.Act == string(mig.Propose), Reserved: len(r.Reserved)}
		for _, u := range r.Unserved {
			m.Unserved += u.Jobs
		}
		for _, d := range r.Demand {
			m.Waiting[d.Profile] = d.Jobs
		}
		s.Repartition = append(s.Repartition, m)
	}
	s.Faults, s.Usage = faultsOf(v.plan.GPUs, a.troubles.Counts()), a.usageNow(v, now)
	return s
}

// weaker orders walls.
func weaker(a, b string) bool {
	order := map[string]int{
		jobs.WallNone: 0, jobs.WallWatch: 1, jobs.WallDaemon: 2, jobs.WallCgroup: 3, jobs.WallWhole: 4, jobs.WallMIG: 4,
	}
	return order[a] < order[b]
}
