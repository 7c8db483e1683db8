package main

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/test/gpu/node"
	"github.com/gpuslot/gpuslot/test/gpu/truth"
)

// TestPlan: every trial is in it once. Those that end servers come after all others, and
// before what takes long.
func TestPlan(t *testing.T) {
	seen := map[string]int{}
	var order []string
	for _, p := range plan() {
		for _, id := range p.trials {
			seen[id]++
			order = append(order, id)
		}
		if p.least > p.limit || p.usual > p.limit || p.limit == 0 {
			t.Errorf("%s: least %v, usual %v, limit %v", p.name, p.least, p.usual, p.limit)
		}
	}
	for _, trial := range slices.Concat(truth.Trials(), (&node.Node{}).Trials()) {
		if want := map[bool]int{true: 1}[trial.NotDone == "" || trial.ID == "N6"]; seen[trial.ID] != want {
			t.Errorf("%s is %d times in the plan, not %d", trial.ID, seen[trial.ID], want)
		}
	}
	if tail := order[len(order)-5:]; !slices.Equal(tail, []string{"T17", "T10", "T8", "N7", "T15"}) {
		t.Errorf("the last trials are %v", tail)
	}
}

// TestTimeToMeasure: of a part's limit gpuslot bench gets what these parts took on an H200
// (known-load: two runs of 5 s, and their starts). known-load was cut off there with 10 s.
func TestTimeToMeasure(t *testing.T) {
	const spare = 5 * time.Second // the harness's
	for name, took := range map[string]time.Duration{"known-load": 13 * time.Second, "sharing-mix": 89 * time.Second} {
		p := plan()[slices.IndexFunc(plan(), func(p part) bool { return p.name == name })]
		if has := p.limit - grace - spare; has < took || p.usual < took {
			t.Errorf("%s: %v of %v, usually %v: want %v", name, has, p.limit, p.usual, took)
		}
	}
}

// TestPlanOnAnyMachine: neither the order nor a limit follows from the processors.
func TestPlanOnAnyMachine(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	var one, many strings.Builder
	for processors, w := range map[int]*strings.Builder{1: &one, 16: &many} {
		runtime.GOMAXPROCS(processors)
		if err := table(w); err != nil {
			t.Fatal(err)
		}
	}
	if one.String() != many.String() {
		t.Errorf("with 1 processor\n%s\nand with 16\n%s", one.String(), many.String())
	}
}

// TestAttempts: each attempt leaves the results of others, and measures what the one
// before had no time for.
func TestAttempts(t *testing.T) {
	dir := t.TempDir()
	script := []byte("#!/bin/sh\necho \"$@\" >>calls\n")
	errLogs, errHarness := os.Mkdir(filepath.Join(dir, "logs"), 0o755), os.WriteFile(filepath.Join(dir, "harness"), script, 0o755)
	if err := errors.Join(errLogs, errHarness); err != nil {
		t.Fatal(err)
	}
	c := &call{programs: dir, raw: dir, scale: 1}
	for _, name := range []string{"sharing-mix", "sharing-mix-repeats"} {
		p := plan()[slices.IndexFunc(plan(), func(p part) bool { return p.name == name })]
		for attempt := range mostTries {
			attempted := trying{budget: time.Minute, mps: true, progress: &progress{Tries: attempt + 1}}
			if err := p.make(t.Context(), c, attempted); err != nil {
				t.Fatal(err)
			}
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	wants := []string{
		"-suffix  sharing-mix", "-after sharing-mix -suffix -try2 sharing-mix",
		"-after sharing-mix-try2 -suffix -try3 sharing-mix",
		"-suffix -repeats sharing-mix", "-after sharing-mix-repeats -suffix -repeats-try2 sharing-mix",
		"-after sharing-mix-repeats-try2 -suffix -repeats-try3 sharing-mix",
	}
	for i, want := range wants {
		if len(lines) != len(wants) || !strings.HasSuffix(lines[i], want) {
			t.Fatalf("no %q in\n%s", want, b)
		}
	}
}

func TestOver(t *testing.T) {
	for state, want := range map[string]bool{"": false, running: false, cut: false, impossible: false, finished: true, failed: true} {
		if got := (&progress{State: state, Tries: 1}).over(); got != want {
			t.Errorf("%q: %v", state, got)
		}
	}
	if !(&progress{State: cut, Tries: mostTries}).over() {
		t.Error("a part that never ends is begun again and again")
	}
}
