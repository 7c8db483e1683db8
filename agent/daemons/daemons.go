// Package daemons keeps the MPS control daemons of this node's GPUs as the plan wants them,
// and knows how each of them is: one round asks every daemon for its limits, starts and stops
// daemons, gives running servers their limits, and restarts daemons that do not answer or
// lack flags. It starts a server on each idle GPU once, so that what keeps servers from
// starting is known before a job meets it (the self-test), and looks in the log of a server
// in FAULT for the client that caused it.
//
// Nothing is done to a daemon while jobs use it, unless an operator forces it.
//
// Start at Keeper.Round, which the agent's loop calls. It makes a State of each daemon from
// the one before (state.go); servers.go is about MPS servers, selftest.go about the self-test.
// How a daemon is spoken to is package mps's.
package daemons

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// Daemons are the node's control daemons, by GPU; mps.Daemons is the real one.
type Daemons interface {
	// Set makes the running daemons the wanted ones: see mps.Daemons.Set.
	Set(ctx context.Context, wanted []mps.Wanted) ([]mps.Result, error)
	// Check asks one daemon for its limits: see mps.Daemon.Check.
	Check(ctx context.Context, w mps.Wanted) (mps.Checked, error)
	// Restart ends a daemon and starts another: see mps.Daemons.Restart.
	Restart(ctx context.Context, w mps.Wanted) mps.Result
}

// Checks are the cheap ones; mps.Daemons is the real one.
type Checks interface {
	// QuickCheck checks in microseconds that processes that answered still run.
	QuickCheck(u gpu.UUID, p mps.Checked) mps.QuickCheck
}

// Clients are the MPS clients of control daemons; mps.Daemons is the real one.
type Clients interface {
	// Servers lists a daemon's servers with their clients: see mps.Daemon.Servers.
	Servers(ctx context.Context, u gpu.UUID) ([]mps.Server, error)
	// SetServers gives running servers their limits: see mps.Daemon.SetServers.
	SetServers(ctx context.Context, w mps.Wanted, servers []int) (mps.Checked, error)
}

// Servers are the MPS servers of control daemons; mps.Daemons is the real one.
type Servers interface {
	// StartServer asks for an account's server: see mps.Daemon.StartServer.
	StartServer(ctx context.Context, u gpu.UUID, uid uint32) error
	// ShutdownServer asks a server to end when its clients have: see
	// mps.Daemon.ShutdownServer.
	ShutdownServer(ctx context.Context, u gpu.UUID, server int) error
}

// Logs are what control daemons write; mps.Daemons is the real one.
type Logs interface {
	// Log is what a daemon wrote since a time: see mps.Daemons.Log.
	Log(ctx context.Context, u gpu.UUID, since time.Time) ([]string, error)
	// TrimLog bounds a log: see mps.Daemons.TrimLog.
	TrimLog(u gpu.UUID) error
}

// Partitions are static SM partitions; partitions.Partitions is the real one.
type Partitions interface {
	// Drop drops those of jobs that have ended.
	Drop() error
	// Have makes the partitions of a GPU that are missing. It says why the GPU has not all
	// of them; other means that only another start of its daemon helps.
	Have(ctx context.Context, g *plan.GPU, daemon process.ID, deadline time.Duration) (why string, other bool)
}

// Jobs are the running jobs; jobs.Table is the real one.
type Jobs interface {
	// Since are the jobs that had a part of a GPU at a time or later, and Busy says whether one has now.
	Since(u gpu.UUID, begin time.Time) []jobs.Job
	Busy(u gpu.UUID) bool
	// Unknown says which job has a GPU that is not known; empty if there is none.
	Unknown() string
}

// Access is who may use which daemon; access.List is the real one.
type Access interface {
	// Given counts the accounts that were let in; -1 if one is in now.
	Given(u gpu.UUID) int
}

// Owners say which job a process is of; jobs.Table is the real one.
type Owners interface {
	StarterOf(pid int) (starter.Starter, bool)
	// HeldBy are the entries of a starter's job, one for each of its GPUs.
	HeldBy(s starter.Starter) []jobs.Job
}

// Processes are those of this node; starter.Node is the real one.
type Processes interface {
	Runs(p process.ID) bool
	Args(pid int) ([]string, error)
	Stat(pid int) (process.Stat, error)
}

// Work is what runs on the GPUs.
type Work interface {
	// None says for certain that nothing but MPS servers is on a GPU, as samples show it.
	None(u gpu.UUID, now time.Time) bool
	// End lets MPS clients leave their server.
	End(ctx context.Context, u gpu.UUID, pids []int)
}

// Metrics count what daemons and servers do; metrics.Metrics is the real one.
type Metrics interface {
	// ServerFault counts an MPS server that met a fatal GPU error.
	ServerFault(u gpu.UUID)
	// ServerDied counts an MPS server that ended with clients.
	ServerDied(u gpu.UUID)
	// ForeignChange counts a limit that somebody else changed.
	ForeignChange(u gpu.UUID, setting string)
}

// Events keep what happens; history.Writer is the real one.
type Events interface{ Event(e history.Event) }

// Options are what a Keeper works with.
type Options struct {
	Daemons Daemons
	Checks  Checks
	Clients Clients
	// Servers and Logs are nil where neither self-tests nor logs are to be had.
	Servers    Servers
	Logs       Logs
	Partitions Partitions
	Jobs       Jobs
	Access     Access
	Owners     Owners
	Processes  Processes
	Work       Work
	Metrics    Metrics
	Events     Events
	Log        *slog.Logger
	// Own is the agent's account.
	Own uint32
	// Beat notes that the loop is alive. It is called before each step that takes long.
	Beat func()
}

// Keeper keeps the control daemons of this node. Restart may be called by goroutines of
// their own; all else belongs to the agent's loop.
type Keeper struct {
	Options
	// last is what was wanted of the daemons last. Settled: they were set so without errors.
	last    []mps.Wanted
	settled bool
	// flagged are the daemons that were restarted for their flags: a second restart would not help.
	flagged map[gpu.UUID]process.ID
	// partitioned are those that were for their partitions.
	partitioned map[gpu.UUID]repeated
	// repeated are the daemons that were restarted to repeat their self-test.
	repeated map[gpu.UUID]repeated
	// ended is the last server of each GPU whose end was logged.
	ended map[gpu.UUID]process.ID
	// logged is of the server of each GPU whose log was read last.
	logged map[gpu.UUID]logged
	orders chan Order
}

// New returns a Keeper that has asked no daemon yet.
func New(o Options) *Keeper {
	return &Keeper{
		Options: o, flagged: map[gpu.UUID]process.ID{}, partitioned: map[gpu.UUID]repeated{},
		repeated: map[gpu.UUID]repeated{},
		ended:    map[gpu.UUID]process.ID{}, logged: map[gpu.UUID]logged{}, orders: make(chan Order),
	}
}

// Node is what a round rests on.
type Node struct {
	Plan  *plan.Plan
	Paths config.Paths
	// Wanted are the daemons to run: see Keeper.Wanted.
	Wanted []mps.Wanted
	// Last are the states of the last round.
	Last map[gpu.UUID]State
	// Accounts are those of tenancy "common:<user>", by name.
	Accounts map[string]starter.Account
	// Deadline is that of one question to a daemon.
	Deadline time.Duration
	// Keep: no daemon is started or stopped, because which ones jobs use is not known.
	Keep bool
}

// Recall takes over the daemons of the agent before this one.
func (k *Keeper) Recall(daemons []mps.Wanted) { k.last = daemons }

// Wanted are the plan's daemons, and those of GPUs that leave the plan while jobs still use
// them: no daemon is stopped under its jobs.
func (k *Keeper) Wanted(p *plan.Plan) []mps.Wanted {
	out := p.ControlDaemons()
	for _, w := range k.last {
		if !Wants(out, w.GPU) && (k.Jobs.Busy(w.GPU) || k.Jobs.Unknown() != "") {
			out = append(out, w)
		}
	}
	return out
}

// Wants says whether a GPU is to have a daemon.
func Wants(wanted []mps.Wanted, u gpu.UUID) bool {
	return slices.ContainsFunc(wanted, func(w mps.Wanted) bool { return w.GPU == u })
}

// Settled says that the daemons were set as they were wanted in the last round.
func (k *Keeper) Settled() bool { return k.settled }

// Round brings the daemons to what is wanted, and returns how they are. The steps build on
// each other: a daemon is asked before it is set, has its flags before its partitions, and
// those before a server is tried in it.
func (k *Keeper) Round(ctx context.Context, n Node) (now map[gpu.UUID]State, problems []error) {
	problem := func(err error) {
		if err != nil {
			problems = append(problems, err)
		}
	}
	k.Beat()
	began := time.Now()
	problem(writeFlags(n.Paths, *n.Plan))
	now = k.Probe(ctx, n.Last, n.Wanted, n.Deadline)
	k.reportForeignChanges(n.Last, now)
	if !n.Keep && k.needsSet(now, n.Wanted) {
		k.Beat()
		err := k.Set(ctx, now, n.Wanted)
		k.settled = err == nil
		problem(err)
	}
	k.correctFlags(ctx, n.Plan, now)
	problem(k.partition(ctx, n.Plan, now, n.Deadline))
	k.last = n.Wanted
	k.repairServers(ctx, now, n.Deadline)
	k.restartUnanswered(ctx, now, time.Now())
	k.tellFaults(now, began)
	k.testServers(ctx, &n, now)
	if k.Logs != nil {
		for _, w := range n.Wanted {
			if err := k.Logs.TrimLog(w.GPU); err != nil {
				problem(fmt.Errorf("the log of the control daemon of %s grows without end: %w", w.GPU, err))
			}
		}
	}
	k.endLeftovers(now, time.Now())
	return now, problems
}

// probers is how many daemons are asked at once at most.
const probers = 8

// Probe asks every daemon once for its limits, several at a time.
func (k *Keeper) Probe(
	ctx context.Context, last map[gpu.UUID]State, wanted []mps.Wanted, deadline time.Duration,
) map[gpu.UUID]State {
	states := make([]State, len(wanted))
	free := make(chan struct{}, probers)
	var wg sync.WaitGroup
	for i, w := range wanted {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			ctx, cancel := context.WithTimeout(ctx, deadline)
			defer cancel()
			p, err := k.Daemons.Check(ctx, w)
			states[i] = last[w.GPU].next(w, p, err)
		})
	}
	wg.Wait()
	out := make(map[gpu.UUID]State, len(wanted))
	for i, w := range wanted {
		out[w.GPU] = states[i]
	}
	return out
}

// needsSet: something is wanted otherwise than at the last Set, or a daemon is in a state
// that Set repairs.
func (k *Keeper) needsSet(now map[gpu.UUID]State, wanted []mps.Wanted) bool {
	if !k.settled || !slices.Equal(wanted, k.last) {
		return true
	}
	for _, s := range now {
		if s.Err != nil && s.repairable() {
			return true
		}
	}
	return false
}

// setTimeout bounds one Set of all daemons: starting one takes milliseconds,
// and a wedged one is left alone after a few seconds.
const setTimeout = 20 * time.Second

// Set sets all daemons and enters in states what came of it. Without wanted ones it stops
// all; states may then be nil.
func (k *Keeper) Set(ctx context.Context, states map[gpu.UUID]State, wanted []mps.Wanted) error {
	ctx, cancel := context.WithTimeout(ctx, setTimeout)
	defer cancel()
	results, err := k.Daemons.Set(ctx, wanted)
	var left error
	byGPU := make(map[gpu.UUID]mps.Wanted, len(wanted))
	for _, w := range wanted {
		byGPU[w.GPU] = w
	}
	for _, r := range results {
		w, kept := byGPU[r.GPU]
		switch {
		case !kept && r.Err != nil:
			left = errors.Join(left, fmt.Errorf("stop the control daemon of %s: %w", r.GPU, r.Err))
			k.Log.Error("control daemon not stopped", "gpu", r.GPU, "err", r.Err)
		case !kept:
			k.Log.Info("control daemon stopped", "gpu", r.GPU)
		default:
			was := states[r.GPU]
			states[r.GPU] = was.next(w, r.Checked, r.Err)
			if r.Err == nil && (r.Action == mps.Started || was.Err != nil) {
				k.Events.Event(history.Event{
					Kind: history.EventRestart, GPU: r.GPU, By: history.ByAgent,
					Text: fmt.Sprintf("Its control daemon was set (%s): pid %d, limit %s.",
						r.Action, r.Checked.PID, r.Checked.Limit),
				})
				k.Log.Info("control daemon set",
					"gpu", r.GPU, "did", r.Action, "pid", r.Checked.PID, "limit", r.Checked.Limit)
			}
		}
	}
	if err != nil {
		return fmt.Errorf("control daemons: %w", err)
	}
	return left // tried again in the next round
}

// StopAll stops all daemons, so that the driver can be taken away.
func (k *Keeper) StopAll(ctx context.Context) error {
	if err := k.Set(ctx, map[gpu.UUID]State{}, nil); err != nil {
		return err
	}
	k.last, k.settled = nil, false
	return nil
}

// Stop stops the daemon of a MIG device that goes. A job on it is an error.
func (k *Keeper) Stop(ctx context.Context, u gpu.UUID) error {
	if k.Jobs.Busy(u) {
		return fmt.Errorf("a job of HTCondor's has %s: %w", u, gpu.ErrInUse)
	}
	if !Wants(k.last, u) {
		return nil
	}
	rest := slices.DeleteFunc(slices.Clone(k.last), func(w mps.Wanted) bool { return w.GPU == u })
	ctx, cancel := context.WithTimeout(ctx, setTimeout)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return err // the change was abandoned: the loop goes on beside it
	}
	results, err := k.Daemons.Set(ctx, rest)
	for _, r := range results {
		if r.GPU == u {
			err = errors.Join(err, r.Err)
		}
	}
	if err == nil {
		k.last, k.settled = rest, false
	}
	return err
}

// clients are the PIDs of the clients of all servers of a GPU.
func (k *Keeper) clients(ctx context.Context, u gpu.UUID) ([]int, error) {
	servers, err := k.Clients.Servers(ctx, u)
	var all []int
	for _, s := range servers {
		all = append(all, s.Clients...)
	}
	return all, err
}

// idle says for certain that no job and no MPS client is on a GPU, so that a restart of its
// daemon harms nobody.
func (k *Keeper) idle(ctx context.Context, u gpu.UUID) bool {
	clients, err := k.clients(ctx, u)
	return err == nil && len(clients) == 0 && !k.Jobs.Busy(u) && k.Jobs.Unknown() == ""
}
