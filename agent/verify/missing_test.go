package verify

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// TestRevise: each result that no longer tells anything is void, in whatever order they are met, and
// is tried again at once.
func TestRevise(t *testing.T) {
	daemon := process.ID{PID: 5, Started: 5}
	well := Facts{Driver: "550", Daemon: daemon}
	for range 20 { // the order of a map changes
		v := newNode(t).Verifier
		want, facts := map[gpu.UUID]string{}, map[gpu.UUID]Facts{}
		add := func(void, becomes string, f Facts) {
			u := gpu.UUID(fmt.Sprintf("GPU-%08d-0000-4000-8000-000000000000", len(facts)))
			r := result{Verification: api.Verification{UUID: string(u), OK: true, Driver: "550"}, Daemon: daemon, Void: void}
			v.by[u], facts[u], want[u] = r, f, becomes
			v.retry[u] = retry{failures: 1}
		}
		add("", "", well)
		add("before", "before", Facts{})
		add("", "the driver is 555 and was 550", Facts{Driver: "555", Daemon: daemon})
		add("", "its control daemon was restarted", Facts{Driver: "550", Daemon: process.ID{PID: 6, Started: 5}})
		add("", "", Facts{Driver: "550"})
		add("", "its MPS server met a fatal GPU error", Facts{Driver: "550", Daemon: daemon, Faulted: true})
		add("", "an event closed it: Xid 79", Facts{Driver: "550", Daemon: daemon, Closed: "Xid 79"})
		if err := v.Revise(func(u gpu.UUID) Facts { return facts[u] }); err != nil {
			t.Fatal(err)
		}
		for u, r := range v.by {
			_, tried := v.retry[u]
			if became := r.Void != "" && r.Void != "before"; r.Void != want[u] || tried == became || r.holds() != (want[u] == "") {
				t.Fatalf("%s: %q, want %q; a pause %t", u, r.Void, want[u], tried)
			}
		}
		next := New(Options{File: v.File})
		if err := next.Read(); err != nil || len(next.by) != len(want) {
			t.Fatalf("the next agent reads %d, %v", len(next.by), err)
		}
	}
}

// TestMissing: why a GPU does not count as verified, and when it is tried again.
func TestMissing(t *testing.T) {
	at := time.Date(2026, 11, 23, 4, 5, 6, 0, time.UTC)
	ok, failed := result{Verification: api.Verification{OK: true}}, result{Verification: api.Verification{Text: "no limit"}}
	void := ok
	void.Void = "it was restarted"
	for name, c := range map[string]struct {
		r     *result
		retry retry
		want  string
	}{
		"it counts":                 {&ok, retry{}, ""},
		"never":                     {nil, retry{}, "not verified yet: a CUDA client runs on it first, as soon as it is idle (health.open)"},
		"it could not be tried":     {nil, retry{why: "jobs run"}, "not verified yet: jobs run"},
		"and will be":               {&failed, retry{why: "jobs run", at: at}, "not verified yet: jobs run; it is tried again at 04:05:06"},
		"it is void":                {&void, retry{}, "not verified yet: it was restarted"},
		"it is void, and will be":   {&void, retry{at: at}, "not verified yet: it was restarted; it is tried again at 04:05:06"},
		"it failed":                 {&failed, retry{}, "its verification failed: no limit"},
		"it failed, and will again": {&failed, retry{at: at}, "its verification failed: no limit; it is tried again at 04:05:06"},
	} {
		v := newNode(t).Verifier
		if c.r != nil {
			v.by[testGPU] = *c.r
		}
		v.retry[testGPU] = c.retry
		if got := v.Missing(testGPU); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if due := v.due(testGPU, at.Add(-1)); due != (c.want != "" && c.retry.at.IsZero()) {
			t.Errorf("%s: due %t before", name, due)
		}
		if due := v.due(testGPU, at); due != (c.want != "") {
			t.Errorf("%s: due %t", name, due)
		}
		last := v.Last(testGPU)
		if (last == nil) != (c.r == nil) || last != nil && last.OK != (c.want == "") {
			t.Errorf("%s: the last is %+v", name, last)
		}
	}
}

// TestTogether: the race detector looks at each method beside all others.
func TestTogether(t *testing.T) {
	v := newNode(t).Verifier
	v.by[testGPU] = result{Verification: api.Verification{OK: true, Driver: "550"}}
	var all sync.WaitGroup
	for _, do := range []func(){
		func() { v.announce(testGPU) }, func() { v.Runs(testGPU) }, func() { v.skipped(testGPU, "x", time.Time{}) },
		func() { _ = v.note(testGPU, result{}) }, func() { v.Last(testGPU) }, func() { v.due(testGPU, time.Time{}) },
		func() { v.Missing(testGPU) }, func() { _ = v.Revise(func(gpu.UUID) Facts { return Facts{} }) },
	} {
		for range 4 {
			all.Go(do)
		}
	}
	all.Wait()
}
