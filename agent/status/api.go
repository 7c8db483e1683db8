package status

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/agent/admission"
	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/closures"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// Status is the whole snapshot for "gpuslot status".
func (s *Snapshot) Status() *api.Status {
	out := &api.Status{
		Version: s.Version, Host: s.Host, Driver: s.Plan.Driver, HTCondor: s.HTCondor,
		ConfigFile: s.ConfigFile, ConfigError: s.ConfigError, PlanApplied: s.Applied,
		Startds: s.Startds.Startds, Changes: s.Startds.Changes,
		Node: s.Service, Observe: s.Plan.Observe,
		MPS: s.Can.Status(), Warnings: s.warnings(),
		MissingEnforcement: append(s.Can.Missing(s.Plan), s.Plan.UnheldThreads()...),
		Errors:             s.errors(), GPUs: []api.StatusGPU{}, Repartition: s.Repartition,
		JobTable: []api.StatusEntry{}, UnknownJob: s.Unknown,
	}
	if out.Observe {
		out.MPS = nil // the control daemon was not tried
	}
	if s.Phase.Phase == closures.Reverted {
		out.PlanApplied = time.Time{} // it was withdrawn
	}
	for _, j := range s.Running {
		out.JobTable = append(out.JobTable, api.StatusEntry{
			Slot: j.Starter.Slot, GPU: string(j.GPU), Device: string(j.Device),
		})
	}
	for _, u := range s.Plan.Absent {
		out.Absent = append(out.Absent, string(u))
	}
	for i := range s.GPUs {
		g := s.GPUs[i].status()
		if s.Silent > 0 && g.Accept {
			g.Accept, g.Reason = false, fmt.Sprintf("the startd has not asked for %s whether it takes jobs, and START lets "+
				"none in without an answer", s.Silent.Round(time.Second))
		}
		out.GPUs = append(out.GPUs, g)
	}
	return out
}

func (g *GPU) status() api.StatusGPU {
	s := api.StatusGPU{
		UUID: string(g.UUID), Index: g.Index, Name: g.Model(), Mode: string(g.Mode), Shares: g.Shares,
		PoolMiB: int64(g.Pool), Place: g.Place, Accept: g.Reason == "", Reason: g.Reason, Holds: holds(g.Closures),
		UseMiB: g.Uses.MiB, SM: g.Uses.SM, Watts: g.Uses.Watts, EnforcedBy: g.enforced(),
		UnlistedMiB: int64(g.Unlisted.VRAM), Unlisted: g.Unlisted.String(),
	}
	if g.Place != "" {
		s.Device = string(g.Device)
	}
	if g.Elastic && !g.Shared() {
		// The other side's jobs are kept away, its own may come.
		mine := slices.DeleteFunc(slices.Clone(g.Closures), func(c closures.Closure) bool { return c.Owner == OwnerElastic })
		s.Accept, s.Reason, s.Holds = len(mine) == 0, mine.Reason(), holds(mine)
	}
	for _, j := range g.Jobs {
		one := api.StatusJob{
			Slot: j.Starter.Slot, ID: j.ID, Account: j.AccountName(), BudgetMiB: int64(j.Budget),
			EnforcedBy: j.Enforced, Since: j.Since, Confirmed: j.Confirmed, Hold: j.Hold,
		}
		if g.Shared() {
			one.SMs = j.SMs
		} else {
			one.BudgetMiB = int64(g.Memory)
		}
		g.Uses.Of(&one, j.Starter)
		s.UsedMiB += one.BudgetMiB
		s.Jobs = append(s.Jobs, one)
	}
	if !g.Shared() {
		return s
	}
	s.Tenant, s.ComputeMode, s.Strangers, s.Verified = g.Tenant, g.InForce, g.Uses.Strangers, g.Verified
	if !g.MPS() {
		s.Strangers = slices.DeleteFunc(slices.Clone(s.Strangers), func(p api.StatusProcess) bool { return p.Slot != "" })
	}
	if p := g.Daemon.Checked; !p.At.IsZero() {
		s.ProvedAt, s.LimitMiB, s.LimitReadBack = p.At, int64(g.Daemon.Wanted.Limit), g.Daemon.LimitReadBack()
		if g.Health.Check == nil {
			s.DaemonPID = p.PID
		}
		s.Server, s.Servers = g.Daemon.ServersText(), servers(p.States)
	}
	return s
}

// enforced is what enforces the weakest of the budgets, or would without a job.
func (g *GPU) enforced() string {
	switch {
	case g.Observed():
		return ""
	case g.Alone():
		return jobs.EnforcedByMIG
	case !g.Shared():
		return jobs.EnforcedByWhole
	case len(g.Jobs) == 0 && g.NeedsLimits():
		return jobs.EnforcedByCgroup
	case len(g.Jobs) == 0:
		return admission.Enforcement(g.LargestRequest, g.DefaultRequest, g.Health)
	}
	weakest := g.Jobs[0].Enforced
	for _, j := range g.Jobs {
		if weaker(j.Enforced, weakest) {
			weakest = j.Enforced
		}
	}
	return weakest
}

// holds are closures as operators see them.
func holds(l closures.List) []api.GPUHold {
	var out []api.GPUHold
	for _, c := range l {
		out = append(out, api.GPUHold{Owner: c.Owner, Reason: c.Reason, Since: c.Since})
	}
	return out
}

func servers(states []mps.Server) []api.StatusServer {
	var out []api.StatusServer
	for _, s := range states {
		uid := s.UID
		out = append(out, api.StatusServer{PID: s.PID, UID: &uid, Status: string(s.Status), Clients: len(s.Clients)})
	}
	return out
}

// errors keep jobs from the GPUs, or let them past gpuslot; complete sentences.
func (s *Snapshot) errors() []string {
	var out []string
	if s.Silent > 0 {
		out = append(out, fmt.Sprintf("No GPU takes jobs: the startd has not asked for %s which ones do.",
			s.Silent.Round(time.Second)))
	}
	known := false
	for _, o := range s.Overridden {
		if o.Breaks != condor.BreaksNothing {
			out, known = append(out, o.Says+"."), true
		}
	}
	if s.Silent > 0 && !known {
		out[0] += " See STARTD_CRON_GPUSLOT in the StartLog, and condor_config_val -verbose STARTD_CRON_JOBLIST."
	}
	return out
}

// startdStarts is what to do about a startd that does not answer.
const startdStarts = "one that starts needs some seconds, else see systemctl status condor"

// warnings are complete sentences, the gravest first.
func (s *Snapshot) warnings() []string {
	var out []string
	switch {
	case s.Closed != "" && s.Plan.Observe:
		out = append(out, "The GPUs are not observed now: "+s.Closed)
	case s.Closed != "":
		out = append(out, "No GPU takes jobs: "+s.Closed)
	}
	out = append(out, s.observedFaults()...)
	switch err := s.Startds.Err; {
	case err != nil && s.Plan.Observe:
		out = append(out, fmt.Sprintf("The startd does not tell of its slots, so new jobs are not known; %s: %v.",
			startdStarts, err))
	case err != nil:
		out = append(out, fmt.Sprintf("The startd does not tell of its slots, so budgets rest on what the hooks told; "+
			"%s: %v.", startdStarts, err))
	}
	for _, text := range s.Startds.Unreadable {
		out = append(out, "What a slot has is not known: "+text+"; see condor_status -direct \"\" -json.")
	}
	for _, c := range s.Startds.Changes {
		out = append(out, c.Says)
	}
	for _, o := range s.Overridden {
		if o.Breaks == condor.BreaksNothing {
			out = append(out, o.Says+".")
		}
	}
	if s.NotRoot {
		out = append(out, "gpuslotd does not run as root: it serves its own account only, and all its jobs are one "+
			"trust domain.")
	}
	out = append(out, s.Warnings...)
	out = append(out, s.Problems...)
	return append(out, s.Plan.Warnings...)
}

// observedFaults are faults of observed GPUs, which gpuslot does not close.
func (s *Snapshot) observedFaults() []string {
	var out []string
	said := map[gpu.UUID]bool{}
	for _, g := range s.GPUs {
		if u := g.Physical(); g.Observed() && g.Fault.Closed() && !said[u] {
			said[u] = true
			out = append(out, fmt.Sprintf("GPU %d (%s): %s. It is observed, so jobs go on coming: see to it (condor_drain).",
				g.Index, u, g.Fault.Reason))
		}
	}
	return out
}
