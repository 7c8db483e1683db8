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
