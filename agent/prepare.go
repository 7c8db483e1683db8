package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/metrics"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// prepare admits or refuses the job of a caller, and counts it.
func (a *Agent) prepare(ctx context.Context, c starter.Caller, job *api.Job) api.Reply {
	start := time.Now()
	job = tidied(*job)
	if c.Hook {
		a.slotless.known()
	}
	grant, refusal, err := a.answer(ctx, &c, job, start)
	result, reason := outcome(refusal, err)
	a.metrics.Admission(result, reason, time.Since(start))
	level := slog.LevelInfo
	switch { // a job may ask as often as it likes
	case !c.Hook && grant == nil && a.questions.firstRefusal(c.Starter):
		level = slog.LevelWarn
	case !c.Hook && (grant == nil || !c.Confirmed):
		level = slog.LevelDebug
	}
	log := func(msg string, args ...any) {
		a.log.Log(ctx, level, msg, append([]any{"slot", c.Starter.Slot, "job", job.ID, "owner", job.Owner}, args...)...)
	}
	switch {
	case err != nil:
		log("refused a caller", "uid", c.UID, "pid", c.PID, "err", err)
		return api.Reply{Error: err.Error()}
	case refusal != nil:
		a.noteJob(c, job, history.EventRefused, job.AssignedGPUs, refusal.Reason)
		log("refused a job", "uid", c.UID, "pid", c.PID, "code", refusal.Code, "reason", refusal.Reason)
		return api.Reply{Refusal: refusal}
	}
	if !c.Hook { // it asked for its start before, without a GPU
		held := a.jobs.HeldBy(c.Starter)
		// What fails is a warning of status, and tried again by the loop.
		_ = a.nodes.CloseAtStart(a.view.Load().isolation(), c.Starter, held, a.proc.Leaf(c.PID).Path)
	}
	a.noteJob(c, job, history.EventAdmitted, job.AssignedGPUs, admission(job, grant))
	log("admitted a job", "gpu", grant.Environment["GPUSLOT_GPU"], "mib", grant.Environment["GPUSLOT_VRAM_MIB"], "wall", grant.Wall)
	return api.Reply{Grant: grant}
}

// answer decides whose word counts before it decides on the job.
func (a *Agent) answer(ctx context.Context, c *starter.Caller, job *api.Job, now time.Time) (*api.Grant, *api.Refusal, error) {
	refusal, err := a.believe(ctx, c, job)
	if refusal != nil || err != nil {
		return nil, refusal, err
	}
	return a.admit(ctx, *c, job, now)
}

// denied counts a caller that could not be identified. A hook below a starter that
// does not show its slot is HTCondor's configuration and no job's doing.
func (a *Agent) denied(c starter.Caller, err error) {
	if !c.Hook || !errors.Is(err, starter.ErrSlotless) {
		a.metrics.Admission(metrics.Denied, "caller", 0)
		return
	}
	a.metrics.Admission(metrics.Denied, "no-slot", 0)
	if a.slotless.deny(c.Starter, time.Now()) {
		a.log.Warn("a hook of HTCondor was denied and its job sent back", "pid", c.Starter.PID, "err", err)
		nudge(a.wake)
	}
}

// panicked counts a conversation that the agent broke off.
func (a *Agent) panicked(op api.Op) { a.metrics.ConversationPanicked(string(op)) }

// outcome names a decision in the words of the metric.
func outcome(r *api.Refusal, err error) (result, reason string) {
	switch {
	case err != nil:
		return metrics.Denied, "caller"
	case r == nil:
		return metrics.Granted, "none"
	}
	result = metrics.Held
	if r.Requeue {
		result = metrics.Requeued
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

// admit is the hot path: no program is run but where a GPU goes to another account
// (see access.List.Stranger), and no file is written but that of partitions, which nobody may get twice.
func (a *Agent) admit(ctx context.Context, c starter.Caller, job *api.Job, now time.Time) (*api.Grant, *api.Refusal, error) {
	v := a.view.Load()
	if !v.planned && len(job.AssignedGPUs) > 0 {
		return nil, api.Refuse(api.CodeClosed, v.noPlan()), nil
	}
	if v.plan.Observe {
		return nil, api.Refuse(api.CodeClosed, `gpuslot only observes this node (mode = "observe"), yet HTCondor still runs its hook: restart HTCondor there (systemctl restart condor)`), nil
	}
	s := State{Plan: &v.plan, Pipes: v.config.Paths.PipeRoot(), PipesReadOnly: v.config.HTCondor.PipesReadOnly, Now: now, MaxAge: v.config.Health.MaxAge}
	g, whole, refusal := Target(s.Plan, job)
	if refusal != nil {
		return nil, refusal, nil
	}
	if g != nil {
		whole = []gpu.UUID{g.UUID}
		s.Health = a.checked(v, g.UUID, now)
		s.Health.Closed = a.closedBy(g).For(c.Starter.Started).ReasonAnd(s.Health.Closed)
		s.Common = v.accounts[g.Tenancy.User]
		if s.Health.Closed == "" && g.Tenancy.Policy != config.TenancyMultiUser {
			s.Stranger = a.access.Stranger(ctx, g.UUID, c.UID, s.Health.Proof, a.sweepNow)
		}
	}
	var after entered
	var grant *api.Grant
	a.jobs.Admit(c, func(running *jobs.View) (enter []jobs.Job) {
		if len(whole) > 0 && running.IsElsewhere(c.Starter) {
			refusal = notHeld(c.Starter)
			return nil
		}
		if why := running.Unknown(); why != "" && s.Health.Closed == "" {
			s.Health.Closed = why
		}
		if g != nil && s.Health.Closed == "" && hasVerification(running.On(g.UUID)) {
			s.Health.Closed = beingVerified
		}
		if refusal = a.elastic.Refuse(running, c.Starter, s.Plan, whole, g == nil); refusal != nil {
			return nil
		}
		if refusal = a.refuseAlone(running, v, whole, c.Starter.Started, now); refusal != nil {
			nudge(a.wake)
			return nil
		}
		if grant, refusal, after.ended = a.decide(running, &s, c, job, whole); refusal != nil {
			a.refused(running, c, g, refusal)
			return nil
		}
		enter, after.partition = a.entries(s, c, job, g, whole, grant)
		nudge(a.booked)
		return enter
	})
	if g != nil {
		after.shared = g.UUID
	}
	if refusal = a.settleEntry(s, c, after, refusal); refusal != nil {
		return nil, refusal, nil
	}
	return grant, nil, nil
}

// refuseAlone closes MIG devices that are gone, broken or about to go, and those
// and whole GPUs that somebody holds.
func (a *Agent) refuseAlone(running *jobs.View, v *view, gpus []gpu.UUID, started uint64, now time.Time) *api.Refusal {
	for _, u := range gpus {
		why := ""
		g, ok := find(&v.plan, u)
		if ok && g.Alone() {
			why = a.closedInstance(v, g, now)
		}
		if ok && g.Elastic && !g.Shared() {
			why = a.closedWhole(v, g, now)
		}
		if ok && !g.Shared() {
			why = a.closedBy(g).For(started).ReasonAnd(why)
		}
		if leaves := running.Leaves(u); leaves != "" {
			why = leaves
		}
		if why != "" {
			return api.Refuse(api.CodeClosed, fmt.Sprintf("%s is closed: %s", u, why))
		}
	}
	return nil
}

// checked is a GPU's health with the cheap check made now.
func (a *Agent) checked(v *view, u gpu.UUID, now time.Time) Health {
	return a.pulsed(a.health(v, u, now), u)
}

// pulsed adds the cheap check.
func (a *Agent) pulsed(h Health, u gpu.UUID) Health {
	if h.Proof.PID != 0 {
		h.Check = pulseError(a.daemons.Pulse(u, h.Proof))
	}
	return h
}

// pulseError is why a GPU cannot be used, by the cheap check. A server that
// ended is no reason: the daemon starts another.
func pulseError(p mps.Pulse) error {
	if p.Err == nil && len(p.Suspended) > 0 {
		return fmt.Errorf("its server, process %d, is suspended and every client waits for it: send it SIGCONT", p.Suspended[0].PID)
	}
	return p.Err
}

// decide asks Admit, and once more after a sweep if only slots that may have
// ended stand in the way. Those that did are to be finished.
func (a *Agent) decide(
	running *jobs.View, s *State, c starter.Caller, job *api.Job, gpus []gpu.UUID,
) (grant *api.Grant, refusal *api.Refusal, ended []jobs.Job) {
	read := func() {
		s.Running = nil
		for _, u := range gpus {
			s.Running = append(s.Running, running.On(u)...)
		}
		s.Held = running.HeldBy(c.Starter)
		if len(gpus) == 1 {
			s.Partition = a.partitions.offer(c.Starter, gpus[0], s.Health.Proof.Process(), a.inPartition(running))
		}
	}
	read()
	grant, refusal = Admit(*s, c, job)
	if refusal == nil || len(s.Running) == 0 || len(s.Held) > 0 { // nobody stands in the way of who is in
		return grant, refusal, nil
	}
	if ended = running.DropEnded(); len(ended) == 0 {
		return grant, refusal, nil
	}
	read()
	grant, refusal = Admit(*s, c, job)
	return grant, refusal, ended
}

// refused lets the rest of the agent know what a refusal says of a GPU: START
// must see it too, or the job comes back at once. Only a hook is believed that
// a GPU is full: it runs before the job can.
func (a *Agent) refused(running *jobs.View, c starter.Caller, g *plan.GPU, r *api.Refusal) {
	switch {
	case g == nil:
	case r.Code == api.CodeClosed:
		nudge(a.wake)
	case r.Code == api.CodeNotPlanned && c.Hook && len(running.HeldBy(c.Starter)) == 0:
		running.NoteFull(g.UUID)
	}
}

// entered is what an admission leaves to do after the job table's lock was given back.
type entered struct {
	// shared is the shared GPU whose pipe directory opens; empty for other jobs.
	shared gpu.UUID
	// partition is the one that the job took now; nil where it took none.
	partition *holding
	// ended are the jobs that the decision found ended.
	ended []jobs.Job
}

// settleEntry does what changes files after an admission: it shuts out who ended, keeps
// whose the partition is and opens the pipe directory. If that fails, the job that was
// entered is released again, unless it was there before.
func (a *Agent) settleEntry(s State, c starter.Caller, e entered, refusal *api.Refusal) *api.Refusal {
	if len(e.ended) > 0 {
		a.finish(e.ended)
		if err := a.access.Sweep(a.jobs.Needs); err != nil {
			a.log.Error("sweep", "err", err)
		}
	}
	if refusal != nil || e.shared == "" {
		return refusal
	}
	if e.partition != nil {
		if err := a.partitions.write(); err != nil {
			a.log.Error("keep whose partition it is", "gpu", e.shared, "slot", c.Starter.Slot, "err", err)
			refusal = api.Refuse(api.CodeClosed, fmt.Sprintf("%s is closed: whose its partitions are cannot be kept: %v", e.shared, err))
		}
	}
	if refusal == nil {
		if err := a.access.Give(e.shared, c.UID); err != nil {
			a.log.Error("open the pipe directory", "gpu", e.shared, "uid", c.UID, "err", err)
			refusal = api.Refuse(api.CodeClosed, fmt.Sprintf(
				"%s is closed: its pipe directory cannot be opened to uid %d: %v: look at gpuslot status", e.shared, c.UID, err))
		}
	}
	if refusal == nil {
		return nil
	}
	if e.partition != nil {
		a.partitions.drop(*e.partition)
	}
	if !slices.ContainsFunc(s.Held, func(r jobs.Job) bool { return r.GPU == e.shared }) {
		a.jobs.Release(c.Starter, e.shared)
	}
	return refusal
}

// entries are what the job table gets of an admitted job, with the partition that it takes
// now, if any.
func (a *Agent) entries(
	s State, c starter.Caller, job *api.Job, g *plan.GPU, gpus []gpu.UUID, grant *api.Grant,
) (enter []jobs.Job, taken *holding) {
	r := jobs.Job{
		Starter: c.Starter, Account: starter.Account{UID: c.UID, Known: true}, Owner: job.Owner, ID: job.ID, Group: job.Group,
		VO: job.VO, Work: jobs.WorkOf(c, job), Wall: grant.Wall, Since: s.Now, Confirmed: c.Confirmed,
	}
	if g != nil {
		if h := (holding{Starter: c.Starter, GPU: g.UUID, ID: s.Partition}); g.Partitioned() && a.partitions.take(h) {
			taken = &h
		}
		r.Budget, _ = s.budget(g, job) // admitted, so there is one
	}
	for _, u := range gpus {
		r.GPU, r.Device = u, ""
		if d := s.deviceOf(u); d != u {
			r.Device = d
		}
		enter = append(enter, r)
	}
	return enter, taken
}
