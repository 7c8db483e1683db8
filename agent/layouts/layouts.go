// Package layouts makes the MIG layouts of this node's GPUs: it turns MIG mode on, creates
// and destroys MIG devices, lets layouts follow the work that waits in the pool, and takes
// everything back when a GPU is not to be divided any more. Which layout is best, and the
// steps to it, are package mig's to find.
//
// Devices that jobs use stay as they are. A device that has to go takes no new jobs until
// it can. What waits in the pool is a reason to change idle devices and nothing else:
// limits rest on nothing that a user's job says.
//
// Start at Layouts.Round, which the agent's loop calls. make.go makes one layout, change.go
// waits for a change without holding up the loop, follow.go and waiting.go decide on other
// layouts for the waiting work, leave.go takes devices back, saved.go has what outlives the
// agent.
package layouts

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/modes"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// Jobs are the running jobs; jobs.Table is the real one.
type Jobs interface {
	Running() []jobs.Job
	// Unknown says which job has a GPU that is not known; empty if there is none.
	Unknown() string
	// Reserve keeps new jobs off devices that are about to go. If a job has one already it
	// returns the job's slot and reserves nothing.
	Reserve(devices []gpu.UUID) (slot string)
}

// Daemons are the control daemons of this node.
type Daemons interface {
	// Stop stops the one of a MIG device, if it has one and no job uses it.
	Stop(ctx context.Context, device gpu.UUID) error
	// Owns says whether a process is the control daemon of a device, or an MPS server of
	// it without clients.
	Owns(device gpu.UUID, pid int) bool
	// Probe asks those of all GPUs but one for their limits: after a while without an
	// answer a GPU takes no jobs.
	Probe(ctx context.Context, but gpu.UUID)
}

// Metrics count layouts; metrics.Metrics is the real one.
type Metrics interface {
	// LayoutFollowed counts a GPU that got another layout for the waiting work.
	LayoutFollowed(u gpu.UUID)
}

// Events keep what happens; history.Writer is the real one.
type Events interface{ Event(e history.Event) }

// Options are what Layouts work with.
type Options struct {
	// Executor changes layouts. Without hardware nothing does: the inventory is then a
	// recorded file. Its Dir, Log and Release are set here.
	Executor mig.Executor
	Paths    config.Paths
	Jobs     Jobs
	Daemons  Daemons
	Metrics  Metrics
	Events   Events
	// Evict ends what users run outside of jobs with device nodes of a GPU open: it keeps the layout as it is.
	Evict func(u gpu.UUID)
	Log   *slog.Logger
	// Beat notes that the loop is alive. It is called before each step that takes long.
	Beat func()
}

// Node is what a round rests on.
type Node struct {
	Config    config.Config
	Plan      plan.Plan
	Inventory gpu.Inventory
	// Closed are the slots of devices that take no jobs.
	Closed map[gpu.UUID]bool
	// Still: no layout may change now, because which devices jobs have is not known.
	Still bool
}

// Outcome is what came of a round.
type Outcome struct {
	// Changed: the inventory is another one now, even where there are problems.
	Changed  bool
	Problems []error
	// Made says of each GPU whose layout gpuslot makes whether it has it; nil where none
	// can be made now.
	Made map[gpu.UUID]bool
	// Repartition is what was decided last on layouts that follow the waiting work. Below
	// are the profiles whose jobs a device leaves to smaller devices meanwhile.
	Repartition []api.StatusRepartition
	Below       map[gpu.UUID]plan.GPU
}

// Layouts are the MIG layouts of this node. Answered may be called by a goroutine of its own;
// all else belongs to the agent's loop.
type Layouts struct {
	executor  mig.Executor
	catalogue mig.Catalogue
	paths     config.Paths
	jobs      Jobs
	daemons   Daemons
	metrics   Metrics
	events    Events
	evict     func(u gpu.UUID)
	log       *slog.Logger
	beat      func()

	// answer is the pool's last one.
	answer atomic.Pointer[answer]

	// recovered are the GPUs on which what an earlier agent left half done was ended.
	recovered map[gpu.UUID]bool
	// reached are the GPUs that have what was wanted, as they then were.
	reached map[gpu.UUID]string
	// leaving are devices that wait to go. The job table gets them with the view that
	// knows what is there: until then those that have gone stay closed, too.
	leaving map[gpu.UUID]string
	// ending are those that this round takes: a job that asked before may be let in after it, by the plan before. They
	// are also those that an unfinished change may take, while it waits for jobs, hangs or went neither on nor back.
	ending endings
	// waits are the GPUs that did not get what is wanted, failed those whose last change took steps in vain.
	waits  map[gpu.UUID]bool
	failed map[gpu.UUID]failure
	// owners are those that MIG devices were last known to have.
	owners map[gpu.UUID]gpu.Owner
	// hang are the changes that were abandoned; each channel gets its end.
	hang hanging

	// decided is the answer that was decided on last, repartition and below what came of it.
	decided     *answer
	repartition []api.StatusRepartition
	below       map[gpu.UUID]plan.GPU
	saved       saved
	// offers are the devices that wait for work with repartition = "auto".
	offers offers
	// kept are devices that take no new jobs for the sake of waiting work, and why.
	kept map[gpu.UUID]string
	// unserved is what was logged last of jobs for which no slot has the CPUs or memory.
	unserved map[mig.Repartition][]api.StatusUnserved
}

// New returns Layouts of which nothing is known. Read takes over what an earlier agent knew.
func New(o Options) *Layouts {
	l := &Layouts{
		executor: o.Executor, paths: o.Paths, jobs: o.Jobs, daemons: o.Daemons, metrics: o.Metrics,
		events: o.Events, evict: o.Evict, log: o.Log, beat: o.Beat,
		reached: map[gpu.UUID]string{}, recovered: map[gpu.UUID]bool{}, failed: map[gpu.UUID]failure{},
		ending: endings{}, hang: hanging{},
		owners: map[gpu.UUID]gpu.Owner{}, unserved: map[mig.Repartition][]api.StatusUnserved{},
	}
	l.executor.Dir, l.executor.Log = o.Paths.State, o.Log
	l.executor.Owns = func(s gpu.MIGState, pid int) bool {
		return pid > 0 && slices.ContainsFunc(s.Instances, func(i gpu.Instance) bool {
			u, ok := i.UUID()
			return ok && l.daemons.Owns(u, pid)
		})
	}
	l.executor.Release = func(ctx context.Context, _ gpu.UUID, i gpu.Instance) error {
		u, ok := i.UUID()
		if !ok {
			return nil
		}
		return l.daemons.Stop(ctx, u)
	}
	return l
}

// Owned returns an inventory in which the MIG devices that gpuslot made are marked. While a journal cannot be read its
// devices are whose they were, so that their plan stays.
func (l *Layouts) Owned(inv gpu.Inventory) gpu.Inventory {
	inv = l.executor.Owners(inv)
	for _, g := range inv.GPUs {
		for i := range g.MIGDevices {
			if d := &g.MIGDevices[i]; d.Owner != "" {
				l.owners[d.UUID] = d.Owner
			} else if d.Start != nil {
				d.Owner = l.owners[d.UUID]
			}
		}
	}
	return inv
}

// Leaving are the devices that take no new jobs because they wait to go, or are kept free
// for waiting work, and why.
func (l *Layouts) Leaving() map[gpu.UUID]string { return l.leaving }

// Round decides whether layouts follow the waiting work, and brings all GPUs that are given
// out in MIG devices to their layouts, one after the other. What jobs use stays as it is,
// and so does the rest of such a GPU until they end.
func (l *Layouts) Round(ctx context.Context, n Node) (out Outcome) {
	problem := func(err error) {
		if err != nil {
			out.Problems = append(out.Problems, err)
		}
	}
	l.ending = endings{}
	for _, u := range l.ending.ofChanges(&n, l.hang, l.executor.Dir, problem) {
		delete(l.reached, u)
	}
	steered := l.follow(ctx, &n, problem)
	if l.executor.Hardware != nil && !n.Still {
		out.Changed = l.recover(ctx, &n, problem)
		out.Changed = l.leaveGPUs(ctx, &n, problem) || out.Changed
		out.Changed = l.makeAll(ctx, &n, problem) || out.Changed
		out.Made = map[gpu.UUID]bool{}
		for _, g := range n.Plan.MIG {
			if len(g.Layouts) > 0 {
				out.Made[g.UUID] = !l.waits[g.UUID]
			}
		}
	}
	if len(steered) > 0 {
		problem(l.land(ctx, steered))
	}
	out.Repartition, out.Below = l.repartition, l.below
	return out
}

// recover ends, once on each GPU, the changes that an earlier agent left half done.
func (l *Layouts) recover(ctx context.Context, n *Node, problem func(error)) (changed bool) {
	for _, g := range n.Inventory.GPUs {
		if !g.MIGCapable || l.recovered[g.UUID] {
			continue
		}
		out, err := l.change(ctx, n, g.UUID, l.executor.Recover)
		changed = changed || len(out.Steps) > 0
		l.recovered[g.UUID] = err == nil
		problem(err)
	}
	return changed
}

// Leave takes back what gpuslot made on all GPUs, as far as nobody uses it, when gpuslot
// leaves the node.
func (l *Layouts) Leave(ctx context.Context, n Node) error {
	if l.executor.Hardware == nil {
		return nil
	}
	j, err := modes.Read(modes.File(l.paths))
	if err != nil {
		return err
	}
	var errs []error
	for _, u := range slices.Sorted(maps.Keys(j.MIGModes)) {
		_, err := l.leave(ctx, &n, u, j.MIGModes[u])
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
