// Package cgroups has a driver for tests that limits the VRAM of cgroups.
package cgroups

import (
	"context"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
)

// Driver is one with its back-end dmem, over a tree of directories:
// what a cgroup's soft limit changes by, every one above it changes by, too, and
// a cgroup that is removed takes nothing along (NVIDIA's MPS documentation,
// release 615).
type Driver struct {
	// Root is the directory that stands for the mount of cgroup v2.
	Root string

	mu      sync.Mutex
	by      map[starter.Cgroup]gpu.MemoryLimits
	current Mood

	inside     atomic.Int32
	overlapped atomic.Bool
}

// Overlapped says whether a call began while another one changed limits: the sums above a
// cgroup are then of neither.
func (f *Driver) Overlapped() bool { return f.overlapped.Load() }

// enter begins a call, and leave ends it. Others come by in between, as with a real driver.
func (f *Driver) enter() (leave func()) {
	if f.inside.Add(1) > 1 {
		f.overlapped.Store(true)
	}
	runtime.Gosched()
	return func() { f.inside.Add(-1) }
}

// Mood is how the driver behaves.
type Mood struct {
	// Err is what limits are refused with.
	Err error
	// Used is what the next cgroup that is limited uses already.
	Used gpu.Bytes
	// Deaf: limits are taken and not kept. Bent: half of them are. Flat: nothing is added up
	// above a cgroup, as with the back-end misc.
	Deaf, Bent, Flat bool
	// Refuses is the end of names of cgroups that it does not limit.
	Refuses string
}

// New returns a driver without limits over a directory.
func New(root string) *Driver {
	return &Driver{Root: root, by: map[starter.Cgroup]gpu.MemoryLimits{}}
}

// Is changes how the driver behaves from now on.
func (f *Driver) Is(m Mood) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.current = m
}

// SetMemoryLimits limits a cgroup, as nvml.Library does.
func (f *Driver) SetMemoryLimits(_ context.Context, _ gpu.UUID, cgroup string, soft, hard gpu.Bytes) error {
	defer f.enter()()
	f.mu.Lock()
	defer f.mu.Unlock()
	d, err := starter.CgroupAt(cgroup)
	switch {
	case f.current.Err != nil:
		return f.current.Err
	case f.current.Refuses != "" && strings.HasSuffix(cgroup, f.current.Refuses):
		return gpu.ErrNoMemoryLimits
	case err != nil:
		return gpu.ErrNoCgroup
	case f.current.Deaf:
		return nil
	case f.current.Bent:
		hard /= 2
	}
	l := f.by[d]
	delta := soft - l.Soft
	f.by[d] = gpu.MemoryLimits{Soft: soft, Hard: hard, Used: f.current.Used}
	for up := filepath.Dir(cgroup); up != f.Root && !f.current.Flat; up = filepath.Dir(up) {
		if d, err = starter.CgroupAt(up); err != nil {
			return err
		}
		above, ok := f.by[d]
		if !ok {
			above.Hard = gpu.Unlimited
		}
		above.Soft += delta
		f.by[d] = above
	}
	return nil
}

// MemoryLimits reads the limits of a cgroup, as nvml.Library does.
func (f *Driver) MemoryLimits(_ context.Context, _ gpu.UUID, cgroup string) (gpu.MemoryLimits, error) {
	defer f.enter()()
	f.mu.Lock()
	defer f.mu.Unlock()
	d, err := starter.CgroupAt(cgroup)
	if err != nil {
		return gpu.MemoryLimits{}, gpu.ErrNoCgroup
	}
	l, ok := f.by[d]
	if !ok {
		return l, gpu.ErrNoMemoryLimits
	}
	return l, nil
}

// Drop forgets the limits of a cgroup, as the kernel does where the controller is switched off. Those above
// it keep their sums.
func (f *Driver) Drop(cgroup string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, err := starter.CgroupAt(cgroup)
	delete(f.by, d)
	return err
}
