package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// questions are what the callers of one starter asked so far.
type questions struct {
	// hook: its own question was answered.
	hook bool
	// startd counts those for which the startd was asked.
	startd int
	// refused: a refusal of its job's processes is in the log.
	refused bool
}

// mostConfirmed bounds what one job may cost the startd, and startersKept how many
// starters are kept before those that ended are looked for.
const (
	mostConfirmed = 8
	startersKept  = 4096
)

// question notes a question.
func (v *jobView) question(s starter.Starter, note func(*questions)) {
	if len(v.asked) >= startersKept {
		maps.DeleteFunc(v.asked, func(s process.ID, _ questions) bool { return !v.proc.Runs(s) })
	}
	q := v.asked[s.ID]
	note(&q)
	v.asked[s.ID] = q
}

// firstRefusal says whether a job's processes are refused for the first time.
func (b *jobTable) firstRefusal(s starter.Starter) (first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.question(s, func(q *questions) { first, q.refused = !q.refused, true })
	return first
}

// believe decides which callers are answered. The hook's first question is answered at
// once. Every later question of that starter is refused, because the job has its
// environment. Where no hook asks, the startd must confirm the slot before anything
// opens, and job takes the startd's values. Confirmed jobs stand in the job table.
func (a *Agent) believe(ctx context.Context, c *starter.Caller, job *api.Job) (*api.Refusal, error) {
	if v := a.view.Load(); !v.planned || v.plan.Observe {
		return nil, nil // nobody is admitted
	}
	ask, refusal, err := a.jobs.whoAsks(c, len(job.AssignedGPUs) > 0)
	if !ask {
		return refusal, err
	}
	ad, err := a.slotOf(ctx, c.Starter)
	if err != nil {
		return api.Refuse(api.CodeClosed, fmt.Sprintf("the startd does not confirm what %s has: %v: see whether condor_status -direct \"\" answers", c.Starter.Slot, err)), nil
	}
	asks, has := distinct(job.AssignedGPUs), distinct(ad.AssignedGPUs)
	if !slices.Equal(asks, has) {
		a.metrics.Mismatch()
		a.jobs.Look(func(v *jobView) { v.elsewhere[c.Starter.ID] = true })
		return notHeld(c.Starter), nil
	}
	c.Confirmed = true
	job.ID, job.ProvisionedVRAM, job.RequestVRAM = ad.JobID, ad.VRAM, ad.RequestVRAM
	if owner := ad.Owner(); owner != "" {
		job.Owner = owner
	}
	if ad.Group != "" || ad.VO != "" {
		job.Group, job.VO = ad.Group, ad.VO
	}
	return nil, nil
}

// notHeld refuses a GPU that a slot does not have.
func notHeld(s starter.Starter) *api.Refusal {
	return api.Refuse(api.CodeNotPlanned, fmt.Sprintf("%s has no such GPU, as the startd says: ask for one with request_gpus", s.Slot))
}

// whoAsks says whether the startd is to be asked; otherwise admission goes on if
// there is neither a refusal nor an error.
func (b *jobTable) whoAsks(c *starter.Caller, forGPUs bool) (ask bool, refusal *api.Refusal, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.locate(c); err != nil {
		return false, nil, err
	}
	q := b.asked[c.Starter.ID]
	held := b.held(c.Starter)
	switch {
	case q.hook:
		c.Hook = false
		return false, api.Refuse(api.CodeNotPlanned, hookAsked(c.Starter)), nil
	case c.Hook:
		b.question(c.Starter, func(q *questions) { q.hook = true })
		return false, nil, nil
	case !forGPUs:
		return false, nil, nil
	case len(held) > 0 && !slices.ContainsFunc(held, func(r Running) bool { return !r.Confirmed }):
		return false, nil, nil // it gets what it has, or nothing
	case b.elsewhere[c.Starter.ID]:
		return false, notHeld(c.Starter), nil
	case q.startd >= mostConfirmed:
		return false, api.Refuse(api.CodeNotPlanned, fmt.Sprintf("the startd was asked %d times what %s has, and did not confirm it: submit the job again", q.startd, c.Starter.Slot)), nil
	}
	b.question(c.Starter, func(q *questions) { q.startd++ })
	return true, nil, nil
}

// confirmTimeout bounds the wait for the questions of others and the startd's answer:
// the wrapper waits for 20 s.
const confirmTimeout = 15 * time.Second

// slotOf asks the startds for the slot of a starter's job now.
func (a *Agent) slotOf(ctx context.Context, s starter.Starter) (condor.Slot, error) {
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	select {
	case a.confirming <- struct{}{}:
		defer func() { <-a.confirming }()
	case <-ctx.Done():
		return condor.Slot{}, errors.New("too many jobs wait for its answer")
	}
	all, err := a.askStartds(ctx)
	for _, startd := range all {
		for _, ad := range startd.slots {
			if shortName(ad.Name) == shortName(s.Slot) && ad.JobID != "" && (ad.StarterPID == 0 || ad.StarterPID == int64(s.PID)) {
				if ad.Unreadable != "" {
					return condor.Slot{}, errors.New(unreadable(ad))
				}
				return ad, nil
			}
		}
	}
	if err == nil {
		err = errors.New("it has no such job there")
	}
	return condor.Slot{}, err
}

// distinct are ids in order, each once: a slot names a GPU once for each share.
func distinct(ids []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(ids)))
}

// takeBack closes what jobs got that their slots do not have, and ends the
// connections that they made meanwhile.
func (a *Agent) takeBack(ctx context.Context, taken []Running) {
	if len(taken) == 0 {
		return
	}
	a.sweepNow() // first the pipe directory, so that no new connection comes
	v := a.view.Load()
	for _, r := range taken {
		if g, ok := find(&v.plan, r.GPU); !ok || !g.Shared() {
			continue
		}
		a.ends.Go(func() { a.endConnections(ctx, r) })
	}
}

// endConnections ends the MPS clients of a job on a GPU.
func (a *Agent) endConnections(ctx context.Context, r Running) {
	ctx, cancel := context.WithTimeout(ctx, endConnectionsTimeout)
	defer cancel()
	servers, err := a.clients.Servers(ctx, r.GPU)
	if err != nil {
		a.log.Error("connections of a job to a GPU that its slot does not have may stay", "gpu", r.GPU, "slot", r.Starter.Slot, "err", err)
		return
	}
	var pids []int
	for _, s := range servers {
		for _, pid := range s.Clients {
			if a.proc.RunsBelow(pid, r.Starter) {
				pids = append(pids, pid)
			}
		}
	}
	if len(pids) > 0 {
		a.endClients(ctx, r.GPU, pids, r.Starter)
	}
}

// endConnectionsTimeout is well above what EndClients takes by its own rules.
const endConnectionsTimeout = 30 * time.Second

// hookAsked is what a job's processes hear, and a second hook.
func hookAsked(s starter.Starter) string {
	return fmt.Sprintf("the hook of %s has asked for this job, and only its first question is answered: use the environment that the job was started with", s.Slot)
}
