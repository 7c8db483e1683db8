package mig

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/gpu"
)

// TestNoStepWithoutJournal: while the journal cannot be written no further step is made, on
// the way there or back; once it can, the change goes on.
func TestNoStepWithoutJournal(t *testing.T) {
	f, e := given(t, two0, two2)
	books, aside := filepath.Join(e.Dir, "mig"), filepath.Join(e.Dir, "aside")
	f.after = func(string, gpu.Place) {
		if err := os.Rename(books, aside); err != nil {
			t.Error(err)
		}
		if err := os.WriteFile(books, nil, 0o600); err != nil {
			t.Error(err)
		}
		f.after = nil
	}
	out, err := e.Apply(t.Context(), testGPU, on(three0))
	if out.End != EndDegraded || err == nil || !slices.Equal(f.calls, []string{"destroy 14@0"}) {
		t.Errorf("%s, %v; calls %q", out.End, err, f.calls)
	}
	if err := os.Remove(books); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(aside, books); err != nil {
		t.Fatal(err)
	}
	out, err = e.Recover(t.Context(), testGPU)
	ends(t, f, e, out, err, ReachedWanted, "", three0)
}

// TestFullDisk: while no journal can be written a change is an error without a step, and the next one that can be
// noted is made. The way back has no step either, so only the end of the change is left to be written.
func TestFullDisk(t *testing.T) {
	f, e := given(t, two0, two2)
	full := JournalFile(e.Dir, testGPU) + ".new"
	if err := os.Mkdir(full, 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		out, err := e.Apply(t.Context(), testGPU, on(three0))
		if err == nil || !strings.Contains(err.Error(), "write the journal") || len(out.Steps)+len(f.calls) > 0 {
			t.Errorf("%+v, %v; calls %q", out, err, f.calls)
		}
	}
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	out, err := e.Apply(t.Context(), testGPU, on(three0))
	ends(t, f, e, out, err, ReachedWanted, "", three0)
}

// TestFullDiskAtTheEnd: a layout that was made and cannot be noted is an error, and is noted by the next change.
func TestFullDiskAtTheEnd(t *testing.T) {
	f, e := given(t, two0)
	full := JournalFile(e.Dir, testGPU) + ".new"
	f.after = func(string, gpu.Place) { f.after = nil; _ = os.Mkdir(full, 0o700) }
	out, err := e.Apply(t.Context(), testGPU, on(two0, two2))
	if err == nil || out.End != ReachedWanted {
		t.Errorf("%+v, %v", out, err)
	}
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	if out, err = e.Recover(t.Context(), testGPU); out.End != ReachedWanted || err != nil {
		t.Errorf("%+v, %v", out, err)
	}
	if w, ok, err := e.Applied(testGPU); !ok || err != nil || !w.equal(on(two0, two2)) {
		t.Errorf("%+v, %t, %v", w, ok, err)
	}
}

// TestModeThatLies: a change of MIG mode that succeeds by the driver's word alone is an error.
func TestModeThatLies(t *testing.T) {
	f, e := given(t)
	f.s.Enabled, f.s.Pending, f.lies["mode"] = false, false, true
	out, err := e.Apply(t.Context(), testGPU, on(two0))
	if out.End == ReachedWanted || err == nil || !strings.Contains(err.Error(), "the mode is not in force") {
		t.Errorf("%s, %v", out.End, err)
	}
	if slices.Contains(f.calls, "create 14@0") {
		t.Errorf("it went on: %q", f.calls)
	}
}

// TestApplyWithoutJournal: where the journal cannot be read nothing is touched, and the file stays.
func TestApplyWithoutJournal(t *testing.T) {
	f, e := given(t, two0)
	const text = "not a journal"
	if err := os.WriteFile(JournalFile(e.Dir, testGPU), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, change := range []func() (Outcome, error){
		func() (Outcome, error) { return e.Apply(t.Context(), testGPU, on(three0)) },
		func() (Outcome, error) { return e.Recover(t.Context(), testGPU) },
	} {
		out, err := change()
		if out.End != Unchanged || err == nil || !strings.Contains(err.Error(), "until the file is mended") || len(f.calls) > 0 {
			t.Errorf("%s, %v; calls %q", out.End, err, f.calls)
		}
	}
	if left, err := os.ReadFile(JournalFile(e.Dir, testGPU)); string(left) != text {
		t.Errorf("%q, %v", left, err)
	}
}
