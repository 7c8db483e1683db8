// Package rules judges what running jobs do on shared GPUs by the site's rules: VRAM within the
// budget, MPS clients within the limit, no GPU but the slot's, no process beside the control
// daemon or outside the job's cgroup. It is pure, and it ends nothing.
//
// Start at Sampled, which puts a sample to the jobs in the job table, and Breaches.Judge, which
// finds the jobs that break a rule for longer than they may.
package rules

import (
	"fmt"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
)

// Job is a job on a shared GPU with what one sample shows of it.
type Job struct {
	jobs.Job
	// Memory is that of all its processes on the GPU. Where one of them is not known its value is
	// that of the others: a job that uses more than its budget by that breaks the rule, too.
	Memory gpu.Measured[gpu.Bytes]
	// Kept is the part of it that NVML lists with no process, because one of Keepers has /dev/nvidia-uvm open for
	// another that ended. Where none is known, the job's account answers for it.
	Kept    gpu.Bytes
	Keepers []int
	// PIDs are those processes; Beside are the ones among them that are no
	// clients of the control daemon, where the GPU has one.
	PIDs, Beside []int
	// Blind are those of Beside that are known not to see Pipes, the pipe directory:
	// they are in a container without it. See Finding.WithBlind.
	Blind []int
	Pipes string
	// Elsewhere are processes of the job on a GPU that its slot does not hold.
	Elsewhere []Stray
	// Outside are processes of the job that left the cgroups that the driver limits.
	Outside []int
	// Unbound: the job switched off the controller of the driver's limit.
	Unbound bool
	// Known: the GPU's processes could be listed.
	Known bool
	// Unclear: a process on its GPU may be the job's, or one of its own may have left its cgroup. What it is seen to
	// break counts. That it is not seen to break the other rules about its processes counts neither for nor against it.
	// UnclearElsewhere is the same of GPUs that the job does not have, and of the rule about those.
	Unclear, UnclearElsewhere bool
	// MostClients is how many MPS clients the job may have, Largest the largest
	// budget on its GPU, Quantum the step of budgets.
	MostClients      int
	Largest, Quantum gpu.MiB
	// ToBeHeld: HTCondor is to hold it. Nothing that it breaks now has a grace.
	ToBeHeld bool
}

// Stray is a process on a GPU that is not its job's.
type Stray struct {
	PID int
	GPU gpu.UUID
}

// Rules are the site's on what a running job may do.
type Rules struct {
	Budgets      config.Budgets
	Unattached   config.Enforce
	AttachWithin time.Duration
	// Slack is half the time between two samples.
	Slack time.Duration
}

// Finding is a rule that a job has broken for longer than it may.
type Finding struct {
	Job
	Code int
	// Reason is for the user: what, how much, what to ask for.
	Reason  string
	Enforce config.Enforce
	// First: no sample before has found it in this breach.
	First bool
}

// WithBlind is a finding of processes beside the control daemon, after a look whether they see its
// pipe directory.
func (f Finding) WithBlind(pids []int) Finding {
	f.Blind = pids
	f.Reason = f.unattached()
	return f
}

// breach is a rule and the job that breaks it.
type breach struct {
	starter starter.Starter
	gpu     gpu.UUID
	code    int
}

// Breaches are what the samples up to now have shown. It is a value: each
// sample makes the next.
type Breaches map[breach]row

// row is what the samples have shown of one breach.
type row struct {
	// over is the time in breach less the time without it since, from 0 to the rule's grace.
	over time.Duration
	// at is the last sample with a known value, broken what it showed.
	at     time.Time
	broken bool
	found  bool
}

// Judge adds one sample. The time between two samples that both show a breach counts as time in
// breach; the time between two that show none counts against it. So a job that breaks a rule for
// most of the time is found, and one with short peaks and as much time between them is not. A
// sample in which a value is not known counts for neither, and no job is found by it.
func (b Breaches) Judge(jobs []Job, site Rules, now time.Time) (Breaches, []Finding) {
	next := Breaches{}
	var found []Finding
	for _, j := range jobs {
		for _, l := range j.laws(site) {
			key := breach{j.Starter, j.GPU, l.code}
			r, before := b[key]
			if !l.known && !l.broken {
				if long := now.Add(-l.grace / 2); r.broken && r.at.Before(long) {
					r.at = long
				}
				if before {
					next[key] = r
				}
				continue
			}
			switch took := now.Sub(r.at); {
			case !before || r.broken != l.broken:
			case l.broken:
				r.over = min(r.over+took, l.grace)
			default:
				r.over -= took
			}
			r.at, r.broken = now, l.broken
			// Half a sample of slack: samples do not come to the millisecond.
			if l.broken && (j.ToBeHeld || r.over >= l.grace-site.Slack) {
				found = append(found, Finding{Job: j, Code: l.code, Reason: l.reason(), Enforce: l.enforce, First: !r.found})
				r.found = true
			}
			if l.broken || r.over > 0 {
				next[key] = r
			}
		}
	}
	return next, found
}

// law is one rule applied to one job.
type law struct {
	code          int
	known, broken bool
	// reason is for the user. It is made for a job that is found only: each sample judges all jobs.
	reason  func() string
	grace   time.Duration
	enforce config.Enforce
}

func (j Job) laws(r Rules) []law {
	used := j.Memory.Value.MiB()
	clients, known := len(j.PIDs)-len(j.Beside), j.Known && !j.Unclear
	return []law{
		{code: api.CodeOverBudget, known: j.Memory.Known, grace: r.Budgets.Grace, enforce: r.Budgets.Enforce,
			broken: used > r.Budgets.Limit(j.Budget), reason: func() string { return j.overBudget(used) }},
		{code: api.CodeTooManyClients, known: known, grace: r.Budgets.Grace, enforce: r.Budgets.Enforce,
			broken: j.Known && j.MostClients > 0 && clients > j.MostClients,
			reason: func() string {
				return fmt.Sprintf("%d processes of the job use %s, and one share serves at most %d: start fewer processes, "+
					"or ask for a whole GPU", clients, j.GPU, j.MostClients)
			}},
		{code: api.CodeOtherGPU, known: j.Known && !j.UnclearElsewhere, grace: r.Budgets.Grace, enforce: r.Budgets.Enforce,
			broken: len(j.Elsewhere) > 0, reason: j.onOtherGPU},
		{code: api.CodeLeftCgroup, known: known, grace: r.Budgets.Grace, enforce: r.Budgets.Enforce,
			broken: len(j.Outside) > 0 || j.Unbound, reason: j.outside},
		{code: api.CodeUnattached, known: known, grace: r.AttachWithin, enforce: r.Unattached,
			broken: j.Known && len(j.Beside) > 0,
			reason: j.unattached},
	}
}

// unattached says why processes may be beside the control daemon.
func (j Job) unattached() string {
	const holds = "so no limit holds for it"
	if len(j.Blind) > 0 {
		return fmt.Sprintf("process %s of the job computes on the shared %s from a container that does not have its "+
			"pipe directory, %s: leave APPTAINER_BIND as it is, or start the container with --bind %s",
			numbers(j.Blind), j.GPU, holds, j.Pipes)
	}
	return fmt.Sprintf("process %s of the job computes on the shared %s without its control daemon, %s: leave "+
		"CUDA_MPS_PIPE_DIRECTORY as it is, and hand it into containers", numbers(j.Beside), j.GPU, holds)
}

func (j Job) overBudget(used gpu.MiB) string {
	said := fmt.Sprintf("used %d MiB of %d MiB requested", int64(used), int64(j.Budget))
	if j.Kept > 0 {
		return fmt.Sprintf("%s, %d MiB of them on %s by processes that have ended, because process %s keeps "+
			"/dev/nvidia-uvm open: end what a program starts with it", said, int64(j.Kept.MiB()), j.GPU, numbers(j.Keepers))
	}
	need := used.Ceil(max(j.Quantum, 1))
	if need > j.Largest {
		return fmt.Sprintf("%s, more than one job may have on %s (%d MiB): ask for a whole "+
			"GPU", said, j.GPU, int64(j.Largest))
	}
	return fmt.Sprintf("%s: ask for request_vram = %d", said, int64(need))
}

func (j Job) onOtherGPU() string {
	s := j.Elsewhere[0]
	return fmt.Sprintf("process %d of the job computes on %s, and its slot holds %s: leave CUDA_VISIBLE_DEVICES and "+
		"CUDA_MPS_PIPE_DIRECTORY as they are", s.PID, s.GPU, j.GPU)
}

func (j Job) outside() string {
	if j.Unbound {
		return fmt.Sprintf("the job switched off the controller by which the driver limits its VRAM on %s to %d MiB: "+
			"leave cgroup.subtree_control in the slice above its cgroup as it is", j.GPU, int64(j.Budget))
	}
	return fmt.Sprintf("process %s of the job computes on %s outside the job's cgroup, where the driver's limit of "+
		"%d MiB does not hold: "+
		"leave processes in the cgroup that HTCondor starts them in", numbers(j.Outside), j.GPU, int64(j.Budget))
}

func numbers(pids []int) string {
	s := fmt.Sprint(pids)
	return s[1 : len(s)-1]
}
