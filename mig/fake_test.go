package mig

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

const testGPU = gpu.UUID("GPU-0000000a-0000-4000-8000-000000000000")

// fakeGPU is one A100 that keeps MIG's laws, and what can go wrong with it.
type fakeGPU struct {
	s gpu.MIGState
	// before and after run around each call that changes something; an error
	// of before is the call's.
	before func(call string, p gpu.Place) error
	after  func(call string, p gpu.Place)
	// lies: the call succeeds and does nothing.
	lies map[string]bool
	// blind: states cannot be read.
	blind error
	// slow: a mode waits for a reset.
	slow  bool
	calls []string
}

func newFake(t interface {
	Helper()
	Fatal(...any)
}) *fakeGPU {
	t.Helper()
	c, err := Model("A100-40GB", 550)
	if err != nil {
		t.Fatal(err)
	}
	return &fakeGPU{s: gpu.MIGState{MIGGPU: gpu.MIGGPU{UUID: testGPU, Chip: c}, Capable: true, Enabled: true, Pending: true}, lies: map[string]bool{}}
}

func (f *fakeGPU) change(call string, p gpu.Place, do func() error) error {
	f.calls = append(f.calls, fmt.Sprintf("%s %d@%d", call, p.Profile, p.Start))
	if f.before != nil {
		if err := f.before(call, p); err != nil {
			return err
		}
	}
	if f.lies[call] {
		return nil
	}
	err := do()
	if f.after != nil {
		f.after(call, p)
	}
	return err
}

func (f *fakeGPU) State(context.Context, gpu.UUID) (gpu.MIGState, error) {
	s := f.s
	s.Instances = slices.Clone(s.Instances)
	return s, f.blind
}

func (f *fakeGPU) SetMode(_ context.Context, _ gpu.UUID, enabled bool) error {
	return f.change("mode", gpu.Place{}, func() error {
		f.s.Pending = enabled
		if f.s.Enabled == enabled {
			return nil
		}
		if f.slow {
			return gpu.ErrResetRequired
		}
		f.s.Enabled, f.s.Instances = enabled, nil
		return nil
	})
}

func (f *fakeGPU) reset(context.Context, gpu.UUID) error {
	f.calls = append(f.calls, "reset")
	f.s.Enabled, f.s.Instances = f.s.Pending, nil
	return nil
}

func (f *fakeGPU) Create(_ context.Context, _ gpu.UUID, p gpu.Place, size int) error {
	return f.change("create", p, func() error {
		f.remove(p) // what was left half made
		var all gpu.Layout
		for _, i := range f.s.Instances {
			all = append(all, i.Place)
		}
		if !f.s.Enabled || Legal(f.s.Chip, append(all, p)) != nil {
			return gpu.ErrNoRoom
		}
		f.put(p, size)
		return nil
	})
}

// put makes an instance, whoever asks.
func (f *fakeGPU) put(p gpu.Place, size int) {
	profile, _ := f.s.Chip.Profile(p.Profile)
	f.s.Instances = append(f.s.Instances, gpu.Instance{Place: p, Size: size, ID: 10*int(p.Profile) + p.Start, Owner: gpu.Foreign,
		Compute: []gpu.ComputeInstance{{Multiprocessors: profile.Multiprocessors}}})
}

func (f *fakeGPU) remove(p gpu.Place) {
	f.s.Instances = slices.DeleteFunc(f.s.Instances, func(i gpu.Instance) bool { return i.Place == p })
}

func (f *fakeGPU) Destroy(_ context.Context, _ gpu.UUID, p gpu.Place) error {
	return f.change("destroy", p, func() error {
		if i, ok := f.s.At(p); ok && len(i.Holders) > 0 {
			return gpu.ErrInUse
		}
		f.remove(p)
		return nil
	})
}

// hold lets a process use the instance at a place.
func (f *fakeGPU) hold(p gpu.Place, pid int) {
	for k, i := range f.s.Instances {
		if i.Place == p {
			f.s.Instances[k].Holders = []gpu.Holder{{PID: pid}}
		}
	}
}

func (f *fakeGPU) executor(dir string) Executor {
	return Executor{Hardware: f, Dir: dir, Boot: "first", Proc: Proc{Root: dir}, Patience: Patience{Tries: 3, First: time.Microsecond}}
}

// Places of an A100: profile ids as the driver prints them.
var (
	two0, two2     = gpu.Place{Profile: 14, Start: 0}, gpu.Place{Profile: 14, Start: 2}
	three0, three4 = gpu.Place{Profile: 9, Start: 0}, gpu.Place{Profile: 9, Start: 4}
	one2, one3     = gpu.Place{Profile: 19, Start: 2}, gpu.Place{Profile: 19, Start: 3}
	four0, seven0  = gpu.Place{Profile: 5, Start: 0}, gpu.Place{Profile: 0, Start: 0}
	errBroken      = errors.New("broken")
)

func on(places ...gpu.Place) Wanted { return Wanted{Enabled: true, Layout: gpu.NewLayout(places...)} }

// given is an executor with a layout that it made.
func given(t *testing.T, places ...gpu.Place) (*fakeGPU, Executor) {
	t.Helper()
	f := newFake(t)
	e := f.executor(t.TempDir())
	if out, err := e.Apply(t.Context(), testGPU, on(places...)); err != nil {
		t.Fatal(out, err)
	}
	f.calls = nil
	return f, e
}
