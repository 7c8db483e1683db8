package admission

import (
	"context"
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

// admit decides on a job and enters it in one step. It is the hot path: no program is run but
// where a GPU goes to another account (see access.List.Stranger), and no file is written but
// that of partitions: no two jobs may have the same one.
func (p *Preparer) admit(
	ctx context.Context, c starter.Caller, job *api.Job, now time.Time,
) (grant *api.Grant, refusal *api.Refusal) {
	n := p.Node()
	if n.NoPlan != "" && len(job.AssignedGPUs) > 0 {
		return nil, api.Refuse(api.CodeClosed, n.NoPlan)
	}
	if n.Plan.Observe {
		return nil, api.Refuse(api.CodeClosed, `gpuslot only observes this node (mode = "observe"), `+
			`yet HTCondor still runs its hook: restart HTCondor there (systemctl restart condor)`)
	}
	g, gpus, refusal := target(n.Plan, job)
	if refusal != nil {
		return nil, refusal
	}
	s := n.state(now)
	if g != nil {
		gpus = []gpu.UUID{g.UUID}
		s.Health, s.Common = n.GPUs.Health(g, c.Starter.Started, now), n.Accounts[g.Tenancy.User]
		if g.MPS() && s.Health.Closed == "" && g.Tenancy.Policy != config.TenancyMultiUser {
			s.Stranger = p.Access.Stranger(ctx, g.UUID, c.UID, s.Health.Checked, p.Sweep)
		}
	}
	taken := n.taken(gpus)
	var did entered
	p.Jobs.Admit(c, func(running *jobs.View) (enter []jobs.Job) {
		if len(gpus) > 0 && running.IsElsewhere(c.Starter) {
			refusal = notHeld(c.Starter)
			return nil
		}
		if why := running.Unknown(); why != "" && s.Health.Closed == "" {
			s.Health.Closed = why
		}
		if g != nil && s.Health.Closed == "" && hasVerification(running.On(g.UUID)) {
			s.Health.Closed = BeingVerified
		}
		if refusal = p.Elastic.Refuse(running, c.Starter, s.Plan, gpus, g == nil); refusal != nil {
			return nil
		}
		if refusal = n.closed(running, gpus, taken, c.Starter.Started, now); refusal != nil {
			p.Changed()
			return nil
		}
		if grant, refusal, did.ended = p.decide(running, &s, c, job, gpus); refusal != nil {
			p.refused(running, c, g, refusal)
			return nil
		}
		enter, did.undo = p.entries(s, c, job, g, gpus, grant)
		p.Entered()
		return enter
	})
	if g != nil && g.MPS() {
		did.shared = g.UUID
	}
	if refusal = p.settle(s, c, did, refusal); refusal != nil {
		return nil, refusal
	}
	return grant, nil
}

// VerifySlot is the name of the slot that a verification has in the job table; no slot
// of HTCondor's has it.
const VerifySlot = "verify"

// BeingVerified closes a GPU to jobs while a verification has it.
const BeingVerified = "it is being verified, which takes some seconds: see gpuslot status"

// hasVerification says whether a verification is among the jobs of a GPU.
func hasVerification(running []jobs.Job) bool {
	return slices.ContainsFunc(running, func(j jobs.Job) bool { return j.Starter.Slot == VerifySlot })
}

// Reserve admits a job of gpuslotd's own to a shared GPU on which no job runs: no other job gets
// the GPU until the job leaves the table. Health is the GPU's for such a job.
func (p *Preparer) Reserve(
	c starter.Caller, job *api.Job, g *plan.GPU, health Health, now time.Time,
) (grant *api.Grant, refusal *api.Refusal) {
	n := p.Node()
	s := n.state(now)
	s.Health, s.Common = health, n.Accounts[g.Tenancy.User]
	gpus, did := []gpu.UUID{g.UUID}, entered{shared: g.UUID}
	p.Jobs.Admit(c, func(running *jobs.View) (enter []jobs.Job) {
		if len(running.On(g.UUID)) > 0 {
			refusal = api.Refuse(api.CodeClosed, "a job came: try again when it has ended")
			return nil
		}
		grant, refusal, did.ended = p.decide(running, &s, c, job, gpus)
		if refusal == nil {
			enter, did.undo = p.entries(s, c, job, g, gpus, grant)
		}
		return enter
	})
	if refusal = p.settle(s, c, did, refusal); refusal != nil {
		return nil, refusal
	}
	return grant, nil
}

// state is what a decision rests on, but for the job's GPU and the job table.
func (n Node) state(now time.Time) State {
	return State{Plan: n.Plan, Pipes: n.Pipes, Now: now, MaxAge: n.MaxAge}
}

// taken says which process computes on each of the GPUs without a job there.
func (n Node) taken(gpus []gpu.UUID) map[gpu.UUID]string {
	taken := map[gpu.UUID]string{}
	for _, u := range gpus {
		if g, ok := n.Plan.Find(u); ok {
			taken[u] = n.GPUs.Taken(g)
		}
	}
	return taken
}

// closed refuses MIG devices that are gone, broken, taken by a process or about to go, and
// those and whole GPUs that somebody closed.
func (n Node) closed(
	running *jobs.View, gpus []gpu.UUID, taken map[gpu.UUID]string, started uint64, now time.Time,
) *api.Refusal {
	for _, u := range gpus {
		why, process := "", taken[u]
		if len(running.On(u)) > 0 {
			process = "" // its own job's
		}
		if g, ok := n.Plan.Find(u); ok && !g.Shared() {
			why = n.GPUs.Closed(g, process, started, now)
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

// decide asks Decide, and once more after a sweep if only slots that may have
// ended stand in the way. Those that did are returned.
func (p *Preparer) decide(
	running *jobs.View, s *State, c starter.Caller, job *api.Job, gpus []gpu.UUID,
) (grant *api.Grant, refusal *api.Refusal, ended []jobs.Job) {
	read := func() {
		s.Running = nil
		for _, u := range gpus {
			s.Running = append(s.Running, running.On(u)...)
		}
		s.Held = running.HeldBy(c.Starter)
		if len(gpus) == 1 {
			s.Partition = p.Partitions.Offer(running, c.Starter, gpus[0], s.Health.Checked.Process())
		}
	}
	read()
	grant, refusal = Decide(*s, c, job)
	if refusal == nil || len(s.Running) == 0 || len(s.Held) > 0 { // an ended job would change nothing
		return grant, refusal, nil
	}
	if ended = running.DropEnded(); len(ended) == 0 {
		return grant, refusal, nil
	}
	read()
	grant, refusal = Decide(*s, c, job)
	return grant, refusal, ended
}

// refused notes what a refusal says of a GPU: START must see it too, or the job comes back at
// once. Only a hook is believed that a GPU is full: it runs before the job can.
func (p *Preparer) refused(running *jobs.View, c starter.Caller, g *plan.GPU, r *api.Refusal) {
	switch {
	case g == nil:
	case r.Code == api.CodeClosed:
		p.Changed()
	case r.Code == api.CodeNotPlanned && c.Hook && len(running.HeldBy(c.Starter)) == 0:
		running.NoteFull(g.UUID)
	}
}

// entered is what an admission leaves to do after the job table's lock was given back.
type entered struct {
	// shared is the GPU with MPS whose pipe directory opens; empty for other jobs.
	shared gpu.UUID
	// undo takes back the partition that the job took now; nil where it took none.
	undo func()
	// ended are the jobs that the decision found ended.
	ended []jobs.Job
}

// settle does what changes files after an admission: it shuts out who ended, keeps
// whose the partition is and opens the pipe directory. If that fails, the job that was
// entered is released again, unless it was there before.
func (p *Preparer) settle(s State, c starter.Caller, did entered, refusal *api.Refusal) *api.Refusal {
	if len(did.ended) > 0 {
		p.Ended(did.ended)
	}
	if refusal != nil || did.shared == "" {
		return refusal
	}
	if refusal = p.open(did.shared, c, did.undo != nil); refusal == nil {
		return nil
	}
	if did.undo != nil {
		did.undo()
	}
	if !slices.ContainsFunc(s.Held, func(r jobs.Job) bool { return r.GPU == did.shared }) {
		p.Jobs.Release(c.Starter, did.shared)
	}
	return refusal
}

// open opens a GPU's pipe directory to a caller's account. Partition says that whose its
// partitions are has to be written first.
func (p *Preparer) open(u gpu.UUID, c starter.Caller, partition bool) *api.Refusal {
	if partition {
		if err := p.Partitions.Write(); err != nil {
			p.Log.Error("keep whose partition it is", "gpu", u, "slot", c.Starter.Slot, "err", err)
			return api.Refuse(api.CodeClosed, fmt.Sprintf("%s is closed: whose its partitions are cannot be kept: %v", u, err))
		}
	}
	if err := p.Access.Give(u, c.UID); err != nil {
		p.Log.Error("open the pipe directory", "gpu", u, "uid", c.UID, "err", err)
		return api.Refuse(api.CodeClosed, fmt.Sprintf(
			"%s is closed: its pipe directory cannot be opened to uid %d: %v: look at gpuslot status", u, c.UID, err))
	}
	return nil
}

// entries are what the job table gets of an admitted job. Undo takes back the partition that
// it takes now, if any.
func (p *Preparer) entries(
	s State, c starter.Caller, job *api.Job, g *plan.GPU, gpus []gpu.UUID, grant *api.Grant,
) (enter []jobs.Job, undo func()) {
	j := jobs.Job{
		Starter: c.Starter, Account: starter.Account{UID: c.UID, Known: true}, Owner: job.Owner, ID: job.ID, Group: job.Group,
		VO: job.VO, Work: jobs.WorkOf(c, job), EnforcedBy: grant.EnforcedBy, Since: s.Now, Confirmed: c.Confirmed,
	}
	if g != nil {
		if g.Partitioned() {
			undo = p.Partitions.Take(c.Starter, g.UUID, s.Partition)
		}
		j.Budget, _ = s.budget(g, job) // admitted, so there is one
	}
	for _, u := range gpus {
		j.GPU, j.Device = u, ""
		if d := s.deviceOf(u); d != u {
			j.Device = d
		}
		enter = append(enter, j)
	}
	return enter, undo
}
