// Package isolation lets a job open the device nodes of its own MIG devices and of no other.
// HTCondor hides other GPUs from jobs, not the siblings on the same one. What runs outside the
// cgroups of jobs, as a job's account, opens none of them. Nor do users' programs there open
// undivided GPUs that jobs share. Neither these nor jobs open the nodes for graphics of such GPUs.
//
// Start at Nodes. A job's supervisor asks before the job's program runs: Starts says whether
// it may, CloseAtStart puts the job's rule on its slice. Round does so for jobs without a
// supervisor, and takes the rules of ended jobs back. outside.go closes nodes in the
// cgroups of HTCondor's daemons and of users, daemons.go opens them; graphics.go closes nodes to all
// jobs; state.go has what is known.
package isolation

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/devices"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// Kernel holds cgroups to device nodes; devices.Kernel is the real one.
type Kernel interface {
	// Try says whether the kernel would take a rule.
	Try(r devices.Rule) error
	// Put holds a cgroup and all below it to a rule, Remove takes it back.
	Put(dir string, r devices.Rule) error
	Remove(dir string) error
}

// Jobs are the running jobs; jobs.Table is the real one.
type Jobs interface {
	Running() []jobs.Job
	// Starting are the entries of a starter's job, none for one without GPUs. Why says that they
	// are not known yet.
	Starting(s starter.Starter) (held []jobs.Job, why string)
}

// Processes are those of this node; starter.Node is the real one.
type Processes interface {
	Runs(p process.ID) bool
	// JobCgroup is the cgroup of a starter's job, below the mount; empty while no
	// process of the job is there.
	JobCgroup(s starter.Starter) string
}

// HTCondor is what its daemons run in; starter.Node is the real one.
type HTCondor interface {
	// OfDaemons are the cgroups of this node's startds, below the mount, and the accounts that HTCondor's daemons act as,
	// without root; none while they act as root. With an error there may be more.
	OfDaemons() (cgroups []string, accounts []uint32, err error)
	// ReadOnly says whether a process sees a directory on a mount that cannot be written.
	ReadOnly(pid int, dir string) bool
}

// Metrics count the rules of jobs; metrics.Metrics is the real one.
type Metrics interface {
	// DeviceRule counts a job by when it got its rule: InTime, Late or Missing.
	DeviceRule(when string)
}

// Options are what Nodes work with.
type Options struct {
	// Kernel puts the rules; nil if nothing can.
	Kernel    Kernel
	Jobs      Jobs
	Processes Processes
	HTCondor  HTCondor
	Metrics   Metrics
	Log       *slog.Logger
	// Arrived are the starters that came since it was called last; nil where nothing looks.
	Arrived func(now time.Time) ([]starter.Starter, error)
	// Proc is /proc, Sys /sys where empty, Root the mount of cgroup v2.
	Proc, Sys, Root string
}

// Conditions are what the rules rest on now.
type Conditions struct {
	// Planned: there is a plan. Observed: its node stays as it is. Supervised: each job on a MIG
	// device was admitted before it began, and each job asks for its start.
	Planned, Observed, Supervised bool
	// Instances are the GPU instances of each GPU and MIG device: see InstancesOf.
	Instances Instances
	// ForJobs are the undivided GPUs that jobs share and no desktop uses.
	ForJobs []gpu.UUID
	// JobCgroups: HTCondor is set up to give jobs cgroups of their own.
	JobCgroups bool
}

// When a job got its rule: before its program ran, later, or not at all.
const (
	InTime  = "in-time"
	Late    = "late"
	Missing = "missing"
)

const (
	// pace is how often what was done and what could be done is looked at again.
	pace = 5 * time.Second
	// LateAfter is how long after its admission a job without a rule is a warning, and
	// how long after its rule a job whose supervisor has not asked for it is one.
	LateAfter = 10 * time.Second
)

// errNoProcess: a container of docker, or a starter that does not come to its job.
var errNoProcess = errors.New("no process of it is in a cgroup of HTCondor's below its starter")

// errNoSlice: HTCondor attaches its own program to the job's cgroup such that it
// admits none beside it (measured: EPERM in either order), so ours needs one
// above it that is the job's alone.
var errNoSlice = errors.New("HTCondor gives jobs a slice of their own from 24.8 on")

// errGone refuses a start whose cgroup cannot get a rule: the caller has ended, or the tree that
// gpuslotd sees is another one.
var errGone = errors.New("the cgroup that HTCondor made for the job is not there")

// Nodes are the jobs that are held to their own device nodes. All methods may be called by
// several goroutines at a time.
type Nodes struct {
	kernel    Kernel
	jobs      Jobs
	processes Processes
	htcondor  HTCondor
	metrics   Metrics
	log       *slog.Logger
	proc      devices.Proc
	// root is the mount of cgroup v2.
	root string
	// wake is for a job that has ended, and for a new view.
	wake chan struct{}

	others others

	// looks is held during a Look.
	looks sync.Mutex
	// turn is held from the look at a slice to the end of its change: the slice of
	// a job that ended may get the next job's rule meanwhile.
	turn sync.Mutex
	// mu guards what follows.
	mu sync.Mutex
	by map[starter.Cgroup]heldNodes
	// reasons are why the nodes of other devices are open to a job, or to all jobs
	// (the zero key).
	reasons map[process.ID]string
	// daemons are the cgroups of HTCondor's daemons (daemons.go). open says why nodes
	// are open to what runs there.
	daemons map[starter.Cgroup]daemonCgroup
	open    string
	// opened: no rule of an earlier agent is left on one of them.
	opened bool
	// spared are the accounts that open all nodes there, above the rules on the services of these daemons
	// (graphics.go), nil while those of an earlier agent may be there; turn guards both.
	spared []uint32
	above  map[starter.Cgroup]devices.Rule
}

// heldNodes is the rule of one slice, for a job or for a login to it.
type heldNodes struct {
	starter starter.Starter
	rule    devices.Rule
	// since is when the starter's first rule was put. Settled: it is known whether that
	// was before the job's program ran.
	since   time.Time
	settled bool
}

// nodesJob is a job with all its GPUs.
type nodesJob struct {
	jobs.Job
	own []devices.Instance
	err error
	// yields: a rule that its slice has already stays.
	yields bool
}

// New returns Nodes without rules. Those of an earlier agent are put again by Round.
func New(o Options) *Nodes {
	return &Nodes{
		kernel: o.Kernel, jobs: o.Jobs, processes: o.Processes, htcondor: o.HTCondor, metrics: o.Metrics, log: o.Log,
		proc: devices.Proc{Root: o.Proc, Sys: o.Sys}, root: o.Root, wake: make(chan struct{}, 1),
		by: map[starter.Cgroup]heldNodes{}, reasons: map[process.ID]string{},
		daemons: map[starter.Cgroup]daemonCgroup{},
		others:  others{arrived: o.Arrived},
	}
}

// Run looks after the device nodes of jobs until the context ends. After is called after
// each round.
func (n *Nodes) Run(ctx context.Context, now func() Conditions, after func()) {
	for ctx.Err() == nil {
		n.Look(now, after)
		t := time.NewTimer(pace)
		select {
		case <-ctx.Done():
		case <-t.C:
		case <-n.wake:
		}
		t.Stop()
	}
}

// Look is one round, and what comes after it. It rests on the conditions of a moment in which no other look is under
// way: one that began with older conditions takes nothing back. Known is that of Round.
func (n *Nodes) Look(now func() Conditions, after func()) (known bool) {
	n.looks.Lock()
	defer n.looks.Unlock()
	known = n.Round(now(), time.Now())
	after()
	return known
}

// Wake starts the next round now: a job has ended, or the conditions are others.
func (n *Nodes) Wake() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// Round closes nodes to what runs outside of jobs and to all jobs, holds the jobs of the table to theirs,
// and says which are late. Unless it is known now whether that can be done, nothing changes.
func (n *Nodes) Round(c Conditions, now time.Time) (known bool) {
	n.drop()
	around := outside{n, c}
	if n.kernel == nil || c.Observed || !c.Divided() {
		n.complain(process.ID{}, nil)
		around.undivided()
		return true
	}
	read := sync.OnceValues(n.proc.Read)
	certain, err := n.try(read)
	if err != nil && !certain {
		n.log.Warn("whether jobs can be held to their device nodes is not known now: what was known holds", "err", err)
		return false
	}
	if n.complainOfNodes(jobs.Job{}, err) {
		return true
	}
	around.divided(read)
	if !c.Planned {
		return true // which instances a job has is not known, and none starts
	}
	n.others.close(n, c, read, now)
	for _, j := range c.withNodes(n.jobs.Running()) {
		leaf := n.processes.JobCgroup(j.Starter)
		late := now.Sub(j.Since) >= LateAfter
		switch {
		case leaf != "":
			n.runsIn(leaf)
			slice, err := n.holdTo(j, leaf, read, now)
			n.complainOfNodes(j.Job, err)
			// A supervisor asks in the moment after its cgroup is there.
			if !j.Adopted && n.settle(slice, now.Add(-LateAfter)) {
				n.metrics.DeviceRule(Late)
				n.log.Warn("a job ran before the device nodes of other MIG devices were closed to it",
					"slot", j.Starter.Slot, "job", j.ID, "gpu", j.GPU)
			}
		case late && !n.has(j.Starter) && (j.Starter.PID == 0 || n.processes.Runs(j.Starter.ID)):
			n.complainOfNodes(j.Job, errNoProcess)
		}
	}
	return true
}

// try says why no job can be held to its nodes, and whether that is certain. A lack of file descriptors or of
// memory shows nothing: a job can bring it about.
func (n *Nodes) try(read func() (devices.Capabilities, error)) (certain bool, err error) {
	var r devices.Rule
	c, err := read()
	if err == nil {
		r, err = c.Rule(nil)
	}
	if err != nil {
		return errors.Is(err, devices.ErrNoCapabilities), err
	}
	err = n.kernel.Try(r)
	return !devices.Lacks(err), err
}

// holdTo holds a job or a login to the nodes of the job, and returns the slice that
// has the rule; none for one that has ended.
func (n *Nodes) holdTo(
	j nodesJob, leaf string, read func() (devices.Capabilities, error), now time.Time,
) (starter.Cgroup, error) {
	slice, ok := starter.JobSlice(leaf)
	switch {
	case j.err != nil:
		return starter.Cgroup{}, j.err
	case !ok:
		return starter.Cgroup{}, errNoSlice
	}
	c, err := read()
	if err != nil {
		return starter.Cgroup{}, err
	}
	r, err := c.Rule(j.own)
	if err != nil {
		return starter.Cgroup{}, err
	}
	n.turn.Lock()
	defer n.turn.Unlock()
	dir, err := starter.CgroupAt(filepath.Join(n.root, slice))
	if errors.Is(err, fs.ErrNotExist) {
		return starter.Cgroup{}, nil // it has ended already
	}
	if err != nil {
		return starter.Cgroup{}, err
	}
	held := heldNodes{starter: j.Starter, since: now}
	if had, ok := n.of(dir); ok && had.starter.Is(j.Starter) {
		held = had
		if held.rule.Equal(r) || j.yields {
			return dir, nil
		}
	}
	if err := n.kernel.Put(dir.Path, r); err != nil {
		if !dir.Exists() {
			return starter.Cgroup{}, nil
		}
		return starter.Cgroup{}, err
	}
	held.rule = r
	n.enter(dir, held)
	return dir, nil
}

// drop takes rules back whose jobs have ended: the slice is that of the
// next job in the slot, too, which has another rule.
func (n *Nodes) drop() {
	n.turn.Lock()
	defer n.turn.Unlock()
	for _, slice := range n.ended(n.processes.Runs) {
		if !slice.Exists() {
			continue
		}
		if err := n.kernel.Remove(slice.Path); err != nil && slice.Exists() {
			n.log.Warn("the rule of a cgroup for device nodes stays", "err", err)
		}
	}
}

// complainOfNodes books why a job, or every job, can open the nodes of others,
// and tells it once.
func (n *Nodes) complainOfNodes(r jobs.Job, err error) (open bool) {
	if n.complain(r.Starter.ID, err) {
		if r.Starter.PID != 0 {
			n.metrics.DeviceRule(Missing)
		}
		n.log.Warn("jobs can open the device nodes of other MIG devices",
			"slot", r.Starter.Slot, "job", r.ID, "gpu", r.GPU, "err", err)
	}
	return err != nil
}

// CloseAtStart closes the nodes of MIG devices to a job but for its own, before its program
// runs. Held are the entries of the starter's job, leaf is the cgroup that HTCondor made for
// the job. Nothing is promised, and there is no error, where rules are not enforced or
// HTCondor makes no slice for jobs. A job cannot bring about that it has none: Starts refuses
// who is in no cgroup of a job, and no job can change the names above its own.
func (n *Nodes) CloseAtStart(now Conditions, s starter.Starter, held []jobs.Job, leaf string) error {
	if !now.Divided() || now.Observed || !n.Enforced() {
		return nil
	}
	j := nodesJob{Job: jobs.Job{Starter: s}}
	for _, with := range now.withNodes(held) {
		j = with
	}
	slice, err := n.holdTo(j, leaf, sync.OnceValues(n.proc.Read), time.Now())
	// The time is taken again: a round that runs beside this may have put the rule since.
	if n.settle(slice, time.Now()) {
		n.metrics.DeviceRule(InTime)
		n.log.Debug("the device nodes of other MIG devices were closed to a job", "slot", s.Slot, "job", j.ID, "gpu", j.GPU)
	}
	n.complainOfNodes(j.Job, err)
	switch {
	case errors.Is(err, errNoSlice):
		return nil // this HTCondor has no cgroup for a rule, so none is promised
	case err == nil && slice.Path == "":
		return errGone
	}
	return err
}
