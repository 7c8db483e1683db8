// Package health says whether the GPUs of a plan can serve jobs now, and why not: by what the hardware
// reported, by the control daemon and its MPS servers, by the last sample, and by the verification.
// Who closed a GPU besides, and which jobs it has room for, is left to others.
//
// Nothing is kept here: all of it is read from the parts that know it. Start at GPUs.
package health

import (
	"cmp"
	"fmt"
	"time"

	"github.com/gpuslot/gpuslot/agent/admission"
	"github.com/gpuslot/gpuslot/agent/faults"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/sampling"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// Faults are what the hardware reported; faults.Watcher is the real one.
type Faults interface {
	Verdict(u gpu.UUID, now time.Time) faults.Verdict
}

// Samples are what the last sample shows of shared GPUs; sampling.Loop is the real one.
type Samples interface {
	// Blocked is which process keeps jobs from a GPU, Unseen why their use is not known.
	Blocked(n sampling.Node, u gpu.UUID) string
	Unseen(n sampling.Node, u gpu.UUID, now time.Time) string
	// Enforces says whether jobs on a GPU are held to their budgets by sampling.
	Enforces(n sampling.Node, u gpu.UUID) bool
}

// Unlisted is the VRAM in use that NVML lists with no process; sampling.Loop is the real one.
type Unlisted interface {
	Unlisted(n sampling.Node, u gpu.UUID, now time.Time) sampling.Unlisted
}

// Processes are those on MIG devices that jobs have alone; sampling.Loop is the real one.
type Processes interface {
	// Taken is which process computes on a device.
	Taken(g *plan.GPU) string
}

// Verifications are what CUDA clients met; verify.Verifier is the real one.
type Verifications interface {
	// Missing is why a GPU's verification does not count; empty if it does.
	Missing(u gpu.UUID) string
}

// Limits are the driver's, on jobs' cgroups; budget.Limits is the real one.
type Limits interface {
	// Unlimited is why jobs of a GPU have no limit, and when that was last so; empty if nothing
	// keeps them from it.
	Unlimited(u gpu.UUID) (why string, at time.Time)
}

// Daemons are the control daemons; mps.Daemons is the real one.
type Daemons interface {
	// QuickCheck is a look that does not wait for the daemon's answer: see mps.Daemon.QuickCheck.
	QuickCheck(u gpu.UUID, p mps.Checked) mps.QuickCheck
}

// Jobs are the running jobs; jobs.Table is the real one.
type Jobs interface {
	Look(at func(*jobs.View))
}

// Parts are what knows of the GPUs.
type Parts struct {
	Faults        Faults
	Samples       Samples
	Unlisted      Unlisted
	Processes     Processes
	Verifications Verifications
	Limits        Limits
	Daemons       Daemons
	Jobs          Jobs
}

// Node is what the last round of the agent's loop found.
type Node struct {
	// Sampling is the node as samples see it.
	Sampling sampling.Node
	// Closed closes every GPU, with the reason; empty if nothing does.
	Closed string
	// Present is false for a GPU of the plan that the last inventory lacks.
	Present map[gpu.UUID]bool
	// Verified: a GPU takes jobs only when it was verified.
	Verified bool
}

// GPUs are those of one round. Its methods may be called by several goroutines at a time.
type GPUs struct {
	Parts
	Node
}

// Shared is the health of a shared GPU now, with a look at its control daemon that waits for nothing.
func (n GPUs) Shared(g *plan.GPU, now time.Time) admission.Health {
	return n.looked(n.Seen(g.UUID, now), g.UUID)
}

// Unverified is the same, whether or not the GPU was verified.
func (n GPUs) Unverified(g *plan.GPU, now time.Time) admission.Health {
	return n.looked(n.unverified(g.UUID, now), g.UUID)
}

// Seen is the health of a shared GPU without a look at its control daemon.
func (n GPUs) Seen(u gpu.UUID, now time.Time) admission.Health {
	h := n.unverified(u, now)
	if h.Closed == "" && n.Verified && !h.ByDriver {
		h.Closed = n.Verifications.Missing(u)
	}
	return h
}

func (n GPUs) unverified(u gpu.UUID, now time.Time) admission.Health {
	d := n.Sampling.Daemons[u]
	unlimited, failed := n.Limits.Unlimited(u)
	h := admission.Health{
		Checked: d.Checked, Stale: len(d.Checked.Stale) > 0, PrivilegeChecks: n.Sampling.PrivilegeChecks,
		Watched: n.Samples.Enforces(n.Sampling, u), CgroupLimits: n.Sampling.CgroupLimits && unlimited == "",
	}
	physical := u
	g, planned := n.Sampling.Plan.Find(u)
	if planned {
		physical = g.Physical()
	}
	unlisted, lacking := n.Unlisted.Unlisted(n.Sampling, u, now), ""
	if h.Unlisted = unlisted.Taken; unlisted.Eaten > 0 {
		lacking = unlisted.String()
	}
	absent := ""
	if !n.Present[u] {
		absent = "it is not in the node any more: see whether nvidia-smi lists it"
	}
	serves := ""
	if h.ByDriver = planned && g.NeedsLimits(); h.ByDriver {
		if unlimited != "" && now.Sub(failed) < closedFor {
			serves = "the driver did not limit the VRAM of its last job: " + unlimited
		}
		serves = cmp.Or(n.unready(u), serves, n.fault(physical, now))
	} else {
		serves = cmp.Or(d.Closed(), n.Faults.Verdict(physical, now).Reason, d.Servers.Closed(now))
	}
	h.Closed = cmp.Or(
		n.Closed, absent, serves, n.Samples.Blocked(n.Sampling, u), n.Samples.Unseen(n.Sampling, u, now), lacking,
	)
	return h
}

// unready is why jobs could not share a GPU without MPS, each with the driver's limit; empty if
// they can.
func (n GPUs) unready(u gpu.UUID) string {
	_, served := n.Sampling.Daemons[u]
	mode := cmp.Or(n.Sampling.Modes[u], "not known")
	switch {
	case !n.Sampling.CgroupLimits:
		return "driver and kernel are not known to limit the VRAM of its jobs: look at gpuslot status"
	case served:
		return "jobs still use its control daemon: it opens when they have ended"
	case mode != string(gpu.ComputeModeDefault):
		return fmt.Sprintf("its compute mode is %s, and jobs without MPS need %s", mode, gpu.ComputeModeDefault)
	}
	return ""
}

// closedFor is how long a GPU without MPS stays closed after a job that could not be limited. Then
// another job may try it.
const closedFor = time.Minute

// looked adds why the control daemon cannot be used, by the look. A server that ended is no reason:
// the daemon starts another.
func (n GPUs) looked(h admission.Health, u gpu.UUID) admission.Health {
	if h.Checked.PID == 0 {
		return h
	}
	seen := n.Daemons.QuickCheck(u, h.Checked)
	h.Check = seen.Err
	if seen.Err == nil && len(seen.Suspended) > 0 {
		h.Check = fmt.Errorf("its server, process %d, is suspended and every client waits for it: send it SIGCONT",
			seen.Suspended[0].PID)
	}
	return h
}

// Instance is why a MIG device that jobs have alone takes none, whoever has it now; empty if it does.
func (n GPUs) Instance(g *plan.GPU, now time.Time) string {
	switch {
	case n.Closed != "":
		return n.Closed
	case g.Place != "" && g.Device == "":
		return fmt.Sprintf("there is no MIG device %s now: its GPU has another layout", g.Place)
	case !n.Present[g.UUID]:
		return "it is not in the node any more: see whether nvidia-smi -L lists it"
	}
	return n.fault(g.Parent, now)
}

// Alone is the same with what the job table and the last sample say of the device.
func (n GPUs) Alone(g *plan.GPU, now time.Time) string {
	why, taken := n.Instance(g, now), n.Processes.Taken(g)
	n.Jobs.Look(func(running *jobs.View) {
		if len(running.On(g.UUID)) > 0 {
			taken = "" // its own job's
		}
		why = cmp.Or(why, running.Unknown(), running.Leaves(g.UUID), taken)
	})
	return why
}

// Whole is why a GPU that jobs have whole takes none: only the node and the hardware count.
func (n GPUs) Whole(g *plan.GPU, now time.Time) string { return cmp.Or(n.Closed, n.fault(g.UUID, now)) }

// fault is what the hardware reported of a GPU without an MPS server: the fault of one process
// concerns no other.
func (n GPUs) fault(u gpu.UUID, now time.Time) string {
	if v := n.Faults.Verdict(u, now); v.Closed() && v.Class != faults.ClosedForServer {
		return v.Reason
	}
	return ""
}
