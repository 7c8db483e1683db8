// Package status takes snapshots: the node at one moment, with each GPU of the plan, whether it
// takes jobs and why not, and the jobs on it. Everything that readers see is made from a
// Snapshot: "gpuslot status", the startd's monitor, "gpuslot here", the node's page and the
// metrics. So two readers never differ about a GPU.
//
// A snapshot rests on the last round of the agent's loop (Node), the job table, the last
// sample and the cheap check of the control daemons. Taking one never waits for a driver, a
// control daemon or HTCondor.
//
// Start at Reader.Take. judge.go decides whether a GPU takes jobs; api.go, accept.go and
// here.go turn a snapshot into replies and are pure.
package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/admission"
	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/capability"
	"github.com/gpuslot/gpuslot/agent/closures"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/daemons"
	"github.com/gpuslot/gpuslot/agent/faults"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/sampling"
	"github.com/gpuslot/gpuslot/agent/startd"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// Node is what the last round of the agent's loop found and did.
type Node struct {
	Config config.Config
	Plan   plan.Plan
	// Planned: a plan is in force, since Applied. Before is the plan of the agent before.
	Planned bool
	Applied time.Time
	Before  plan.Plan
	// ConfigError is why the last reload was rejected; ConfigRead and ConfigOK are the last
	// attempt to read the configuration.
	ConfigError string
	ConfigRead  time.Time
	ConfigOK    bool
	// Written: HTCondor's files are as the plan wants them.
	Written bool
	// Closed closes every GPU, with the reason; NoPlan is why there is no plan.
	Closed, NoPlan string
	// Daemons are the control daemons, Modes the compute modes in force, Present the GPUs of
	// the last inventory. Accounts are those of tenancy "common:<user>".
	Daemons  map[gpu.UUID]daemons.State
	Modes    map[gpu.UUID]string
	Present  map[gpu.UUID]bool
	Accounts map[string]starter.Account
	// Can is what control daemon, driver and kernel can do, HTCondor its version.
	Can      capability.Set
	HTCondor string
	// Overridden are settings of the site that take something away from the generated ones.
	Overridden []condor.Override
	// Repartition, Below and LaidOut are about MIG layouts: see layouts.Outcome.
	Repartition []api.StatusRepartition
	Below       map[gpu.UUID]plan.GPU
	LaidOut     map[gpu.UUID]bool
	// Problems are complete sentences.
	Problems []string
	// Rounds counts the rounds; RoundTook and RoundOK are the last one's.
	Rounds    uint64
	RoundTook time.Duration
	RoundOK   bool
	// Health says how the GPUs of this plan are now.
	Health Health
}

// Health says how the GPUs of a plan are now, leaving out who closed them.
type Health interface {
	// Shared is that of a GPU with a control daemon, with the cheap check.
	Shared(g *plan.GPU, now time.Time) admission.Health
	// Alone is why a MIG device that one job has alone takes none, Whole the same of a GPU;
	// empty if it does.
	Alone(g *plan.GPU, now time.Time) string
	Whole(g *plan.GPU, now time.Time) string
}

// Snapshot is the node at one moment.
type Snapshot struct {
	Node
	At time.Time
	// Version is gpuslotd's, Host the name of the node.
	Version, ConfigFile, Host string
	// Phase is how far the node is out of service, Service that for readers; nil for a node
	// that serves.
	Phase   closures.Node
	Service *api.NodeStatus
	GPUs    []GPU
	// Running are all jobs of the job table. Unknown says which job's GPU is not known; empty if there is none.
	Running []jobs.Job
	Unknown string
	// Usage is the last sample; empty if nothing samples.
	Usage *usage.Snapshot
	// Startds is what HTCondor's startds said last.
	Startds *startd.Said
	// Silent is for how long no startd has asked which GPUs take jobs; 0 if one asks, or
	// SilentKnown is false.
	Silent      time.Duration
	SilentKnown bool
	// FeedbackAsked: a program of the startd's asked for something; FeedbackOK: each took the
	// last answer, the one that waits longest at FeedbackAt.
	FeedbackAsked, FeedbackOK bool
	FeedbackAt                time.Time
	// Faults count the events of GPUs.
	Faults []faults.Counted
	// Warnings are complete sentences of parts of the agent.
	Warnings []string
	// NotRoot: gpuslotd serves its own account only.
	NotRoot bool
}

// GPU is one GPU or MIG device of the plan at one moment.
type GPU struct {
	*plan.GPU
	// Daemon is its control daemon as of the last round, Health what admission rests on; both
	// are zero for a GPU that is not shared.
	Daemon daemons.State
	Health admission.Health
	// Jobs are those on it, Budgeted the sum of their budgets.
	Jobs     []Job
	Budgeted gpu.MiB
	// Reason is why it takes no jobs, with what closes it; empty if it does. Closures are
	// those of its owners, and the agent's own.
	Reason   string
	Closures closures.List
	// InForce is its compute mode in force, or why that is not as configured.
	InForce string
	// Tenant is whose jobs it takes now; empty if anyone's.
	Tenant string
	// Fault is what the hardware reported of it.
	Fault faults.Verdict
	// Verified is the last verification since the boot; nil if there is none. Verifying: it is
	// being verified now.
	Verified  *api.Verification
	Verifying bool
	// Seen: the budget watch sees its jobs; not known where no budget rests on that.
	Seen gpu.Measured[bool]
	// Unlisted is VRAM in use that NVML lists with no process.
	Unlisted sampling.Unlisted
	// Uses is what the last sample shows of it.
	Uses sampling.Uses
}

// Job is one job on a GPU.
type Job struct {
	jobs.Job
	// Enforced is what enforces its budget now, Hold why HTCondor is to hold it.
	Enforced string
	Hold     string
	// SMs is how many multiprocessors are its own; nil if none are, or unknown.
	SMs *int
}

// DaemonUp says whether the control daemon works, and whether one is to run at all.
func (s *Snapshot) DaemonUp(g *GPU) (up, wanted bool) {
	up = g.Daemon.Err == nil && g.Daemon.Checked.PID != 0 && g.Health.Check == nil
	return up, g.MPS() && !s.Phase.Quiet() && (g.Place == "" || g.Device != "")
}

// Accepts says whether a GPU takes jobs, which needs a startd that asks.
func (s *Snapshot) Accepts(g *GPU) bool { return g.Reason == "" && s.Silent == 0 }

// faultTexts say what opens a GPU again.
var faultTexts = map[faults.Closure]string{
	faults.ClosedForServer: "A client met a fatal GPU error; it opens when its MPS server works again.",
	faults.ClosedForReset:  "Its hardware reported an error that only a reset repairs.",
	faults.ClosedBroken:    "Its hardware is broken; an operator opens it.",
}

// GeneralReason is why a GPU takes no new jobs, for readers who may not see accounts, jobs and
// files; empty if it does.
func (s *Snapshot) GeneralReason(g *GPU) string {
	if g.Reason == "" {
		return ""
	}
	own := slices.DeleteFunc(
		g.Closures.Owners(),
		func(o string) bool { return o == closures.OwnerAgent || o == OwnerElastic },
	)
	say := "It takes no new jobs for now."
	switch {
	case s.Phase.Phase != closures.Serving:
		say = fmt.Sprintf("The node is %s.", s.Phase.Phase)
	case len(own) > 0: // their reasons may name anybody
		say = fmt.Sprintf("Closed by %s.", strings.Join(own, ", "))
	case s.Closed != "":
		say = "The whole node takes no new jobs."
	case !s.Present[g.UUID]:
		say = "The node does not have it any more."
	case faultTexts[g.Fault.Class] != "" && (g.MPS() || g.Fault.Class != faults.ClosedForServer):
		say = faultTexts[g.Fault.Class]
	case g.Daemon.Servers.Closed(s.At) != "":
		say = "Its MPS server is not ready for jobs."
	case g.Daemon.Closed() != "" || g.Health.Check != nil:
		say = "Its control daemon is not proven healthy."
	case g.Verifying:
		say = "A CUDA client tries it now."
	}
	return say + " gpuslot status on the node says more."
}
