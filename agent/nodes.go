package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/devices"
)

// This file lets jobs open the device nodes of their own MIG devices and of no
// other, as soon as a job's cgroup is there. HTCondor hides other GPUs from
// them, not the siblings on the same one.

// DeviceNodes holds cgroups to device nodes; devices.Wall is the real one.
type DeviceNodes interface {
	// Try says whether the kernel would take a rule.
	Try(r devices.Rule) error
	// Put holds a cgroup and all below it to a rule, Remove takes it back.
	Put(dir string, r devices.Rule) error
	Remove(dir string) error
}

// nodesPace is how often what was done and what could be done is looked at again.
const nodesPace = 15 * time.Second

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
	// wake is for a job that was admitted or has ended.
	wake chan struct{}

	// mu guards what follows.
	mu sync.Mutex
	by map[starterKey]heldNodes
	// trouble is why the nodes of other devices are open to a job, or to all jobs
	// (the zero key).
	trouble map[starterKey]string
}

// starterKey is one starter since the boot.
type starterKey struct {
	pid     int
	started uint64
}

func keyOf(s Starter) starterKey { return starterKey{s.PID, s.Started} }

// heldNodes is what was done for a job.
type heldNodes struct {
	slice cgroupDir
	rule  devices.Rule
}

// nodesJob is a job with all its GPUs.
type nodesJob struct {
	Running
	own []devices.Instance
	err error
}

func newDeviceNodes(wall DeviceNodes, proc, root string) *deviceNodes {
	return &deviceNodes{wall: wall, proc: devices.Proc{Root: proc}, root: root, wake: make(chan struct{}, 1),
		by: map[starterKey]heldNodes{}, trouble: map[starterKey]string{}}
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
func (v *view) instancesFor(r Running) ([]devices.Instance, error) {
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

// jobsWithNodes are the jobs of the books, each once, in their order.
func (v *view) jobsWithNodes(all []Running) []nodesJob {
	var jobs []nodesJob
	for _, r := range all {
		of, err := v.instancesFor(r)
		i := slices.IndexFunc(jobs, func(j nodesJob) bool { return j.Starter.is(r.Starter) })
		if i < 0 {
			jobs = append(jobs, nodesJob{Running: r})
			i = len(jobs) - 1
		}
		jobs[i].own, jobs[i].err = append(jobs[i].own, of...), errors.Join(jobs[i].err, err)
	}
	return jobs
}

// jobSlice is the slice of a job, above its cgroup; false if there is none.
func jobSlice(leaf string) (string, bool) {
	slice := path.Dir(leaf)
	name, ok := strings.CutSuffix(slice, ".slice")
	return slice, ok && path.Base(leaf) == path.Base(name)+".scope"
}

// closeNodes looks after the device nodes of jobs until the context ends.
func (a *Agent) closeNodes(ctx context.Context) {
	if a.nodes.wall == nil {
		return
	}
	var looked, woken time.Time
	for ctx.Err() == nil {
		full := time.Since(looked) >= nodesPace
		if full {
			looked = time.Now()
		}
		wait := nodesPace
		if a.nodesRound(a.view.Load(), time.Now(), full) {
			wait = lookPause(time.Since(woken))
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-t.C:
		case <-a.nodes.wake:
			woken = time.Now()
		}
		t.Stop()
	}
}

// nodesRound holds jobs to their nodes: all of them if full, else only those
// that have just been admitted. Soon says that there are some whose first
// process is about to come.
func (a *Agent) nodesRound(v *view, now time.Time, full bool) (soon bool) {
	jobs := v.jobsWithNodes(a.books.all())
	a.dropNodes(jobs)
	if !v.divided() || v.plan.Observe {
		a.nodes.complain(starterKey{}, nil)
		return false
	}
	read := sync.OnceValues(a.nodes.proc.Read)
	if full && a.complainOfNodes(Running{}, a.tryNodes(read)) {
		return false
	}
	for _, j := range jobs {
		_, done := a.nodes.of(j.Starter)
		young := now.Sub(j.Since) < lookFor
		if !full && (done || !young) {
			continue
		}
		leaf := a.books.jobCgroup(j.Starter, starterUID(a.own))
		if leaf == "" {
			soon = soon || young && !done
			continue
		}
		a.complainOfNodes(j.Running, a.holdNodes(j, leaf, read))
	}
	return soon
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

// holdNodes holds one job.
func (a *Agent) holdNodes(j nodesJob, leaf string, read func() (devices.Capabilities, error)) error {
	slice, ok := jobSlice(leaf)
	switch {
	case j.err != nil:
		return j.err
	case !ok:
		return errNoSlice
	}
	c, err := read()
	if err != nil {
		return err
	}
	r, err := c.Rule(j.own)
	if err != nil {
		return err
	}
	dir, _ := cgroupAt(filepath.Join(a.nodes.root, slice))
	if !dir.there() {
		return nil // it has ended already
	}
	if had, ok := a.nodes.of(j.Starter); ok && had.slice == dir && had.rule.Equal(r) {
		return nil
	}
	if err := a.nodes.wall.Put(dir.Path, r); err != nil {
		if !dir.there() {
			return nil
		}
		return err
	}
	a.nodes.enter(j.Starter, heldNodes{dir, r})
	a.log.Info("the device nodes of other MIG devices were closed to a job", "slot", j.Starter.Slot, "job", j.Job, "gpu", j.GPU)
	return nil
}

// dropNodes takes rules back whose jobs have ended: the slice is that of the
// next job in the slot, too, which has another rule.
func (a *Agent) dropNodes(jobs []nodesJob) {
	for key, h := range a.nodes.ended(jobs) {
		if a.nodes.forget(key, h) || !h.slice.there() {
			continue
		}
		if err := a.nodes.wall.Remove(h.slice.Path); err != nil && h.slice.there() {
			a.log.Warn("the rule of a cgroup for device nodes stays", "err", err)
		}
	}
}

// complainOfNodes books why a job, or every job, can open the nodes of others,
// and tells it once.
func (a *Agent) complainOfNodes(r Running, err error) (open bool) {
	if a.nodes.complain(keyOf(r.Starter), err) {
		a.log.Warn("jobs can open the device nodes of other MIG devices", "slot", r.Starter.Slot, "job", r.Job, "gpu", r.GPU, "err", err)
	}
	return err != nil
}
