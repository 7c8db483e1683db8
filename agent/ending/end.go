package ending

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/rules"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// End lets MPS clients leave before a signal ends them. A supervisor asks for its
// own leaf: a login by condor_ssh_to_job has a supervisor too, and the job goes
// on when its user logs out; a login goes on when the job's program ends.
func (e *Ender) End(ctx context.Context, c starter.Caller) (*api.Ended, error) {
	held, _, err := e.Jobs.OfCaller(&c)
	if err != nil || len(held) == 0 {
		return &api.Ended{}, err
	}
	release, err := e.turns.take(ctx, c.Starter)
	if err != nil {
		return nil, err
	}
	defer release()
	out := &api.Ended{}
	if c.Alone(e.Root) {
		held = nil // no client of its is left, on any GPU
	}
	var errs []error
	for _, r := range held {
		if !e.MPS(r.GPU) {
			continue
		}
		pids, err := e.clientsOf(ctx, r, c)
		errs = append(errs, err)
		if err == nil && len(pids) > 0 {
			step := e.EndClients(ctx, r.GPU, pids, r.Starter)
			out.Clients += len(step.Free)
			out.Remaining += len(step.Waiting)
		}
	}
	if !c.Leaf.Login {
		e.Reservations.EndReservation(ctx, c.Starter)
		out.Wait = e.Holds.HoldOf(c.Starter).Reason
	}
	return out, errors.Join(errs...)
}

// clientsOf are the MPS clients that run in a job's slot, in the leaf of a caller.
func (e *Ender) clientsOf(ctx context.Context, r jobs.Job, caller starter.Caller) ([]int, error) {
	servers, err := e.Clients.Servers(ctx, r.GPU)
	if err != nil {
		return nil, err
	}
	var own []int
	for _, s := range servers {
		for _, pid := range s.Clients {
			owner, ok := e.Jobs.StarterOf(pid)
			if ok && owner.Is(r.Starter) && e.Processes.Together(pid, caller, r.Starter) {
				own = append(own, pid)
			}
		}
	}
	return own, nil
}

// EndClients ends processes as MPS clients. Nothing here kills one.
func (e *Ender) EndClients(ctx context.Context, u gpu.UUID, pids []int, s starter.Starter) mps.EndStep {
	begin := time.Now()
	step, err := e.Clients.EndClients(ctx, u, pids, mps.DefaultEndRules)
	switch {
	case err != nil:
		e.Log.Error("MPS clients were not ended", "gpu", u, "slot", s.Slot, "pids", pids, "err", err)
	case len(step.Waiting) > 0:
		e.Log.Error("MPS clients did not end in time", "gpu", u, "slot", s.Slot, "pids", step.Waiting)
	default:
		e.Log.Info("MPS clients ended", "gpu", u, "slot", s.Slot, "pids", step.Free,
			"took", time.Since(begin).Round(time.Millisecond))
	}
	return step
}

// killBeside kills the processes of a job that compute beside MPS: they are no
// clients, so that no neighbour suffers.
func (e *Ender) killBeside(f rules.Finding) {
	for _, pid := range f.Beside {
		if err := e.killOf(pid, f.Starter); err != nil && !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, unix.ESRCH) {
			e.Log.Error("a process beside MPS was not killed", "gpu", f.GPU, "slot", f.Starter.Slot, "pid", pid, "err", err)
		}
	}
}

// killOf kills a process if it still runs in that slot.
func (e *Ender) killOf(pid int, s starter.Starter) error {
	return killIf(pid, func() bool {
		owner, ok := e.Jobs.StarterOf(pid)
		return ok && owner.Is(s)
	})
}

// killIf kills a process if it is the right one; the handle makes sure that it is the one looked at.
func killIf(pid int, right func() bool) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if !right() {
		return os.ErrProcessDone
	}
	return unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
}

// killing is who is looked at and killed: what computes beside MPS of a job, or on a GPU outside of all jobs, or has
// nodes of the GPU open there.
type killing struct {
	of    starter.Starter
	gpu   gpu.UUID
	nodes bool
}

// once does this in the background, unless it still does. A sample does not wait: where a process is, which is asked
// again before it is killed, the kernel may take long to say. A kind has one thread at a time.
func (e *Ender) once(kind killing, do func()) {
	if _, busy := e.kills.LoadOrStore(kind, struct{}{}); busy {
		return
	}
	e.ends.Go(func() {
		defer e.kills.Delete(kind)
		do()
	})
}

// Punish does what the site wants done with a job that broke a rule. HTCondor
// hears of it first, then the job's clients go: a program that meets their
// end may itself end before the hold is there, and its supervisor must know.
// Until HTCondor has ended the job, each sample that finds a breach ends the
// clients again.
func (e *Ender) Punish(ctx context.Context, f rules.Finding) {
	if f.Enforce == config.EnforceReport {
		if f.First {
			e.Metrics.Breach(f.GPU, f.Code, string(f.Enforce))
			e.Events.Event(history.Event{
				Kind: history.EventBreach, GPU: f.GPU, Slot: condor.SlotName(f.Starter.Slot), Job: f.ID, Text: f.Reason,
			})
			e.Log.Warn("a job breaks a rule",
				"slot", f.Starter.Slot, "job", f.ID, "gpu", f.GPU, "code", f.Code, "reason", f.Reason)
		}
		return
	}
	hold := api.Hold{
		Slot: condor.SlotName(f.Starter.Slot), Job: f.ID, Code: f.Code, Reason: f.Reason, Since: time.Now().UTC().Round(0),
	}
	if e.Holds.Hold(f.Starter, hold) {
		e.Metrics.Breach(f.GPU, f.Code, string(f.Enforce))
		e.Events.Event(history.Event{
			Kind: history.EventHold, GPU: f.GPU, Slot: condor.SlotName(f.Starter.Slot), Job: f.ID,
			By: history.ByAgent, Text: f.Reason,
		})
		if err := e.LinkHolds(); err != nil {
			e.Log.Error("a job that is to be held may end as if it were done", "err", err)
		}
		e.Log.Warn("HTCondor is to hold a job",
			"slot", f.Starter.Slot, "job", f.ID, "gpu", f.GPU, "code", f.Code, "reason", f.Reason)
	} else if e.Holds.HoldOf(f.Starter).Code == 0 {
		return // it has ended
	}
	if f.Enforce == config.EnforceKill {
		e.once(killing{of: f.Starter, gpu: f.GPU}, func() { e.killBeside(f) })
	}
	if _, busy := e.punished.LoadOrStore(f.Starter, struct{}{}); busy {
		return
	}
	e.ends.Go(func() {
		defer e.punished.Delete(f.Starter)
		e.EndClients(ctx, f.GPU, f.PIDs, f.Starter)
		e.Reservations.EndReservation(ctx, f.Starter)
		for _, s := range f.Elsewhere {
			e.EndClients(ctx, s.GPU, []int{s.PID}, f.Starter)
		}
	})
}

// TakeBack ends the connections that jobs made to GPUs that their slots do not have. The
// pipe directories are closed already.
func (e *Ender) TakeBack(ctx context.Context, taken []jobs.Job) {
	for _, r := range taken {
		if e.MPS(r.GPU) {
			e.ends.Go(func() { e.endConnections(ctx, r) })
		}
	}
}

// endConnections ends the MPS clients of a job on a GPU.
func (e *Ender) endConnections(ctx context.Context, r jobs.Job) {
	ctx, cancel := context.WithTimeout(ctx, endConnectionsTimeout)
	defer cancel()
	servers, err := e.Clients.Servers(ctx, r.GPU)
	if err != nil {
		e.Log.Error("connections of a job to a GPU that its slot does not have may stay",
			"gpu", r.GPU, "slot", r.Starter.Slot, "err", err)
		return
	}
	var pids []int
	for _, s := range servers {
		for _, pid := range s.Clients {
			if e.Starters.RunsBelow(pid, r.Starter) {
				pids = append(pids, pid)
			}
		}
	}
	if len(pids) > 0 {
		e.EndClients(ctx, r.GPU, pids, r.Starter)
	}
}

// endConnectionsTimeout is well above what EndClients takes by its own rules.
const endConnectionsTimeout = 30 * time.Second
