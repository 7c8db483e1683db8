// Package admission decides which jobs may start on which GPUs, and prepares those that may:
// it enters them in the job table, opens the pipe directory of their GPU to their account,
// and returns the environment that gives them their part of the GPU.
//
// Start at Preparer. HTCondor's hook, or the job wrapper where there is no hook, asks before
// the job starts (Prepare); the job's supervisor asks again, from the job's own cgroup, right
// before the job's program (Start). Decide is the decision itself: it is pure, and State is all
// that it rests on. Callers other than the first hook of a starter count only with HTCondor's
// own ads (confirm.go).
package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// Node is what is known of the node at one time.
type Node struct {
	Plan *plan.Plan
	// NoPlan says why there is no plan yet; empty if there is one.
	NoPlan string
	// Pipes holds one pipe directory per GPU UUID.
	Pipes string
	// MaxAge is the age of the oldest health check that counts.
	MaxAge time.Duration
	// Accounts are those of tenancy "common:<user>", by name.
	Accounts map[string]starter.Account
	GPUs     GPUs
	Cgroups  Cgroups
}

// GPUs say why the node's GPUs take no jobs. Started is when the job's starter began, in the
// kernel's ticks: who closed the GPU later does not mean that job.
type GPUs interface {
	// Health is that of a shared GPU, with the cheap check of its control daemon made now.
	Health(g *plan.GPU, started uint64, now time.Time) Health
	// Taken names a process that computes on a MIG device without a job there; empty if none
	// does.
	Taken(g *plan.GPU) string
	// Closed is why a GPU that its jobs have whole, or a MIG device, takes no job; empty if
	// it does. Taken is Taken's answer, empty where a job runs. It must not wait.
	Closed(g *plan.GPU, taken string, started uint64, now time.Time) string
}

// Cgroups put in force what holds in the cgroup of a job that starts.
type Cgroups interface {
	// Starts is an error, for the user, if no job may start where the caller is.
	Starts(c starter.Caller) error
	// CloseNodes closes the device nodes of MIG devices that a job does not have.
	CloseNodes(s starter.Starter, held []jobs.Job, leaf string) error
	// Limit limits a job's VRAM, and says whether the driver keeps as much for it. An error
	// says why no limit was read back.
	Limit(ctx context.Context, j jobs.Job, leaf string) (reserved bool, err error)
}

// Access is who may open which pipe directory; access.List is the real one.
type Access interface {
	// Stranger names a process of another account that is still an MPS client: see access.List.
	Stranger(ctx context.Context, u gpu.UUID, uid uint32, checked mps.Checked, sweep func()) string
	// Give lets an account in.
	Give(u gpu.UUID, uid uint32) error
}

// Partitions are the static SM partitions of the node's GPUs.
type Partitions interface {
	// Offer is the one that a starter's job would get of a control daemon; empty if none is free.
	Offer(running *jobs.View, s starter.Starter, u gpu.UUID, daemon process.ID) string
	// Take gives it to the job. Undo takes it back; it is nil where the job had it before.
	Take(s starter.Starter, u gpu.UUID, id string) (undo func())
	// Write keeps whose they are for the next agent.
	Write() error
}

// Elastic are the GPUs that serve shared and whole jobs by turns; elastic.Group is the real one.
type Elastic interface {
	// Refuse refuses a job of the kind that a GPU does not serve now.
	Refuse(running *jobs.View, s starter.Starter, p *plan.Plan, gpus []gpu.UUID, whole bool) *api.Refusal
}

// Startds are HTCondor's on this node.
type Startds interface {
	// Slots are their own ads of their slots, now. The error is of those that do not answer.
	Slots(ctx context.Context) ([]condor.Slot, error)
}

// Processes are those of this node; starter.Node is the real one.
type Processes interface {
	Runs(p process.ID) bool
}

// Events are kept for operators; history.Writer is the real one.
type Events interface {
	Event(e history.Event)
}

// Metrics count admissions; metrics.Metrics is the real one.
type Metrics interface {
	// Admission counts a decision with its reason, and the time that it took.
	Admission(result, reason string, took time.Duration)
	// Mismatch counts slots of which HTCondor's ad says something else than a caller.
	Mismatch()
}

// Options are what a Preparer works with.
type Options struct {
	// Node is called for each job, and never waits.
	Node       func() Node
	Jobs       *jobs.Table
	Access     Access
	Partitions Partitions
	Elastic    Elastic
	Startds    Startds
	Processes  Processes
	Events     Events
	Metrics    Metrics
	Log        *slog.Logger
	// Sweep drops the jobs that have ended, and the access that they needed. Ended does the
	// latter for jobs that were dropped already.
	Sweep func()
	Ended func([]jobs.Job)
	// Changed is called when START has to see something new of a GPU, Entered when a job was
	// entered that HTCondor's ads are to confirm. Neither waits.
	Changed, Entered func()
}

// Preparer prepares jobs. Its methods may be called by several goroutines at a time.
type Preparer struct {
	Options
	questions *questions
	slotless  slotless
	// confirming lets one caller at a time put a question of its own to the startds.
	confirming chan struct{}
}

// New returns a Preparer that has prepared no job yet.
func New(o Options) *Preparer {
	return &Preparer{Options: o, questions: newQuestions(o.Processes.Runs), confirming: make(chan struct{}, 1)}
}

// Results of an admission, as label of the metric.
const (
	granted  = "granted"
	held     = "held"
	requeued = "requeued"
	denied   = "denied"
)

// Prepare admits or refuses the job of a caller, and counts it.
func (p *Preparer) Prepare(ctx context.Context, c starter.Caller, said *api.Job) api.Reply {
	start, job := time.Now(), bounded(*said)
	if c.Hook {
		p.slotless.known()
	}
	var grant *api.Grant
	refusal, err := p.confirm(ctx, &c, job)
	if refusal == nil && err == nil {
		grant, refusal = p.admit(ctx, c, job, start)
	}
	result, reason := outcome(refusal, err)
	p.Metrics.Admission(result, reason, time.Since(start))
	level := slog.LevelInfo
	switch { // a job may ask as often as it likes
	case !c.Hook && grant == nil && p.questions.firstRefusal(c.Starter):
		level = slog.LevelWarn
	case !c.Hook && (grant == nil || !c.Confirmed):
		level = slog.LevelDebug
	}
	log := func(msg string, args ...any) {
		p.Log.Log(ctx, level, msg, append([]any{"slot", c.Starter.Slot, "job", job.ID, "owner", job.Owner}, args...)...)
	}
	switch {
	case err != nil:
		log("refused a caller", "uid", c.UID, "pid", c.PID, "err", err)
		return api.Reply{Error: err.Error()}
	case refusal != nil:
		p.note(c, job, history.EventRefused, refusal.Reason)
		log("refused a job", "uid", c.UID, "pid", c.PID, "code", refusal.Code, "reason", refusal.Reason)
		return api.Reply{Refusal: refusal}
	}
	if !c.Hook { // it asked for its start before, without a GPU
		// What fails is a warning of status, and tried again by the loop.
		_ = p.Node().Cgroups.CloseNodes(c.Starter, p.Jobs.HeldBy(c.Starter), c.Leaf.Path)
	}
	p.note(c, job, history.EventAdmitted, admittedText(job, grant))
	log("admitted a job",
		"gpu", grant.Environment["GPUSLOT_GPU"], "mib", grant.Environment["GPUSLOT_VRAM_MIB"],
		"enforced_by", grant.EnforcedBy)
	return api.Reply{Grant: grant}
}

// Denied counts a caller of Prepare that could not be identified. A hook below a starter that
// does not show its slot is HTCondor's configuration and no job's doing.
func (p *Preparer) Denied(c starter.Caller, err error) {
	if !c.Hook || !errors.Is(err, starter.ErrSlotless) {
		p.Metrics.Admission(denied, "caller", 0)
		return
	}
	p.Metrics.Admission(denied, "no-slot", 0)
	if p.slotless.deny(c.Starter, time.Now()) {
		p.Log.Warn("a hook of HTCondor was denied and its job sent back", "pid", c.Starter.PID, "err", err)
		p.Changed()
	}
}

// Closed is why no GPU takes jobs, because HTCondor's hooks do not get through; empty if they do.
func (p *Preparer) Closed(now time.Time) string { return p.slotless.closed(now) }

// Forget drops what is known of a starter that has ended.
func (p *Preparer) Forget(s starter.Starter) { p.questions.forget(s) }

// outcome names a decision in the words of the metric.
func outcome(r *api.Refusal, err error) (result, reason string) {
	switch {
	case err != nil:
		return denied, "caller"
	case r == nil:
		return granted, "none"
	}
	result = held
	if r.Requeue {
		result = requeued
	}
	return result, cmp.Or(reasons[r.Code], "other")
}

// reasons are the metric's words for refusals.
var reasons = map[int]string{
	api.CodeNoRequest:   "no-request",
	api.CodeTooLarge:    "too-large",
	api.CodeBadRequest:  "bad-request",
	api.CodeBadThreads:  "bad-threads",
	api.CodeSeveralGPUs: "several-gpus",
	api.CodeBadGPUs:     "bad-gpus",
	api.CodeClosed:      "closed",
	api.CodeOtherTenant: "other-tenant",
	api.CodeNotPlanned:  "not-planned",
}

// longestNote bounds the text of an event, in bytes: a caller's words may be in it.
const longestNote = 1024

// note keeps what became of a job, once for each GPU. Only the hook's question is an event:
// a job may ask as often as it likes. What it invents is none: a starter has at most one event
// on each planned GPU from its hook.
func (p *Preparer) note(c starter.Caller, job *api.Job, kind history.EventKind, text string) {
	if !c.Hook {
		return
	}
	if len(text) > longestNote {
		text = strings.ToValidUTF8(text[:longestNote], "") + " …"
	}
	e := history.Event{Kind: kind, Slot: condor.SlotName(c.Starter.Slot), Job: job.ID, Text: text}
	noted, planned := false, p.Node().Plan
	for _, id := range slices.Compact(slices.Sorted(slices.Values(job.AssignedGPUs))) {
		if g, ok := planned.Find(gpu.UUID(id)); ok {
			e.GPU, noted = g.UUID, true
			p.Events.Event(e)
		}
	}
	if !noted {
		p.Events.Event(e)
	}
}

// admittedText is an admission in the history's words.
func admittedText(job *api.Job, g *api.Grant) string {
	s := "The job was admitted"
	if job.Owner != "" {
		s = fmt.Sprintf("The job of %s was admitted", job.Owner)
	}
	if mib := g.Environment["GPUSLOT_VRAM_MIB"]; mib != "" {
		s += fmt.Sprintf(" with %s MiB, enforced by %s", mib, g.EnforcedBy)
	}
	return s + "."
}
