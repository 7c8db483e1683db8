package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/metrics"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/devices"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// This file lets jobs open the device nodes of their own MIG devices and of no
// other. A job's supervisor asks for that before the job's program runs (start.go);
// the loop here finds jobs without a supervisor. HTCondor hides other GPUs from
// jobs, not the siblings on the same one.

// DeviceNodes holds cgroups to device nodes; devices.Wall is the real one.
type DeviceNodes interface {
	// Try says whether the kernel would take a rule.
	Try(r devices.Rule) error
	// Put holds a cgroup and all below it to a rule, Remove takes it back.
	Put(dir string, r devices.Rule) error
	Remove(dir string) error
}

const (
	// nodesPace is how often what was done and what could be done is looked at again.
	nodesPace = 5 * time.Second
	// lateAfter is how long after its admission a job without a rule is a warning, and
	// how long after its rule a job whose supervisor has not asked for it is one.
	lateAfter = 10 * time.Second
)

// errNoProcess: a container of docker, or a starter that does not come to its job.
var errNoProcess = errors.New("no process of it is in a cgroup of HTCondor's below its starter")

// errNoSlice: HTCondor attaches its own program to the job's cgroup such that it
// admits none beside it (measured: EPERM in either order), so ours needs one
// above it that is the job's alone.
var errNoSlice = errors.New("HTCondor gives jobs a slice of their own from 24.8 on")

// deviceNodes are the jobs that are held to their own nodes.
type deviceNodes struct {
	// wall is nil where nothing can.
	wall DeviceNodes
	proc devices.Proc
	// root is the mount of cgroup v2.
	root string
	// wake is for a job that has ended, and for a new view.
	wake chan struct{}

	// turn is held from the look at a slice to the end of its change: the slice of
	// a job that ended may get the next job's rule meanwhile.
	turn sync.Mutex
	// mu guards what follows.
	mu sync.Mutex
	by map[starter.Cgroup]heldNodes
	// trouble is why the nodes of other devices are open to a job, or to all jobs
	// (the zero key).
	trouble map[process.ID]string
	// daemons are the cgroups of HTCondor's daemons (nodes_daemons.go). open says why nodes
	// are open to what runs there.
	daemons map[starter.Cgroup]daemonCgroup
	open    string
	// opened: no rule of an earlier agent is left on one of them.
	opened bool
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
}

func newDeviceNodes(wall DeviceNodes, proc, root string) *deviceNodes {
	return &deviceNodes{wall: wall, proc: devices.Proc{Root: proc}, root: root, wake: make(chan struct{}, 1),
		by: map[starter.Cgroup]heldNodes{}, trouble: map[process.ID]string{}, daemons: map[starter.Cgroup]daemonCgroup{}}
}

// instancesOf are the GPU instances behind each GPU and MIG device of a node: a
// job on a GPU that is divided has all of them, on one that is not, none.
func instancesOf(inv gpu.Inventory) map[gpu.UUID][]devices.Instance {
	of := map[gpu.UUID][]devices.Instance{}
	for _, g := range inv.GPUs {
		of[g.UUID] = nil
		for _, d := range g.MIGDevices {
			of[g.UUID] = []devices.Instance{{GPU: g.UUID, All: true}}
			of[d.UUID] = []devices.Instance{{GPU: g.UUID, ID: d.GPUInstance}}
		}
	}
	return of
}

// divided says whether the node has MIG devices.
func (v *view) divided() bool {
	for _, of := range v.instances {
		if len(of) > 0 {
			return true
		}
	}
	return false
}

// instancesFor are those of what a job got.
func (v *view) instancesFor(r jobs.Job) ([]devices.Instance, error) {
	u := cmp.Or(r.Device, r.GPU)
	if g, ok := find(&v.plan, u); ok && g.Device != "" {
		u = g.Device
	}
	of, ok := v.instances[u]
	if !ok {
		return nil, fmt.Errorf("the GPU instance of %s is not known", u)
	}
	return of, nil
}

// jobsWithNodes are the jobs of the job table, each once, in their order.
func (v *view) jobsWithNodes(all []jobs.Job) []nodesJob {
	var jobs []nodesJob
	for _, r := range all {
		of, err := v.instancesFor(r)
		i := slices.IndexFunc(jobs, func(j nodesJob) bool { return j.Starter.Is(r.Starter) })
		if i < 0 {
			jobs = append(jobs, nodesJob{Job: r})
			i = len(jobs) - 1
		}
		jobs[i].own, jobs[i].err = append(jobs[i].own, of...), errors.Join(jobs[i].err, err)
	}
	return jobs
}

// closeNodes looks after the device nodes of jobs, and after what supervisors do,
// until the context ends.
func (a *Agent) closeNodes(ctx context.Context) {
	for ctx.Err() == nil {
		v := a.view.Load()
		a.nodesRound(v, time.Now())
		if err := errors.Join(a.linkStart(v), a.linkHolds()); err != nil {
			a.log.Error("what supervisors read is not up to date", "err", err)
		}
		t := time.NewTimer(nodesPace)
		select {
		case <-ctx.Done():
		case <-t.C:
		case <-a.nodes.wake:
		}
		t.Stop()
	}
}

// nodesRound holds the jobs of the table to their nodes, and says which are late.
func (a *Agent) nodesRound(v *view, now time.Time) {
	a.dropNodes()
	if a.nodes.wall == nil || !v.divided() || v.plan.Observe {
		a.nodes.complain(process.ID{}, nil)
		a.nodes.complainOfDaemons(nil)
		if v.planned {
			_ = a.openNodesToDaemons() // logged, and tried again
		}
		return
	}
	read := sync.OnceValues(a.nodes.proc.Read)
	if a.complainOfNodes(jobs.Job{}, a.tryNodes(read)) {
		return
	}
	a.closeNodesToDaemons(read)
	for _, j := range v.jobsWithNodes(a.jobs.Running()) {
		leaf := a.proc.JobCgroup(j.Starter)
		late := now.Sub(j.Since) >= lateAfter
		switch {
		case leaf != "":
			a.jobRunsIn(leaf)
			slice, err := a.holdNodes(j, leaf, read, now)
			a.complainOfNodes(j.Job, err)
			// A supervisor asks in the moment after its cgroup is there.
			if !j.Adopted && a.nodes.settle(slice, now.Add(-lateAfter)) {
				a.metrics.DeviceRule(metrics.RuleLate)
				a.log.Warn("a job ran before the device nodes of other MIG devices were closed to it",
					"slot", j.Starter.Slot, "job", j.ID, "gpu", j.GPU)
			}
		case late && !a.nodes.has(j.Starter) && (j.Starter.PID == 0 || a.proc.Runs(j.Starter.ID)):
			a.complainOfNodes(j.Job, errNoProcess)
		}
	}
}

// tryNodes says why no job can be held to its nodes.
func (a *Agent) tryNodes(read func() (devices.Capabilities, error)) error {
	c, err := read()
	if err != nil {
		return err
	}
	r, err := c.Rule(nil)
	if err != nil {
		return err
	}
	return a.nodes.wall.Try(r)
}

// holdNodes holds a job or a login to the nodes of the job, and returns the slice that
// has the rule; none for one that has ended.
func (a *Agent) holdNodes(j nodesJob, leaf string, read func() (devices.Capabilities, error), now time.Time) (starter.Cgroup, error) {
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
	a.nodes.turn.Lock()
	defer a.nodes.turn.Unlock()
	dir, _ := starter.CgroupAt(filepath.Join(a.nodes.root, slice))
	if !dir.Exists() {
		return starter.Cgroup{}, nil // it has ended already
	}
	held := heldNodes{starter: j.Starter, since: now}
	if had, ok := a.nodes.of(dir); ok && had.starter.Is(j.Starter) {
		held = had
		if held.rule.Equal(r) {
			return dir, nil
		}
	}
	if err := a.nodes.wall.Put(dir.Path, r); err != nil {
		if !dir.Exists() {
			return starter.Cgroup{}, nil
		}
		return starter.Cgroup{}, err
	}
	held.rule = r
	a.nodes.enter(dir, held)
	return dir, nil
}

// dropNodes takes rules back whose jobs have ended: the slice is that of the
// next job in the slot, too, which has another rule.
func (a *Agent) dropNodes() {
	a.nodes.turn.Lock()
	defer a.nodes.turn.Unlock()
	for _, slice := range a.nodes.ended(a.proc.Runs) {
		if !slice.Exists() {
			continue
		}
		if err := a.nodes.wall.Remove(slice.Path); err != nil && slice.Exists() {
			a.log.Warn("the rule of a cgroup for device nodes stays", "err", err)
		}
	}
}

// complainOfNodes books why a job, or every job, can open the nodes of others,
// and tells it once.
func (a *Agent) complainOfNodes(r jobs.Job, err error) (open bool) {
	if a.nodes.complain(r.Starter.ID, err) {
		if r.Starter.PID != 0 {
			a.metrics.DeviceRule(metrics.RuleMissing)
		}
		a.log.Warn("jobs can open the device nodes of other MIG devices", "slot", r.Starter.Slot, "job", r.ID, "gpu", r.GPU, "err", err)
	}
	return err != nil
}
