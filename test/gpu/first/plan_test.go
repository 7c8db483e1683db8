package main

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/test/gpu/node"
	"github.com/gpuslot/gpuslot/test/gpu/truth"
)

// TestPlan: every trial is in it once, and what may leave a GPU that serves nobody
// comes after everything else.
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
	if tail := order[len(order)-5:]; !slices.Equal(tail, []string{"T17", "T10", "T8", "T15", "N7"}) {
		t.Errorf("the last trials are %v", tail)
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
