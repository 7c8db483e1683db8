package faults

import (
	"bytes"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// TestLookAtConditions: what the GPUs say counts, with the time of their servers, and is kept for the next agent.
func TestLookAtConditions(t *testing.T) {
	f := &fakeAlarms{conditions: []gpu.Condition{{GPU: watched, Lost: true}}}
	w, _, _ := newTestWatcher(t, f, &bytes.Buffer{})
	asked := 0
	server := func(gpu.UUID) time.Time { asked++; return time.Time{} }
	if err := w.Look(t.Context(), []gpu.UUID{watched}, server); err != nil || asked != 1 || !w.Verdict(watched, time.Now()).Closed() {
		t.Errorf("%v, asked %d times, %+v", err, asked, w.Verdict(watched, time.Now()))
	}
	next := NewWatcher(w.o)
	if err := next.Read(); err != nil || !next.Verdict(watched, time.Now()).Closed() {
		t.Errorf("the next agent: %v", err)
	}
	if err := next.Open(watched); err != nil {
		t.Error(err)
	}
	f.conditions = nil
	if err := next.Look(t.Context(), []gpu.UUID{watched}, server); err != nil {
		t.Error(err)
	}
}

// TestNothingToWatch: without GPUs that report anything nothing is asked or written, and no kernel log is read
// without its path.
func TestNothingToWatch(t *testing.T) {
	var log bytes.Buffer
	w, events, _ := newTestWatcher(t, nil, &log)
	w.Watch(t.Context()) // it returns
	w.ReadKernelLog(t.Context(), "")
	if err := w.Look(t.Context(), nil, nil); err != nil || log.Len() > 0 || len(*events) > 0 {
		t.Errorf("%v, %s, %q", err, &log, *events)
	}
	if w.ReadKernelLog(t.Context(), w.o.File); !strings.Contains(log.String(), "XIDs do not name their processes") {
		t.Errorf("a kernel log that is not there: %s", &log)
	}
	if err := w.Read(); err != nil {
		t.Errorf("no file is no error: %v", err)
	}
}

// TestUnreadFileStays: a file that does not read closes all GPUs, and stays until each was opened. Then it is aside.
func TestUnreadFileStays(t *testing.T) {
	for name, text := range map[string]string{"no text": "{", "no GPU": `[{"gpu":"GPU-x"}]`} {
		w, _, _ := newTestWatcher(t, &fakeAlarms{}, &bytes.Buffer{})
		if err := os.WriteFile(w.o.File, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := w.Read(); err == nil || !w.Verdict(watched, time.Now()).Closed() {
			t.Errorf("%s: %v", name, err)
		}
		there := func() bool { got, err := os.ReadFile(w.o.File); return err == nil && string(got) == text }
		if err := w.Keep(); err != nil || !there() {
			t.Errorf("%s: %v, it stays: %t", name, err, there())
		}
		if err := w.Open(watched); err != nil || there() || w.Verdict(watched, time.Now()).Closed() {
			t.Errorf("%s, opened: %v, it stays: %t", name, err, there())
		}
		if aside, err := os.ReadDir(strings.TrimSuffix(w.o.File, "/troubles.json")); err != nil || len(aside) != 1 {
			t.Errorf("%s: aside are %v, %v", name, aside, err)
		}
	}
}

// TestKeepTogether: who keeps the file last writes what is so.
func TestKeepTogether(t *testing.T) {
	w, _, _ := newTestWatcher(t, &fakeAlarms{}, &bytes.Buffer{})
	kept := 0 // the race detector looks
	o := w.o.Node
	w.o.Node = func() Node { kept++; return o() }
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := w.Keep(); err != nil {
				t.Error(err)
			}
		})
	}
	if all.Wait(); kept != 4 {
		t.Errorf("kept %d times", kept)
	}
}

// TestManyFaults: those of long ago go first, also in what an agent before had.
func TestManyFaults(t *testing.T) {
	for _, more := range []int{0, 1} {
		faults := make([]time.Time, maxFaults+more)
		for i := range faults {
			faults[i] = at(time.Duration(i))
		}
		if got := (Saved{Faults: faults}).state().faults; len(got) != maxFaults || !got[0].Equal(at(time.Duration(more))) {
			t.Errorf("%d: %d are left, the first of %v", len(faults), len(got), got[0])
		}
	}
}
