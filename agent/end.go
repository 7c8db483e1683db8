package agent

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// Clients are the MPS clients of the node's control daemons.
type Clients interface {
	// Servers lists a daemon's servers with their clients: see mps.Daemon.Servers.
	Servers(ctx context.Context, u gpu.UUID) ([]mps.Server, error)
	// EndClients lets processes leave: see mps.Daemon.EndClients.
	EndClients(ctx context.Context, u gpu.UUID, pids []int, rules mps.EndRules) (mps.EndStep, error)
	// SetServers gives running servers their limits: see mps.Daemon.SetServers.
	SetServers(ctx context.Context, w mps.Wanted, servers []int) (mps.Proof, error)
}

func (c controlDaemons) Servers(ctx context.Context, u gpu.UUID) ([]mps.Server, error) {
	d, err := c.Daemon(u)
	if err != nil {
		return nil, err
	}
	return d.Servers(ctx)
}

func (c controlDaemons) EndClients(ctx context.Context, u gpu.UUID, pids []int, rules mps.EndRules) (mps.EndStep, error) {
	d, err := c.Daemon(u)
	if err != nil {
		return mps.EndStep{}, err
	}
	return d.EndClients(ctx, pids, rules)
}

func (c controlDaemons) SetServers(ctx context.Context, w mps.Wanted, servers []int) (mps.Proof, error) {
	d, err := c.Daemon(w.GPU)
	if err != nil {
		return mps.Proof{}, err
	}
	return d.SetServers(ctx, w, servers...)
}

// end lets MPS clients leave before a signal ends them. A supervisor asks for its
// own leaf: a login by condor_ssh_to_job has a supervisor too, and the job goes
// on when its user logs out; a login goes on when the job's program ends.
func (a *Agent) end(ctx context.Context, c starter.Caller) (*api.Ended, error) {
	held, _, err := a.jobs.OfCaller(&c)
	if err != nil || len(held) == 0 {
		return &api.Ended{}, err
	}
	release, err := a.endTurns.take(ctx, c.Starter)
	if err != nil {
		return nil, err
	}
	defer release()
	out := &api.Ended{}
	v := a.view.Load()
	own := a.proc.Leaf(c.PID)
	if a.proc.Alone(a.cgroupRoot, c.PID) {
		held = nil // no client of its is left, on any GPU
	}
	var errs []error
	for _, r := range held {
		if g, ok := find(&v.plan, r.GPU); !ok || !g.Shared() {
			continue
		}
		pids, err := a.clientsOf(ctx, r, c.PID)
		errs = append(errs, err)
		if err == nil && len(pids) > 0 {
			step := a.endClients(ctx, r.GPU, pids, r.Starter)
			out.Clients += len(step.Free)
			out.Remaining += len(step.Waiting)
		}
	}
	if !own.Login {
		a.limits.EndReservation(ctx, c.Starter)
		out.Wait = a.jobs.HoldOf(c.Starter).Reason
	}
	return out, errors.Join(errs...)
}

// endPause is the least time between two answers to one job: each costs the
// control daemon a conversation, and a job may ask as often as it likes.
const endPause = 200 * time.Millisecond

// endTurns are the ends of jobs that are asked for.
type endTurns struct {
	mu sync.Mutex
	by map[starter.Starter]*endTurn
}

// endTurn is one job's: free holds its owner, waiting counts the owner too.
type endTurn struct {
	free    chan struct{}
	last    time.Time
	waiting int
}

// take lets one question of a job's end in at a time, and one wait.
func (t *endTurns) take(ctx context.Context, s starter.Starter) (release func(), err error) {
	t.mu.Lock()
	turn := t.by[s]
	if turn == nil {
		turn = &endTurn{free: make(chan struct{}, 1)}
		t.by[s] = turn
	}
	turn.waiting++
	waiting := turn.waiting
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		turn.waiting--
	}
	if waiting > 2 {
		leave()
		return nil, errors.New("the job's end is being asked for already: wait for that answer")
	}
	select {
	case turn.free <- struct{}{}:
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
	pause(ctx, endPause-time.Since(turn.last))
	return func() {
		turn.last = time.Now()
		<-turn.free
		leave()
	}, nil
}

// forget drops the turns of a job that has ended.
func (t *endTurns) forget(s starter.Starter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.by, s)
}

// clientsOf are the MPS clients that run in a job's slot, in the leaf of a caller.
func (a *Agent) clientsOf(ctx context.Context, r jobs.Job, caller int) ([]int, error) {
	servers, err := a.clients.Servers(ctx, r.GPU)
	if err != nil {
		return nil, err
	}
	var own []int
	for _, s := range servers {
		for _, pid := range s.Clients {
			owner, ok := a.jobs.StarterOf(pid)
			if ok && owner.Is(r.Starter) && a.proc.Together(pid, caller, r.Starter) {
				own = append(own, pid)
			}
		}
	}
	return own, nil
}

// endClients ends processes as MPS clients. Nothing here kills one.
func (a *Agent) endClients(ctx context.Context, u gpu.UUID, pids []int, s starter.Starter) mps.EndStep {
	begin := time.Now()
	step, err := a.clients.EndClients(ctx, u, pids, mps.DefaultEndRules)
	switch {
	case err != nil:
		a.log.Error("MPS clients were not ended", "gpu", u, "slot", s.Slot, "pids", pids, "err", err)
	case len(step.Waiting) > 0:
		a.log.Error("MPS clients did not end in time", "gpu", u, "slot", s.Slot, "pids", step.Waiting)
	default:
		a.log.Info("MPS clients ended", "gpu", u, "slot", s.Slot, "pids", step.Free, "took", time.Since(begin).Round(time.Millisecond))
	}
	return step
}

// killBeside kills the processes of a job that compute beside MPS: they are no
// clients, so that no neighbour suffers.
func (a *Agent) killBeside(f finding) {
	for _, pid := range f.Beside {
		if err := a.killOf(pid, f.Starter); err != nil && !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, unix.ESRCH) {
			a.log.Error("a process beside MPS was not killed", "gpu", f.GPU, "slot", f.Starter.Slot, "pid", pid, "err", err)
		}
	}
}

// killOf kills a process if it still runs in that slot; the handle makes sure
// that it is the one looked at.
func (a *Agent) killOf(pid int, s starter.Starter) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if owner, ok := a.jobs.StarterOf(pid); !ok || !owner.Is(s) {
		return os.ErrProcessDone
	}
	return unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
}
