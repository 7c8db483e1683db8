package admission

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
)

// State is everything that the admission of one job rests on.
type State struct {
	Plan *plan.Plan
	// Pipes holds one pipe directory per GPU UUID.
	Pipes string
	// Health is that of the shared GPU which the job names; see Target.
	Health Health
	// Now is the time of the decision, MaxAge the oldest health check it may rest on.
	Now    time.Time
	MaxAge time.Duration
	// Running are the slots that hold a part of the GPUs which the job names.
	Running []jobs.Job
	// Held is what is reserved for the caller's own starter, on any GPU.
	Held []jobs.Job
	// Common is the account of tenancy "common:<user>".
	Common starter.Account
	// Stranger names a process of another account that is still an MPS client here; else empty.
	Stranger string
	// Partition is the static SM partition that the job would get, where there
	// are such; empty if none is free.
	Partition string
}

// Decide decides whether a job may start, and with what. Exactly one of grant
// and refusal is not nil. It is pure: the job is entered and the pipe directory opened
// afterwards.
func Decide(s State, c starter.Caller, job *api.Job) (*api.Grant, *api.Refusal) {
	g, whole, refusal := target(s.Plan, job)
	if refusal == nil {
		refusal = negative(job)
	}
	switch {
	case refusal != nil:
		return nil, refusal
	case g == nil:
		if r := s.claimWhole(whole); r != nil {
			return nil, r
		}
		if r := s.alone(c, whole); r != nil {
			return nil, r
		}
		return s.grantWhole(whole), nil
	}
	if g.NeedsLimits() && job.Docker {
		return nil, api.Refuse(api.CodeBadRequest, fmt.Sprintf("%s limits the VRAM of a job's own cgroup, and a docker "+
			"universe job runs in none of HTCondor's: use container_image without universe = docker", g.UUID))
	}
	budget, refusal := s.budget(g, job)
	if refusal != nil {
		return nil, refusal
	}
	if r := s.claim(g, budget); r != nil {
		return nil, r
	}
	if why := s.Health.Reason(s.Now, s.MaxAge); why != "" {
		return nil, api.Refuse(api.CodeClosed, fmt.Sprintf("%s is closed: %s", g.UUID, why))
	}
	if r := s.tenancy(g, c, job); r != nil {
		return nil, r
	}
	if s.Stranger != "" {
		return nil, api.Refuse(api.CodeOtherTenant, fmt.Sprintf("%s is not free: %s", g.UUID, s.Stranger))
	}
	if r := s.room(g, c, budget); r != nil {
		return nil, r
	}
	threads, refusal := threadsOf(g, budget, job)
	if refusal != nil {
		return nil, refusal
	}
	if g.Partitioned() && s.Partition == "" {
		return nil, api.Refuse(api.CodeClosed, fmt.Sprintf("%s is closed: %s", g.UUID, NoPartition))
	}
	return s.grantShared(g, budget, threads), nil
}

// negative refuses a slot of less than nothing, which START does not make: the GPU's
// partitionable slot has gained VRAM by it.
func negative(job *api.Job) *api.Refusal {
	for _, n := range []*int64{job.RequestVRAM, job.ProvisionedVRAM} {
		if n != nil && *n < 0 {
			return api.Refuse(api.CodeBadRequest, fmt.Sprintf(
				"request_vram = %d is less than nothing: use as many MiB as the job needs", *n))
		}
	}
	return nil
}

// budget is the VRAM that the slot was provisioned with, never what the job
// asked for: a reused claim can hold more or less (seen on 25.14.1).
func (s State) budget(g *plan.GPU, job *api.Job) (gpu.MiB, *api.Refusal) {
	if job.ProvisionedVRAM == nil || *job.ProvisionedVRAM <= 0 {
		if s.Plan.RequestVRAM.WithoutRequest == config.WithoutRequestShare {
			return g.DefaultRequest, nil
		}
		return 0, api.Refuse(api.CodeNoRequest, fmt.Sprintf("the job asks for a GPU but not for VRAM, and GPUs are "+
			"shared here: add the line request_vram = %d (MiB, as much as the job needs) to the submit "+
			"file", int64(g.DefaultRequest)))
	}
	budget := gpu.MiB(*job.ProvisionedVRAM)
	if r := unfit(job, budget); r != nil {
		return 0, r
	}
	if budget > g.LargestRequest {
		return 0, api.Refuse(api.CodeTooLarge, fmt.Sprintf("%s are more than one job may have on this %s: use "+
			"request_vram = %d or less", budget, g.Name, int64(g.LargestRequest)))
	}
	return budget, nil
}

// inMiBFrom is the smallest request that is believed to be meant in MiB: no
// CUDA context fits into less, and no GPU has so many GiB to share.
const inMiBFrom = 64

// unfit refuses requests that the access point's configuration would have
// rounded up or refused, where it is not there.
func unfit(job *api.Job, budget gpu.MiB) *api.Refusal {
	switch {
	case budget < inMiBFrom:
		return api.Refuse(api.CodeBadRequest, fmt.Sprintf("request_vram is in MiB; did you mean %d?", int64(budget)*1024))
	case job.RequestVRAM != nil && gpu.MiB(*job.RequestVRAM) > budget:
		// The startd cuts a fraction off, the hook rounds it up.
		return api.Refuse(api.CodeBadRequest, fmt.Sprintf("request_vram must be a whole number of MiB: use "+
			"request_vram = %d", *job.RequestVRAM))
	}
	return nil
}

// claim holds a caller to what is reserved for its starter already: the hook
// came first, and the startd may have confirmed it.
func (s State) claim(g *plan.GPU, budget gpu.MiB) *api.Refusal {
	for _, r := range s.Held {
		if r.GPU != g.UUID || r.Budget != budget {
			return api.Refuse(api.CodeNotPlanned, fmt.Sprintf("%s holds %s of %s, but the request says %s of %s: the "+
				"slot's ads were rewritten; submit the job again without files named .job.ad or "+
				".machine.ad", r.Starter.Slot, r.Budget, r.GPU, budget, g.UUID))
		}
	}
	return nil
}

// claimWhole does so where GPUs are not shared.
func (s State) claimWhole(whole []gpu.UUID) *api.Refusal {
	for _, u := range whole {
		if len(s.Held) > 0 && !slices.ContainsFunc(s.Held, func(r jobs.Job) bool { return r.GPU == u }) {
			return api.Refuse(api.CodeNotPlanned, fmt.Sprintf("%s holds %s, but the request says %s: the slot's ads were "+
				"rewritten; submit the job again without files named .job.ad or "+
				".machine.ad", s.Held[0].Starter.Slot, s.Held[0].GPU, u))
		}
	}
	return nil
}

// alone: a whole GPU may still serve the jobs of its time as a shared one.
func (s State) alone(c starter.Caller, whole []gpu.UUID) *api.Refusal {
	for _, r := range s.Running {
		if !r.Starter.Is(c.Starter) && slices.Contains(whole, r.GPU) {
			return api.Refuse(api.CodeClosed, fmt.Sprintf(
				"%s is still held by %s in %s: the job waits in the queue until that ends",
				r.GPU, r.AccountName(), r.Starter.Slot))
		}
	}
	return nil
}

// room is defence in depth: HTCondor keeps these sums itself, unless its
// layout is older than the plan.
func (s State) room(g *plan.GPU, c starter.Caller, budget gpu.MiB) *api.Refusal {
	used, jobs := budget, 1
	for _, r := range s.Running {
		if !r.Starter.Is(c.Starter) {
			used += r.Budget
			jobs++
		}
	}
	switch fits := used <= g.Pool && jobs <= g.Shares; {
	case fits && used <= g.Pool-s.Health.Unlisted:
		return nil
	case fits:
		return api.Refuse(api.CodeClosed, fmt.Sprintf("%s has no room for %s: %s of its VRAM are in use that NVML lists "+
			"with no process; the job waits in the queue", g.UUID, budget, s.Health.Unlisted))
	}
	return api.Refuse(api.CodeNotPlanned, fmt.Sprintf("%s is full: with this job it had %d of %d shares and %d of "+
		"%s in use, so the startd runs another layout than gpuslot's plan: its administrator restarts it with: "+
		"condor_restart -peaceful -daemon STARTD",
		g.UUID, jobs, g.Shares, int64(used), g.Pool))
}

// NoPartition closes a GPU with shares left.
const NoPartition = "none of its static SM partitions is free: " +
	"jobs hold them that the startd does not tell of; look at gpuslot status"
