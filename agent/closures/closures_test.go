package closures

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	gpuA = gpu.UUID("GPU-00000000-0000-4000-8000-000000000000")
	gpuB = gpu.UUID("GPU-00000000-0000-4000-8000-000000000001")
	part = gpu.UUID("MIG-00000000-0000-5000-8000-000000000000")
)

// TestListModel: after any row of closings and openings a GPU is closed by
// exactly those who closed it and neither opened it nor were overridden.
func TestListModel(t *testing.T) {
	owners, gpus := []string{"operator", "node-health", "burn-in"}, []gpu.UUID{gpuA, gpuB}
	rapid.Check(t, func(t *rapid.T) {
		model := map[gpu.UUID]map[string]string{gpuA: {}, gpuB: {}}
		var l List
		for n := range rapid.IntRange(0, 40).Draw(t, "steps") {
			u, owner := rapid.SampledFrom(gpus).Draw(t, "gpu"), rapid.SampledFrom(owners).Draw(t, "owner")
			before := slices.Clone(l)
			switch rapid.IntRange(0, 3).Draw(t, "do") {
			case 0, 1:
				reason := fmt.Sprintf("reason %d", n)
				l = l.With(Closure{GPU: u, Owner: owner, Reason: reason})
				model[u][owner] = reason
			case 2:
				_, had := model[u][owner]
				others := len(model[u]) > 0 && !had
				rest, lifted, err := l.Lift(u, owner, false)
				if (err != nil) != others || had != (len(lifted) == 1) {
					t.Fatalf("%s lifts %s of %v: lifted %v, %v", owner, u, model[u], lifted, err)
				}
				l = rest
				delete(model[u], owner)
			case 3:
				rest, lifted, err := l.Lift(u, owner, true)
				if err != nil || len(lifted) != len(model[u]) {
					t.Fatalf("override lifts %v of %v: %v", lifted, model[u], err)
				}
				l, model[u] = rest, map[string]string{}
			}
			if len(before) > 0 && len(l) > 0 && &before[0] == &l[0] {
				t.Fatal("a value was changed")
			}
			for _, u := range gpus {
				on := l.On(u)
				if len(on) != len(model[u]) || (on.Reason() == "") != (len(model[u]) == 0) {
					t.Fatalf("%s is closed by %v, want %v", u, on, model[u])
				}
				for _, o := range on {
					if model[u][o.Owner] != o.Reason || !strings.Contains(on.Reason(), o.Reason) {
						t.Fatalf("%v of %s, want %v", o, u, model[u])
					}
				}
			}
		}
	})
}

func TestCheck(t *testing.T) {
	for _, c := range []struct{ owner, reason, want, says string }{
		{"operator", "  riser\tto be\nreplaced ", "riser to be replaced", ""},
		{"node-health", "x\x1b[31m\x00y", "x [31m y", ""},
		{"operator", " \n", "", "needs a reason"},
		{"operator", strings.Repeat("é", maxReason), strings.Repeat("é", maxReason), ""},
		{"operator", strings.Repeat("é", maxReason+1), "", "say it shorter"},
		{"agent", "x", "", "gpuslot's own"},
		{"node", "x", "", "gpuslot's own"},
		{"Health", "x", "", "is no name"},
		{strings.Repeat("a", 33), "x", "", "is no name"},
	} {
		got, err := check(c.owner, c.reason)
		if got != c.want || (err != nil) != (c.says != "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q, %q: %q, %v", c.owner, c.reason, got, err)
		}
	}
}

// TestFor: a starter of before the closure has a running job, one of after it a new one.
func TestFor(t *testing.T) {
	closed := time.Now()
	ticks, err := process.TicksAt(closed)
	if err != nil {
		t.Skip(err)
	}
	l := List{{GPU: gpuA, Owner: "operator", Since: closed}, {GPU: gpuA, Owner: "node-health"}}
	for started, want := range map[uint64]string{ticks - 1000: "node-health", ticks + 1000: "node-health operator"} {
		if got := strings.Join(l.For(started).Owners(), " "); got != want {
			t.Errorf("of %d ticks at %d: %q, want %q", started, ticks, got, want)
		}
	}
	if len(l) != 2 || l[0].Owner != "operator" {
		t.Errorf("the list was changed: %v", l)
	}
}

func TestReasonAnd(t *testing.T) {
	l := List{{GPU: gpuA, Owner: "operator", Reason: "too hot"}}
	for got, want := range map[string]string{
		List{}.ReasonAnd(""): "", List{}.ReasonAnd("x"): "x", l.ReasonAnd(""): "closed by operator: too hot",
		l.ReasonAnd("no daemon"): "closed by operator: too hot; and no daemon",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
