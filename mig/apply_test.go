package mig

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/gpu"
)

// ends holds an outcome, its error and what is left against what must be.
func ends(t *testing.T, f *fakeGPU, e Executor, out Outcome, err error, end End, says string, places ...gpu.Place) {
	t.Helper()
	if out.End != end || (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
		t.Errorf("%s, %v; want %s, %q", out.End, err, end, says)
	}
	if got := f.s.Layout(); !got.Equal(gpu.NewLayout(places...)) {
		t.Errorf("the layout is %s, want %s", f.s.Chip.Format(got), f.s.Chip.Format(gpu.NewLayout(places...)))
	}
	b, err := ReadJournal(e.Dir, testGPU)
	if err != nil || (b.Change != nil) != (end == EndDegraded) || (b.Degraded != "") != (end == EndDegraded) {
		t.Errorf("%+v, %v", b, err)
	}
}

func TestApplyChangesOnlyTheRest(t *testing.T) {
	f, e := given(t, three4, two0, two2)
	f.hold(three4, 77)
	out, err := e.Apply(t.Context(), testGPU, on(three4, two0, one2, one3))
	ends(t, f, e, out, err, ReachedWanted, "", three4, two0, one2, one3)
	if d := cmp.Diff([]string{"destroy 14@2", "create 19@2", "create 19@3"}, f.calls); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for _, i := range out.State.Instances {
		if i.Owner != gpu.Ours {
			t.Errorf("%+v", i)
		}
	}
	out, err = e.Apply(t.Context(), testGPU, on(three4, two0, one2, one3))
	ends(t, f, e, out, err, Unchanged, "", three4, two0, one2, one3)
}

// TestApplyRefuses: nothing is touched where the whole cannot be done.
func TestApplyRefuses(t *testing.T) {
	f, e := given(t, two0, two2)
	f.hold(two2, 77)
	f.put(three4, 4) // foreign
	before := f.s.Layout()
	for _, c := range []struct {
		w    Wanted
		says string
		is   error
	}{
		{on(three0), "destroy 2g.10gb at 2: in use by another client; held by pid 77", gpu.ErrInUse},
		{on(seven0), "3g.20gb at 4 (GPU instance 94) is not ours and is left alone; remove it yourself if nobody needs it: nvidia-smi mig -dci -i " + string(testGPU) + " -gi 94 && ", nil},
		{Wanted{}, "is not ours and would be lost with MIG mode", nil},
		{on(three0, two0), "overlap", nil},
		{on(gpu.Place{Profile: 9, Start: 1}), "3g.20gb cannot start at 1", nil},
		{on(gpu.Place{Profile: 77, Start: 1}), "no MIG profile with the id 77", nil},
		{Wanted{Layout: gpu.NewLayout(two0)}, "wanted without MIG mode", nil},
	} {
		out, err := e.Apply(t.Context(), testGPU, c.w)
		ends(t, f, e, out, err, Unchanged, c.says, before...)
		if c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%v is no %v", err, c.is)
		}
		if _, errPreview := e.Preview(t.Context(), testGPU, c.w); errPreview == nil || errPreview.Error() != err.Error() {
			t.Errorf("preview says %v, apply %v", errPreview, err)
		}
	}
	if len(f.calls) > 0 {
		t.Errorf("calls: %v", f.calls)
	}
	f.s.Capable = false
	if out, err := e.Apply(t.Context(), testGPU, on()); !errors.Is(err, gpu.ErrNoMIG) || out.End != Unchanged {
		t.Errorf("%+v, %v", out, err)
	}
}

// TestApplyFails goes back to the former layout whatever the failure is.
func TestApplyFails(t *testing.T) {
	for name, c := range map[string]struct {
		break_ func(f *fakeGPU, e *Executor)
		says   string
	}{
		"a destroy that lies": {func(f *fakeGPU, _ *Executor) { f.lies["destroy"] = true }, "the instance is still there"},
		"a create that lies":  {func(f *fakeGPU, _ *Executor) { lieOnce(f) }, "not there with one whole compute instance"},
		"no room":             {func(f *fakeGPU, _ *Executor) { failOnce(f, "create", gpu.ErrNoRoom) }, "insufficient resources"},
		"unknown":             {func(f *fakeGPU, _ *Executor) { failOnce(f, "create", errBroken) }, "create 4g.20gb at 0: broken"},
		"no compute instance": {func(f *fakeGPU, _ *Executor) { halfOnce(f) }, "not there with one whole compute instance"},
		"no device node": {func(_ *fakeGPU, e *Executor) {
			e.Publish = func(_ context.Context, _ gpu.MIGState, i gpu.Instance) error {
				return map[gpu.Place]error{four0: errBroken}[i.Place]
			}
		}, "broken"},
		"a divided instance": {func(f *fakeGPU, _ *Executor) {
			f.after = func(call string, p gpu.Place) {
				if call == "create" && p == four0 {
					f.s.Instances[len(f.s.Instances)-1].Compute[0].Multiprocessors = 14
				}
			}
		}, "one whole compute instance"},
	} {
		t.Run(name, func(t *testing.T) {
			f, e := given(t, two0, two2, three4)
			slices.Reverse(f.s.Instances) // the driver lists them in any order
			f.hold(three4, 77)
			c.break_(f, &e)
			out, err := e.Apply(t.Context(), testGPU, on(four0, three4))
			if name == "a divided instance" { // which gpuslot must not touch any more
				if out.End != EndDegraded {
					t.Errorf("%+v, %v", out, err)
				}
				return
			}
			ends(t, f, e, out, err, ReachedFormer, c.says, two0, two2, three4)
			if slices.Contains(f.calls, "destroy 9@4") {
				t.Error("a busy instance is touched")
			}
		})
	}
}

func failOnce(f *fakeGPU, call string, err error) {
	f.before = func(c string, _ gpu.Place) error {
		if c != call {
			return nil
		}
		f.before = nil
		return err
	}
}

func lieOnce(f *fakeGPU) {
	f.before = func(c string, _ gpu.Place) error {
		f.lies["create"] = c == "create" && !f.lies["told"]
		f.lies["told"] = f.lies["told"] || c == "create"
		return nil
	}
}

// halfOnce leaves the first new instance without its compute instance.
func halfOnce(f *fakeGPU) {
	f.after = func(call string, _ gpu.Place) {
		if call == "create" {
			f.s.Instances[len(f.s.Instances)-1].Compute = nil
			f.after = nil
		}
	}
}

// TestForeign: an idle foreign instance that is not wanted and in nobody's way stays.
func TestForeign(t *testing.T) {
	f, e := given(t, two0)
	f.put(three4, 4)
	out, err := e.Apply(t.Context(), testGPU, on(three0))
	ends(t, f, e, out, err, ReachedWanted, "", three0, three4)
	out, err = e.Apply(t.Context(), testGPU, on())
	ends(t, f, e, out, err, ReachedWanted, "", three4)
	f.s.Instances[0].Compute = nil // not ours to complete
	out, err = e.Apply(t.Context(), testGPU, on(three4))
	ends(t, f, e, out, err, Unchanged, "has 0 compute instances, not one with all its multiprocessors, and gpuslot did not make them", three4)
	if s, err := e.State(t.Context(), testGPU); err != nil || WantedFrom(s, gpu.NewLayout(three4, three0)).Layout.Contains(three4) {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestWantedFrom: what another made and is not one whole device is left to its maker; all else is wanted.
func TestWantedFrom(t *testing.T) {
	half, whole := []gpu.ComputeInstance(nil), []gpu.ComputeInstance{{}}
	for name, c := range map[string]struct {
		i    []gpu.Instance
		want bool
	}{
		"nothing there":    {nil, true},
		"ours, whole":      {[]gpu.Instance{{Place: three4, Owner: gpu.Ours, Compute: whole}}, true},
		"ours, half":       {[]gpu.Instance{{Place: three4, Owner: gpu.Ours, Compute: half}}, true},
		"another's, whole": {[]gpu.Instance{{Place: three4, Owner: gpu.Foreign, Compute: whole}}, true},
		"another's, half":  {[]gpu.Instance{{Place: three4, Owner: gpu.Foreign, Compute: half}}, false},
	} {
		w := WantedFrom(gpu.MIGState{MIGGPU: gpu.MIGGPU{Instances: c.i}}, gpu.NewLayout(three4))
		if w.Layout.Contains(three4) != c.want || !w.Enabled {
			t.Errorf("%s: %+v", name, w)
		}
	}
}

// TestApplyMeetsOthers: what changes while the change is under way.
func TestApplyMeetsOthers(t *testing.T) {
	for name, c := range map[string]struct {
		meet func(f *fakeGPU, call int)
		says string
		not  string
	}{
		"a job comes": {func(f *fakeGPU, call int) {
			if call == 1 {
				f.hold(two2, 77)
			}
		}, "destroy 2g.10gb at 2: in use by another client; held by pid 77", "destroy 14@2"},
		"somebody replaces one of ours": {func(f *fakeGPU, call int) {
			switch call {
			case 1:
				f.remove(three4)
			case 2:
				f.put(three4, 4)
			}
		}, "is not ours any more", "destroy 9@4"},
	} {
		t.Run(name, func(t *testing.T) {
			f, e := given(t, two0, two2, three4)
			call := 0
			f.after = func(string, gpu.Place) {
				call++
				c.meet(f, call)
			}
			out, err := e.Apply(t.Context(), testGPU, on())
			ends(t, f, e, out, err, ReachedFormer, c.says, two0, two2, three4)
			if slices.Contains(f.calls, c.not) {
				t.Errorf("%v", f.calls)
			}
		})
	}
	t.Run("somebody destroys what stays", func(t *testing.T) {
		f, e := given(t, two0, three4)
		f.after = func(call string, _ gpu.Place) {
			if f.after = nil; call == "create" {
				f.remove(three4)
			}
		}
		out, err := e.Apply(t.Context(), testGPU, on(two0, two2, three4))
		ends(t, f, e, out, err, ReachedFormer, "did somebody else change it?", two0, three4)
	})
}

// TestApplyWaits: IN_USE goes by itself, or it does not.
func TestApplyWaits(t *testing.T) {
	f, e := given(t, two0)
	tries := 0
	f.before = func(call string, _ gpu.Place) error {
		if tries++; call == "destroy" && tries < 3 {
			return gpu.ErrInUse
		}
		return nil
	}
	out, err := e.Apply(t.Context(), testGPU, on(three0))
	ends(t, f, e, out, err, ReachedWanted, "", three0)
	f.before = func(call string, _ gpu.Place) error {
		return map[string]error{"destroy": gpu.ErrInUse}[call]
	}
	out, err = e.Apply(t.Context(), testGPU, on(two0))
	ends(t, f, e, out, err, ReachedFormer, "destroy 3g.20gb at 0: in use by another client; held by nobody that NVML or /proc shows; DCGM", three0)
	if n := len(slices.DeleteFunc(f.calls, func(c string) bool { return c != "destroy 9@0" })); n != 3 {
		t.Errorf("%d tries, want 3", n)
	}
}

// TestPatience: the wait doubles, and a context ends it.
func TestPatience(t *testing.T) {
	f, e := given(t, two0)
	e.Patience = Patience{}
	f.before = func(string, gpu.Place) error { return gpu.ErrInUse }
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if out, _ := e.Apply(t.Context(), testGPU, on(three0)); out.End != ReachedFormer {
			t.Errorf("%+v", out)
		}
		if got := time.Since(start); got != 3100*time.Millisecond { // 100+200+400+800+1600
			t.Errorf("%s", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
		defer cancel()
		start = time.Now()
		_, err := e.Apply(ctx, testGPU, on(three0))
		if got := time.Since(start); got != 250*time.Millisecond || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s, %v", got, err)
		}
	})
}

// TestApplyCancelled: a caller that goes away leaves the former layout.
func TestApplyCancelled(t *testing.T) {
	f, e := given(t, two0, two2)
	ctx, cancel := context.WithCancel(t.Context())
	f.after = func(string, gpu.Place) { cancel() }
	out, err := e.Apply(ctx, testGPU, on(three0))
	ends(t, f, e, out, err, ReachedFormer, "context canceled", two0, two2)
}

// TestDegraded: neither way goes; then both do again.
func TestDegraded(t *testing.T) {
	f, e := given(t, two0, two2)
	f.before = func(call string, _ gpu.Place) error { return map[string]error{"create": errBroken}[call] }
	out, err := e.Apply(t.Context(), testGPU, on(three0))
	ends(t, f, e, out, err, EndDegraded, "is degraded: neither the wanted nor the former layout could be reached")
	out, err = e.Apply(t.Context(), testGPU, on(four0)) // it tries to go back first
	ends(t, f, e, out, err, EndDegraded, "is degraded")
	f.before, f.blind = nil, errBroken
	if out, err = e.Recover(t.Context(), testGPU); out.End != EndDegraded || !errors.Is(err, errBroken) {
		t.Errorf("%+v, %v", out, err)
	}
	f.blind = nil
	out, err = e.Recover(t.Context(), testGPU)
	ends(t, f, e, out, err, ReachedFormer, "", two0, two2)
	out, err = e.Recover(t.Context(), testGPU)
	ends(t, f, e, out, err, Unchanged, "", two0, two2)
}

// TestBlindAfterDeath: the journal of a killed process is open, and the hardware
// cannot be read: the book says so until it can.
func TestBlindAfterDeath(t *testing.T) {
	f, e := given(t, two0, two2)
	f.before = func(string, gpu.Place) error { panic(death{}) }
	func() {
		defer func() { _ = recover() }()
		_, _ = e.Apply(t.Context(), testGPU, on(three0))
	}()
	f.before, f.blind = nil, errBroken
	for _, again := range []func() (Outcome, error){
		func() (Outcome, error) { return e.Recover(t.Context(), testGPU) },
		func() (Outcome, error) { return e.Apply(t.Context(), testGPU, on(four0)) },
	} {
		out, err := again()
		ends(t, f, e, out, err, EndDegraded, "cannot be ended", two0, two2)
	}
	f.blind = nil
	out, err := e.Recover(t.Context(), testGPU)
	ends(t, f, e, out, err, ReachedWanted, "", three0)
}

// TestRelease: our own holders go first, if there are no others, and their refusal stops everything.
func TestRelease(t *testing.T) {
	f, e := given(t, two0, two2)
	f.hold(two0, 5)
	f.hold(two2, 6)
	e.Owns = func(s gpu.MIGState, pid int) bool { return s.UUID == testGPU && pid == 5 }
	var released []gpu.Place
	e.Release = func(_ context.Context, _ gpu.UUID, i gpu.Instance) error {
		released = append(released, i.Place)
		f.s.Instances[0].Holders = nil
		return map[bool]error{true: errBroken}[i.Place == two2]
	}
	out, err := e.Apply(t.Context(), testGPU, on(three0))
	if ends(t, f, e, out, err, Unchanged, "held by pid 6", two0, two2); len(released) > 0 {
		t.Errorf("beside another holder, those of %v were stopped", released)
	}
	f.s.Instances[1].Holders = nil
	out, err = e.Apply(t.Context(), testGPU, on(three0))
	ends(t, f, e, out, err, Unchanged, "stop our own holders of the instance 2g.10gb at 2 (GPU instance 142): broken", two0, two2)
	out, err = e.Apply(t.Context(), testGPU, on(two2))
	ends(t, f, e, out, err, ReachedWanted, "", two2)
	if d := cmp.Diff([]gpu.Place{two0, two2, two0}, released); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestMode: a reset only where the mode waits for one, and only of an idle GPU.
func TestMode(t *testing.T) {
	f, e := given(t)
	f.s.Enabled, f.s.Pending, f.slow, e.Reset = false, false, true, f.reset
	f.s.Holders = []gpu.Holder{{PID: 9}}
	out, err := e.Apply(t.Context(), testGPU, on(two0))
	ends(t, f, e, out, err, Unchanged, "enable-mig: in use by another client; held by pid 9")
	f.s.Holders = nil
	out, err = e.Apply(t.Context(), testGPU, on(two0))
	ends(t, f, e, out, err, ReachedWanted, "", two0)
	out, err = e.Apply(t.Context(), testGPU, Wanted{})
	ends(t, f, e, out, err, ReachedWanted, "")
	if d := cmp.Diff([]string{"mode 0@0", "reset", "create 14@0", "destroy 14@0", "mode 0@0", "reset"}, f.calls); d != "" || f.s.Enabled {
		t.Errorf("(-want +got):\n%s", d)
	}
	// Refused: what is pending is taken back.
	e.Reset = func(context.Context, gpu.UUID) error { return errBroken }
	out, err = e.Apply(t.Context(), testGPU, on(two0))
	ends(t, f, e, out, err, ReachedFormer, "the GPU needs a reset: broken; held by nobody")
	if f.s.Pending || !errors.Is(err, gpu.ErrResetRequired) {
		t.Errorf("pending %t, %v", f.s.Pending, err)
	}
	// What somebody else left pending is taken back under running jobs.
	f.s.Pending, f.s.Holders, f.calls = true, []gpu.Holder{{PID: 9}}, nil
	out, err = e.Apply(t.Context(), testGPU, Wanted{})
	ends(t, f, e, out, err, ReachedWanted, "")
	if f.s.Pending {
		t.Error("MIG mode is still pending")
	}
}

// TestBoot: after a boot nothing is ours, and the same is made again.
func TestBoot(t *testing.T) {
	f, e := given(t, two0, three4)
	f.s.Instances, f.s.Enabled, f.s.Pending = nil, false, false
	f.put(three4, 4)
	f.s.Enabled, f.s.Pending = true, true // somebody was faster, at one of our places
	e.Boot = "second"
	w, ok, err := e.Applied(testGPU)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	out, err := e.Apply(t.Context(), testGPU, w)
	ends(t, f, e, out, err, ReachedWanted, "", two0, three4)
	b, err := ReadJournal(e.Dir, testGPU)
	if d := cmp.Diff([]Owned{{two0, 3}}, b.Owned); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
}

// TestIntent: what is about to be done stands in the file before it is done.
func TestIntent(t *testing.T) {
	f, e := given(t, two0)
	f.before = func(call string, p gpu.Place) error {
		b, err := ReadJournal(e.Dir, testGPU)
		if err != nil || b.Change == nil || b.Change.Step == nil || string(b.Change.Step.Verb) != call || b.Change.Step.Place != p {
			t.Errorf("before %s %v: %+v, %v", call, p, b.Change, err)
		}
		return nil
	}
	out, err := e.Apply(t.Context(), testGPU, on(three0, three4))
	ends(t, f, e, out, err, ReachedWanted, "", three0, three4)
	if len(f.calls) != 3 {
		t.Error(f.calls)
	}
	// Where it cannot be written nothing is done.
	f.calls = nil
	if err := os.Chmod(e.Dir+"/mig", 0o500); err != nil || os.Geteuid() == 0 {
		t.Log("root writes everywhere: the refusal is not seen here")
		return
	}
	if out, err := e.Apply(t.Context(), testGPU, on()); err == nil || len(f.calls) > 0 {
		t.Errorf("%+v, %v", out, err)
	}
}

func TestLocked(t *testing.T) {
	f, e := given(t, two0)
	unlock, err := lockGPU(e.Dir, testGPU)
	if err != nil {
		t.Fatal(err)
	}
	for _, try := range []func() (Outcome, error){
		func() (Outcome, error) { return e.Apply(t.Context(), testGPU, on()) },
		func() (Outcome, error) { return e.Recover(t.Context(), testGPU) },
	} {
		out, err := try()
		ends(t, f, e, out, err, Unchanged, "another gpuslot changes the layout", two0)
	}
	unlock()
	out, err := e.Apply(t.Context(), testGPU, on())
	ends(t, f, e, out, err, ReachedWanted, "")
}
