// Package ending ends the MPS clients of jobs: when a job or a login ends, when a job broke a rule,
// and when it has connections to a GPU that its slot does not have. It also ends what users run on
// shared GPUs outside of jobs. MPS clients leave through
// their control daemon before a signal ends them, because the end of a client that computes can
// take its neighbours with it.
//
// Start at Ender. End answers a job's supervisor, Punish acts on what package rules found.
package ending

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// Clients are the MPS clients of the node's control daemons.
type Clients interface {
	// Servers lists a daemon's servers with their clients: see mps.Daemon.Servers.
	Servers(ctx context.Context, u gpu.UUID) ([]mps.Server, error)
	// EndClients lets processes leave: see mps.Daemon.EndClients.
	EndClients(ctx context.Context, u gpu.UUID, pids []int, rules mps.EndRules) (mps.EndStep, error)
}

// Jobs are the running jobs; jobs.Table is the real one.
type Jobs interface {
	// OfCaller are the entries of a caller's job: see jobs.Table.OfCaller.
	OfCaller(c *starter.Caller) (held []jobs.Job, others map[gpu.UUID]int, err error)
	// StarterOf is the starter of the job that a process is of.
	StarterOf(pid int) (starter.Starter, bool)
}

// Holds are the jobs that HTCondor is to hold; jobs.Table is the real one.
type Holds interface {
	// Hold notes that HTCondor is to hold a job; false if it has ended, or is noted already.
	Hold(s starter.Starter, h api.Hold) bool
	HoldOf(s starter.Starter) api.Hold
}

// Processes are those of this node; starter.Node is the real one.
type Processes interface {
	Stat(pid int) (process.Stat, error)
	// Together says whether a process of a job is of the same leaf as a caller.
	Together(pid int, c starter.Caller, s starter.Starter) bool
}

// Starters says which processes are below a starter; starter.Node is the real one.
type Starters interface {
	RunsBelow(pid int, s starter.Starter) bool
}

// Users say which processes are users' own; starter.Users is the real one.
type Users interface {
	// OfUser says whether a process runs in a session or a service of a user, outside of all jobs.
	OfUser(pid int) bool
	// AccountOf is the real account of a process; not Known of root's and the agent's.
	AccountOf(pid int) (starter.Account, error)
}

// Reservations are the VRAM that the driver keeps for jobs; budget.Limits is the real one.
type Reservations interface {
	// EndReservation ends that of a job.
	EndReservation(ctx context.Context, s starter.Starter)
}

// Events are kept for operators; history.Writer is the real one.
type Events interface {
	Event(e history.Event)
}

// Metrics count; metrics.Metrics is the real one.
type Metrics interface {
	// Breach counts a job that broke a rule, by its code and what the site does about it.
	Breach(u gpu.UUID, code int, enforce string)
}

// Options are what an Ender works with.
type Options struct {
	Clients      Clients
	Jobs         Jobs
	Holds        Holds
	Processes    Processes
	Starters     Starters
	Users        Users
	Reservations Reservations
	Events       Events
	Metrics      Metrics
	Log          *slog.Logger
	// Proc is /proc. Root is where cgroups are mounted, FUSE where the kernel lists file systems of users:
	// /sys/fs/fuse/connections where empty.
	Proc       process.FS
	Root, FUSE string
	// MPS says whether a GPU of the plan has a control daemon.
	MPS func(gpu.UUID) bool
	// LinkHolds shows supervisors that HTCondor is to hold a job.
	LinkHolds func() error
}

// Ender ends MPS clients. Its methods may be called by several goroutines at a time.
type Ender struct {
	Options
	turns turns
	// ends are clients being ended, punished the jobs whose clients are because they broke
	// a rule, outside the GPUs where those of no job are. Kills are what is looked at and killed: see killing.
	ends     sync.WaitGroup
	punished sync.Map
	outside  sync.Map
	kills    sync.Map
	stopping atomic.Bool // while Wait does
	mu       sync.Mutex
	// killed are how often each process outside of jobs was killed.
	killed map[process.ID]int
}

// New returns an Ender.
func New(o Options) *Ender {
	return &Ender{Options: o, turns: turns{by: map[starter.Starter]*turn{}}, killed: map[process.ID]int{}}
}

// Forget drops what is known of a job that has ended.
func (e *Ender) Forget(s starter.Starter) { e.turns.forget(s) }

// Wait waits for the clients that are being ended. Looks for others end early.
func (e *Ender) Wait() {
	e.stopping.Store(true)
	defer e.stopping.Store(false)
	e.ends.Wait()
}
