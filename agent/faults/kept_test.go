package faults

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/gpu"
)

// TestWhatIsSaved: a closure for hardware, past faults and what an operator accepted are kept, each alone.
func TestWhatIsSaved(t *testing.T) {
	for name, c := range map[string]struct {
		saved Saved
		kept  bool
	}{
		"nothing":             {Saved{}, false},
		"for a reset":         {Saved{Class: ClosedForReset}, true},
		"broken":              {Saved{Class: ClosedBroken}, true},
		"a past fault":        {Saved{Faults: []time.Time{at(0)}}, true},
		"an accepted row":     {Saved{AcceptedRowFailed: true}, true},
		"an accepted request": {Saved{AcceptedRecovery: gpu.RecoveryGPUReset}, true},
	} {
		x := &Tracker{}
		c.saved.GPU = gpuA
		x.Restore([]Saved{c.saved})
		var want []Saved
		if c.kept {
			want = []Saved{c.saved}
		}
		if d := cmp.Diff(want, x.Saved()); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
	x := &Tracker{}
	x.Restore([]Saved{{GPU: gpuB, Class: ClosedBroken}, {GPU: gpuA, Class: ClosedBroken}})
	if all := x.Saved(); len(all) != 2 || all[0].GPU != gpuA {
		t.Errorf("not in order: %+v", all)
	}
	var faults []time.Time
	for i := range maxFaults + 2 {
		faults = append(faults, at(time.Duration(i)))
	}
	x.Restore([]Saved{{GPU: gpuA, Faults: faults}})
	if d := cmp.Diff(faults[2:], x.Saved()[0].Faults); d != "" {
		t.Errorf("too many faults (-want +got):\n%s", d)
	}
}

// TestWhatIsCounted: each kind of event has a counter, and those that do not close a GPU count as information.
func TestWhatIsCounted(t *testing.T) {
	for kind, class := range map[gpu.EventKind]gpu.XIDClass{
		gpu.EventLost: gpu.XIDNeedsReset, gpu.EventUnavailable: gpu.XIDNeedsReset, gpu.EventDoubleBit: gpu.XIDInformation,
		gpu.EventSingleBit: gpu.XIDInformation, gpu.EventRecoveryAction: gpu.XIDInformation,
	} {
		x := &Tracker{}
		for range 2 {
			x.Event(gpu.Event{GPU: gpuA, Kind: kind, Time: at(0)})
		}
		want := []Counted{{gpuA, string(kind), class, 2}}
		if kind == gpu.EventLost { // one loss
			want = []Counted{{gpuA, "lost", class, 1}}
		}
		if d := cmp.Diff(want, x.Counts()); d != "" {
			t.Errorf("%s (-want +got):\n%s", kind, d)
		}
		if closed := x.Verdict(gpuA, at(0)).Closed(); closed != (class == gpu.XIDNeedsReset) {
			t.Errorf("%s: closed %t", kind, closed)
		}
	}
}

// TestStrongerClosureWins: a weaker one, or the same again, keeps the first cause and its time.
func TestStrongerClosureWins(t *testing.T) {
	order := []Closure{"", ClosedForServer, ClosedForReset, ClosedBroken}
	for i, first := range order {
		for j, second := range order[1:] {
			j++
			g := state{closed: first, since: at(0), cause: cause{xid: 1}}.close(second, cause{xid: 2}, at(1))
			taken := j > i || second == ClosedForServer && first == second
			want := first
			if taken {
				want = second
			}
			if g.closed != want || (g.cause.xid == 2) != taken || g.since.Equal(at(1)) != taken {
				t.Errorf("%q and then %q: %q since %s, Xid %d", first, second, g.closed, g.since, g.cause.xid)
			}
			if hardware := taken && second != ClosedForServer; (len(g.faults) == 1) != hardware {
				t.Errorf("%q and then %q: %d faults", first, second, len(g.faults))
			}
		}
	}
	var g state
	for i := range maxFaults + 2 {
		g.resetSeen = true
		g = g.close(ClosedForReset, cause{}, at(time.Duration(i)))
	}
	if len(g.faults) != maxFaults || !g.faults[0].Equal(at(2)) {
		t.Errorf("%d faults are remembered, from %s on", len(g.faults), g.faults[0])
	}
	again := state{closed: ClosedForReset, resetSeen: true, since: at(0)}.close(ClosedForReset, cause{xid: 2}, at(1))
	if again.resetSeen || !again.since.Equal(at(1)) || len(again.faults) != 1 {
		t.Errorf("a fault after the reset: %+v", again)
	}
}

func TestNear(t *testing.T) {
	for d, want := range map[time.Duration]bool{0: true, joinWithin: true, -joinWithin: true, joinWithin + 1: false, -joinWithin - 1: false} {
		if near(at(d), at(0)) != want {
			t.Errorf("%s: %t", d, !want)
		}
	}
}
