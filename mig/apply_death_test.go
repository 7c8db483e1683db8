package mig

import (
	"os"
	"testing"

	"pgregory.net/rapid"

	"github.com/gpuslot/gpuslot/gpu"
)

// death ends a change where a process would be killed.
type death struct{}

// TestDeath: a process that dies before or after any call, and fails before
// that, leaves a book that the next one ends in the wanted or the former layout.
// What is busy or foreign is never touched.
func TestDeath(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		_ = os.RemoveAll(dir + "/mig")
		f := newFake(rt)
		ls, err := Enumerate(f.s.Chip)
		if err != nil {
			rt.Fatal(err)
		}
		e := f.executor(dir)
		former := ls.all[rapid.IntRange(0, len(ls.all)-1).Draw(rt, "former")]
		wanted := ls.all[rapid.IntRange(0, len(ls.all)-1).Draw(rt, "wanted")]
		if _, err := e.Apply(t.Context(), testGPU, on(ls.layout(former.set)...)); err != nil {
			rt.Fatal(err)
		}
		var busy gpu.Layout
		for _, p := range ls.layout(former.set) {
			if rapid.IntRange(0, 3).Draw(rt, "busy") == 0 {
				f.hold(p, 77)
				busy = append(busy, p)
			}
		}
		fails := rapid.SampledFrom([]error{nil, nil, gpu.ErrInUse, gpu.ErrNoRoom, errBroken}).Draw(rt, "fails")
		failAt, dieAt := rapid.IntRange(1, 8).Draw(rt, "fail at"), rapid.IntRange(1, 16).Draw(rt, "die at")
		calls := 0
		f.before = func(call string, p gpu.Place) error {
			if busy.Contains(p) && call == "destroy" {
				rt.Errorf("%v is busy", p)
			}
			if calls++; calls == dieAt {
				panic(death{})
			}
			if calls/2+1 == failAt {
				return fails
			}
			return nil
		}
		f.after = func(string, gpu.Place) {
			if calls++; calls == dieAt {
				panic(death{})
			}
		}
		func() {
			defer func() {
				if r := recover(); r != nil && r != any(death{}) {
					panic(r)
				}
			}()
			_, _ = e.Apply(t.Context(), testGPU, on(ls.layout(wanted.set)...))
		}()
		f.before, f.after = nil, nil
		_, err = e.Recover(t.Context(), testGPU)
		l := f.s.Layout()
		b, errBook := ReadJournal(dir, testGPU)
		if err != nil || errBook != nil || b.Change != nil || b.Degraded != "" || len(b.Owned) != len(l) {
			rt.Errorf("%v, %v, %+v", err, errBook, b)
		}
		if !l.Equal(ls.layout(former.set)) && !l.Equal(ls.layout(wanted.set)) {
			rt.Errorf("%s is neither %s nor %s", f.s.Chip.Format(l), f.s.Chip.Format(ls.layout(former.set)), f.s.Chip.Format(ls.layout(wanted.set)))
		}
	})
}
