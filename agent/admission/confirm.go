package admission

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/startd"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// questions are what the callers of the starters asked so far. Its lock may be taken while
// a view shows the job table, never the other way round.
type questions struct {
	runs func(process.ID) bool

	mu sync.Mutex
	by map[process.ID]asked
}

// asked is what the callers of one starter asked so far.
type asked struct {
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

func newQuestions(runs func(process.ID) bool) *questions {
	return &questions{runs: runs, by: map[process.ID]asked{}}
}

// keep notes what the callers of a starter have asked now. The caller holds mu.
func (q *questions) keep(s starter.Starter, now asked) {
	if len(q.by) >= startersKept {
		maps.DeleteFunc(q.by, func(s process.ID, _ asked) bool { return !q.runs(s) })
	}
	q.by[s.ID] = now
}

// forget drops the questions of a starter that has ended.
func (q *questions) forget(s starter.Starter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.by, s.ID)
}

// firstRefusal says whether a job's processes are refused for the first time.
func (q *questions) firstRefusal(s starter.Starter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.by[s.ID]
	first := !now.refused
	now.refused = true
	q.keep(s, now)
	return first
}

// confirm decides which callers are answered. The hook's first question is answered at
// once. Every later question of that starter is refused, because the job has its
// environment. Where no hook asks, the startd must confirm the slot before anything
// opens, and job takes the startd's values. Confirmed jobs stand in the job table.
func (p *Preparer) confirm(ctx context.Context, c *starter.Caller, job *api.Job) (*api.Refusal, error) {
	n := p.Node()
	if n.NoPlan != "" || n.Plan.Observe {
		return nil, nil // nobody is admitted
	}
	ask, refusal, err := p.questions.next(p.Jobs, c, len(job.AssignedGPUs) > 0)
	if !ask {
		return refusal, err
	}
	ad, err := p.slotOf(ctx, c.Starter)
	if err != nil {
		return api.Refuse(api.CodeClosed, fmt.Sprintf("the startd does not confirm what %s has: %v: "+
			"see whether condor_status -direct \"\" answers", c.Starter.Slot, err)), nil
	}
	has := distinct(ad.AssignedGPUs)
	if !slices.Equal(distinct(job.AssignedGPUs), has) {
		p.Metrics.Mismatch()
		p.Jobs.PutElsewhere(c.Starter)
		return notHeld(c.Starter), nil
	}
	c.Confirmed = true
	job.ID, job.ProvisionedVRAM, job.RequestVRAM = ad.JobID, ad.VRAM, ad.RequestVRAM
	if owner := ad.Owner(); owner != "" {
		job.Owner = owner
	}
	byUsers := p.Node().toldApartByUsers(has) // the plan may be another one by now
	if byUsers && ad.Unsaid != "" {
		return api.Refuse(api.CodeClosed,
			fmt.Sprintf("the startd does not say whose job %s has: %s", c.Starter.Slot, ad.Unsaid)), nil
	}
	if byUsers || ad.Group != "" || ad.VO != "" {
		job.Group, job.VO = ad.Group, ad.VO
	}
	return nil, nil
}

// toldApartByUsers: one of the GPUs has tenants that users name in their jobs, which the
// startd then publishes.
func (n Node) toldApartByUsers(ids []string) bool {
	return slices.ContainsFunc(ids, func(id string) bool {
		g, ok := n.Plan.Find(gpu.UUID(id))
		return ok && startd.TenantKey(g.Tenancy.Key()) != ""
	})
}

// notHeld refuses a GPU that a slot does not have.
func notHeld(s starter.Starter) *api.Refusal {
	return api.Refuse(api.CodeNotPlanned, fmt.Sprintf("%s has no such GPU, as the startd says: ask for one with "+
		"request_gpus", s.Slot))
}

// next takes a caller's question. It says whether the startd is to be asked; otherwise
// admission goes on if there is neither a refusal nor an error. It gives the caller the
// starter of its slot.
func (q *questions) next(
	table *jobs.Table, c *starter.Caller, forGPUs bool,
) (ask bool, refusal *api.Refusal, err error) {
	table.Look(func(running *jobs.View) {
		if err = running.Locate(c); err == nil {
			ask, refusal = q.take(running, c, forGPUs)
		}
	})
	return ask, refusal, err
}

func (q *questions) take(running *jobs.View, c *starter.Caller, forGPUs bool) (ask bool, refusal *api.Refusal) {
	q.mu.Lock()
	defer q.mu.Unlock()
	before := q.by[c.Starter.ID]
	held := running.HeldBy(c.Starter)
	switch {
	case before.hook:
		c.Hook = false
		return false, api.Refuse(api.CodeNotPlanned, hookAsked(c.Starter))
	case c.Hook:
		before.hook = true
		q.keep(c.Starter, before)
		return false, nil
	case !forGPUs:
		return false, nil
	case len(held) > 0 && !slices.ContainsFunc(held, func(r jobs.Job) bool { return !r.Confirmed }):
		return false, nil // it gets what it has, or nothing
	case running.IsElsewhere(c.Starter):
		return false, notHeld(c.Starter)
	case before.startd >= mostConfirmed:
		return false, api.Refuse(api.CodeNotPlanned, fmt.Sprintf(
			"the startd was asked %d times what %s has, and did not confirm it: submit the job again",
			before.startd, c.Starter.Slot))
	}
	before.startd++
	q.keep(c.Starter, before)
	return true, nil
}

// confirmTimeout bounds the wait for the questions of others and the startd's answer:
// the wrapper waits for 20 s.
const confirmTimeout = 15 * time.Second

// slotOf asks the startds for the slot of a starter's job now.
func (p *Preparer) slotOf(ctx context.Context, s starter.Starter) (condor.Slot, error) {
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	select {
	case p.confirming <- struct{}{}:
		defer func() { <-p.confirming }()
	case <-ctx.Done():
		return condor.Slot{}, errors.New("too many jobs wait for its answer")
	}
	all, err := p.Startds.Slots(ctx)
	for _, ad := range all {
		if condor.SlotName(ad.Name) == condor.SlotName(s.Slot) && ad.JobID != "" &&
			(ad.StarterPID == 0 || ad.StarterPID == int64(s.PID)) {
			if ad.Unreadable != "" {
				return condor.Slot{}, errors.New(startd.Unreadable(ad))
			}
			return ad, nil
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

// hookAsked is what a job's processes hear, and a second hook.
func hookAsked(s starter.Starter) string {
	return fmt.Sprintf("the hook of %s has asked for this job, and only its first question is answered: use the "+
		"environment that the job was started with", s.Slot)
}
