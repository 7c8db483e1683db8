package agent

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/agent/admission"
	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/rules"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// site is the agent as package usage asks it.
type site struct{ a *Agent }

// Slot is the slot of a process whose job was admitted.
func (s site) Slot(pid int, started uint64) (usage.SlotKey, bool) {
	owner, ok := s.a.jobs.StarterOf(pid)
	if !ok || !s.a.proc.Runs(process.ID{PID: pid, Started: started}) {
		return usage.SlotKey{}, false
	}
	return rules.SlotKey(owner), true
}

// Bookings are the running slots. A docker universe job has none: its processes
// cannot be told, and a booked slot without a process uses nothing.
func (s site) Bookings() []usage.Booking {
	v := s.a.view.Load()
	var out []usage.Booking
	running, together := s.a.jobs.Running(), map[gpu.UUID]int{}
	for _, r := range running {
		together[r.GPU]++
	}
	for _, r := range running {
		g, ok := v.plan.Find(r.GPU)
		if !ok || r.Work.Docker {
			continue
		}
		b := usage.Booking{Slot: rules.SlotKey(r.Starter), Device: s.device(g), Share: 1, Cap: 1}
		if r.Beside {
			b.Share = 1 / float64(max(1, together[r.GPU]))
		}
		if g.Shared() {
			b.MPS, b.Share = true, float64(r.Budget)/float64(max(g.Pool, 1))
			b.Cap = capOf(v, r.GPU)
		}
		out = append(out, b)
	}
	return out
}

// device is a GPU or MIG device in the words of package usage.
func (site) device(g *plan.GPU) usage.Device {
	if g.MIGDevice() {
		return usage.Device{GPU: g.Parent, MIG: g.Device}
	}
	return usage.Device{GPU: g.UUID}
}

// capOf is the part of a GPU's multiprocessors that its control daemon lets one
// client have. The daemon rounds down to what the hardware grants, so its
// percentage is an upper bound; without privilege checks (up to driver 535) any
// account can lift it, and a server with other limits has its own.
func capOf(v *view, u gpu.UUID) float64 {
	g := v.daemons[u]
	if !v.health(u).PrivilegeChecks || g.Err != nil || g.Proof.PID == 0 || len(g.Proof.Stale) > 0 {
		return 1
	}
	return min(1, g.Wanted.ThreadPercentage/100)
}

// Server says that a process is an MPS server: a control daemon listed it, or
// started it since it was last asked.
func (s site) Server(pid int, started uint64) bool {
	for _, g := range s.a.view.Load().daemons {
		for _, srv := range g.Proof.States {
			if srv.PID == pid && srv.Started == started {
				return true
			}
		}
	}
	// Its name and its program do not count: any account may take them.
	return s.a.proc.StartedBy(process.ID{PID: pid, Started: started}, s.controls)
}

// controls says that a process is the control daemon of a GPU: the proven one, or
// the one that holds its lock now.
func (s site) controls(p process.ID) bool {
	for u, g := range s.a.view.Load().daemons {
		if g.Proof.Process() == p || s.a.daemons.Pulse(u, mps.Proof{PID: p.PID, Started: p.Started}).Err == nil {
			return true
		}
	}
	return false
}

// sample reads what jobs use, again and again, and holds them to it. It has a
// loop of its own: a driver that hangs must not stop proofs, nor these it.
func (a *Agent) sample(ctx context.Context) {
	if a.sampler == nil {
		return
	}
	broken := rules.Breaches{}
	a.looks.Begin(time.Now())
	for {
		begin, interval := time.Now(), a.view.Load().config.Usage.Interval
		a.sampler.Pace(interval) // the configuration may have been read again
		a.sampler.Round(ctx)
		if a.view.Load().plan.Observe {
			a.sweepNow()
		}
		a.remember()
		a.greet()
		broken = a.watch(ctx, broken, time.Now())
		pause(ctx, interval-time.Since(begin))
		if ctx.Err() != nil {
			return
		}
	}
}

// greet wakes the loop for a server that no proof has told of yet: nothing is
// known of its state and limits.
func (a *Agent) greet() {
	v := a.view.Load()
	for _, d := range a.sampler.Snapshot().Devices {
		for _, p := range d.Processes.Value {
			known := slices.ContainsFunc(v.daemons[d.GPU].Proof.States, func(s mps.Server) bool { return s.PID == p.PID })
			if p.Owner == usage.OwnerServer && !known {
				nudge(a.wake)
			}
		}
	}
}

// watch judges the last sample and acts on what it finds.
func (a *Agent) watch(ctx context.Context, b rules.Breaches, now time.Time) rules.Breaches {
	v := a.view.Load()
	r := rules.Rules{
		Budgets: v.config.Budgets, Unattached: v.config.Health.Unattached, AttachWithin: v.config.Health.AttachWithin,
		Slack: v.config.Usage.Interval / 2,
	}
	snap := a.sampler.Snapshot()
	jobs := rules.Sampled(snap, &v.plan, a.jobs.Running())
	for i := range jobs {
		j := &jobs[i]
		if j.Known {
			j.Outside = a.limits.Outside(j.Job, j.PIDs, a.limited(v, j.GPU))
		}
		if !j.Memory.Known { // NVML does not say what its processes use
			j.Memory = a.limits.Used(j.Starter, j.GPU, now)
		}
	}
	a.lookIntoContainers(jobs, v.config.Paths.PipeRoot())
	for _, j := range jobs {
		a.keeper.Note(j.Job, j.PIDs, now)
	}
	a.keeper.ForgetUnseen(now)
	toBeHeld := a.jobs.ToBeHeld()
	for i := range jobs {
		jobs[i].ToBeHeld = toBeHeld[jobs[i].Starter]
	}
	next, found := b.Judge(jobs, r, now)
	for _, f := range found {
		a.ender.Punish(ctx, f)
	}
	a.looks.Note(snap)
	for _, e := range a.contended.events(snap) {
		a.history.Event(e)
	}
	return next
}

// uses is what the last sample says of one GPU, for the status.
type uses struct {
	snap      *usage.Snapshot
	device    usage.Device
	mib       *int64
	sm, watts *float64
	strangers []api.StatusProcess
}

func (a *Agent) uses(u gpu.UUID) uses {
	out := uses{device: usage.Device{GPU: u}}
	if a.sampler == nil {
		return out
	}
	out.snap = a.sampler.Snapshot()
	out.device = out.snap.DeviceOf(u)
	d, ok := out.snap.Device(out.device)
	if !ok {
		return out
	}
	out.sm, out.watts = known(d.Activity), known(d.Power)
	if d.Memory.Known {
		out.mib = new(int64)
		*out.mib = int64(d.Memory.Value.Used.MiB())
	}
	for _, p := range d.Processes.Value {
		if p.MPSClient && p.Owner == usage.OwnerSlot || p.Owner == usage.OwnerServer {
			continue
		}
		s := api.StatusProcess{PID: p.PID, Slot: p.Slot.Slot, MPSClient: p.MPSClient}
		if p.Memory.Known {
			s.VRAMMiB = new(int64)
			*s.VRAMMiB = int64(p.Memory.Value.MiB())
		}
		out.strangers = append(out.strangers, s)
	}
	return out
}

// of fills in a job's part.
func (u uses) of(j *api.StatusJob, s starter.Starter) {
	if u.snap == nil {
		return
	}
	used, ok := u.snap.Slot(rules.SlotKey(s), u.device)
	if !ok {
		return
	}
	j.SMMin, j.SM, j.SMMax = known(used.SM.Lower), known(used.SM.Estimate), known(used.SM.Upper)
	j.Joules = known(used.Job.Energy.Estimate)
	if !used.Memory.Known {
		return
	}
	mib, n := int64(used.Memory.Value.MiB()), used.Processes
	j.UseMiB, j.Processes = &mib, &n
}

// known is a pointer to what was measured; nil if it was not.
func known(m gpu.Measured[float64]) *float64 {
	if !m.Known {
		return nil
	}
	return &m.Value
}

// watched says whether jobs on a GPU are held to their budgets by sampling.
func (a *Agent) watched(v *view, u gpu.UUID) bool {
	if a.sampler == nil || v.config.Budgets.Enforce != config.EnforceHold {
		return false
	}
	snap := a.sampler.Snapshot()
	d, ok := snap.Device(snap.DeviceOf(u))
	return ok && d.Processes.Known && d.Memory.Known
}

// health is what admission rests on, but for the cheap check and for who holds
// the GPU closed.
func (a *Agent) health(v *view, u gpu.UUID, now time.Time) admission.Health {
	h := a.unverifiedHealth(v, u, now)
	if h.Closed == "" {
		h.Closed = a.unverified(v, u)
	}
	return h
}

// unverifiedHealth is the view's, with what servers, events and samples add.
func (a *Agent) unverifiedHealth(v *view, u gpu.UUID, now time.Time) admission.Health {
	h := v.health(u)
	if h.Closed == "" {
		h.Closed = v.daemons[u].Servers.Explain(a.troubles.Verdict(v.physical(u), now))
	}
	if h.Closed == "" {
		h.Closed = v.daemons[u].Servers.Closed(now)
	}
	if h.Closed == "" {
		h.Closed = a.blocked(v, u)
	}
	if h.Closed == "" {
		h.Closed = a.unwatched(v, u, now)
	}
	h.Watched = a.watched(v, u)
	h.CgroupLimits = a.limited(v, u)
	return h
}

// blocked says that a process which is no MPS client keeps every server from an
// exclusive GPU, so that no job could attach: it came while none was there.
func (a *Agent) blocked(v *view, u gpu.UUID) string {
	if g, ok := v.plan.Find(u); ok && g.MIGDevice() {
		return a.besideMPS(g)
	}
	if a.sampler == nil || v.modes[u] != string(gpu.ComputeModeExclusiveProcess) || len(v.daemons[u].Proof.States) > 0 {
		return ""
	}
	d, ok := a.sampler.Snapshot().Device(usage.Device{GPU: u})
	if !ok {
		return ""
	}
	for _, p := range d.Processes.Value {
		if p.Owner == usage.OwnerServer || p.MPSClient {
			return "" // one is there all the same
		}
	}
	for _, p := range d.Processes.Value {
		switch p.Owner {
		case usage.OwnerSlot:
			return fmt.Sprintf("process %d of %s holds it without MPS, and no MPS server can start beside it: wait until "+
				"it ends, or set [health] unattached", p.PID, p.Slot.Slot)
		case usage.OwnerNone:
			return fmt.Sprintf("process %d, which is no job's, holds it without MPS, and no MPS server can start beside "+
				"it: end that process", p.PID)
		}
	}
	return ""
}

// besideMPS says that a process of no job computes on a shared MIG device without MPS. Only
// jobs may open the device's nodes, so it has them from one.
func (a *Agent) besideMPS(g *plan.GPU) string {
	if a.sampler == nil {
		return ""
	}
	d, _ := a.sampler.Snapshot().Device(site{a}.device(g))
	for _, p := range d.Processes.Value {
		if p.Owner == usage.OwnerNone && !p.MPSClient && a.proc.Runs(process.ID{PID: p.PID, Started: p.Started}) {
			return fmt.Sprintf("process %d, which is no job's, computes on it without MPS: end that process", p.PID)
		}
	}
	return ""
}

// weaker orders walls.
func weaker(a, b string) bool {
	order := map[string]int{
		jobs.WallNone: 0, jobs.WallWatch: 1, jobs.WallDaemon: 2, jobs.WallCgroup: 3, jobs.WallWhole: 4, jobs.WallMIG: 4,
	}
	return order[a] < order[b]
}
