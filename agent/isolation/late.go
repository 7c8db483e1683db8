package isolation

import (
	"slices"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu/devices"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// A job without a GPU asks for its start as the others do, and has its rule before its program
// runs. This file is for those that began before the node was known to have MIG devices: their
// supervisors had nothing to ask for.

// others are the starters of this node as a Round knows them. The job table has only those
// of jobs with GPUs.
type others struct {
	// arrived are the starters that came since it was called last; nil where nothing looks.
	arrived func(now time.Time) ([]starter.Starter, error)
	// mu is held while it looks.
	mu    sync.Mutex
	found []otherStarter
	// looked: those from before are in it.
	looked bool
}

// otherStarter is a starter that may have a job without a GPU.
type otherStarter struct {
	starter.Starter
	// adopted: it was there when gpuslotd started, so its job may have had a rule in time.
	adopted bool
	// done: its job has its rule, and is counted.
	done bool
}

// Arrivals finds the starters of a node as they come.
func Arrivals(n starter.Node) func(now time.Time) ([]starter.Starter, error) {
	var seen starter.Arrivals
	return func(now time.Time) ([]starter.Starter, error) { return seen.New(n, now) }
}

// look takes note of starters that came, and forgets those that have ended. One that
// could not be read comes again.
func (o *others) look(runs func(process.ID) bool, now time.Time) ([]otherStarter, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	came, err := o.arrived(now)
	o.found = slices.DeleteFunc(o.found, func(s otherStarter) bool { return !runs(s.ID) })
	for _, s := range came {
		if !slices.ContainsFunc(o.found, func(old otherStarter) bool { return old.Is(s) }) {
			o.found = append(o.found, otherStarter{Starter: s, adopted: !o.looked})
		}
	}
	o.looked = true
	return slices.Clone(o.found), err
}

// close closes the nodes of all MIG devices to jobs without a GPU that have no rule.
// Where jobs on MIG devices may be unknown to the job table, it leaves all jobs alone.
func (o *others) close(n *Nodes, c Conditions, read func() (devices.Capabilities, error), now time.Time) {
	if o.arrived == nil || !c.Supervised {
		return
	}
	found, err := o.look(n.processes.Runs, now)
	if err != nil {
		n.log.Debug("not every condor_starter could be looked at", "err", err)
	}
	for _, s := range found {
		if s.done {
			continue // there may be hundreds
		}
		leaf := n.processes.JobCgroup(s.Starter)
		if leaf == "" {
			continue
		}
		// Asked after the job was seen: a job with a GPU is in the table before it begins.
		if held, why := n.jobs.Starting(s.Starter); len(held) > 0 || why != "" {
			continue
		}
		j := nodesJob{Job: jobs.Job{Starter: s.Starter}, yields: true} // it may be admitted beside this
		slice, err := n.holdTo(j, leaf, read, now)
		n.complainOfNodes(j.Job, err)
		if n.settle(slice, now.Add(-LateAfter)) && !s.adopted {
			n.metrics.DeviceRule(Late)
			n.log.Warn("a job without a GPU ran before the device nodes of MIG devices were closed to it", "slot", s.Slot)
		}
		if held, ok := n.of(slice); ok && held.settled {
			o.leave(s.Starter)
		}
	}
}

// leave looks for a starter's job no more.
func (o *others) leave(s starter.Starter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.found {
		o.found[i].done = o.found[i].done || o.found[i].Is(s)
	}
}
