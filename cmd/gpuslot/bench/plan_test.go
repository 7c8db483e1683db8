package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/gpu"
)

func words(steps []Step) (out []string) {
	for _, s := range steps {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %d r%d %s", s.Mode, s.Copies, s.Repeat, s.Profile)))
	}
	return out
}

func TestPlan(t *testing.T) {
	plain := gpu.GPU{ComputeMode: gpu.ComputeModeDefault, MIGCapable: true}
	divided := gpu.GPU{MIGCapable: true, MIGEnabled: true, MIGDevices: []gpu.MIGDevice{{UUID: "MIG-a", Profile: "1g.5gb"}, {UUID: "MIG-b", Profile: "3g.20gb"}, {UUID: "MIG-c", Profile: "1g.5gb"}}}
	exclusive := gpu.GPU{ComputeMode: gpu.ComputeModeExclusiveProcess}
	tests := map[string]struct {
		order Order
		on    Ground
		want  []string
		skips []string
	}{
		"all, in turn": {
			Order{Modes: Modes(), Copies: []int{4, 1, 4}, Repeats: 2}, Ground{GPU: plain},
			[]string{
				"exclusive 1 r1", "mps 1 r1", "timeslice 4 r1", "mps 4 r1", "mps-capped 4 r1",
				"exclusive 1 r2", "mps 1 r2", "timeslice 4 r2", "mps 4 r2", "mps-capped 4 r2",
			},
			[]string{"mig 0: the GPU is not in MIG mode"},
		},
		"MIG devices of one profile": {
			Order{Modes: []Mode{MIG, MPS}, Copies: []int{1, 2}, Repeats: 1}, Ground{GPU: divided},
			[]string{"mig 1 r1 1g.5gb", "mig 1 r1 3g.20gb", "mig 2 r1 1g.5gb"},
			[]string{"mps 0: the GPU is in MIG mode", "mig 2: the GPU has 1 MIG devices 3g.20gb"},
		},
		"one process at a time": {
			Order{Modes: []Mode{TimeSlice, MPS}, Copies: []int{2}, Repeats: 1}, Ground{GPU: exclusive}, []string{"mps 2 r1"},
			[]string{"timeslice 0: the compute mode of the GPU is exclusive-process"},
		},
		"no MPS, no MIG": {
			Order{Modes: []Mode{MPS, MPSCapped, MIG}, Copies: []int{2}, Repeats: 1}, Ground{GPU: exclusive, NoMPS: "it is not installed"}, nil,
			[]string{"mps 0: it is not installed", "mps-capped 0: it is not installed", "mig 0: this GPU has no MIG"},
		},
		"too many clients": {
			Order{Modes: []Mode{MPS, TimeSlice}, Copies: []int{48, 49}, Repeats: 1}, Ground{GPU: plain, MaxClients: 48}, []string{"timeslice 48 r1", "mps 48 r1", "timeslice 49 r1"},
			[]string{"mps 49: a control daemon of this driver serves 48 clients at most"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if err := tt.order.Check(); err != nil {
				t.Fatal(err)
			}
			steps, skips := Plan(tt.order, tt.on)
			if d := cmp.Diff(tt.want, words(steps)); d != "" {
				t.Error(d)
			}
			if len(skips) != len(tt.skips) {
				t.Fatalf("skips %+v", skips)
			}
			for i, s := range skips {
				if got := fmt.Sprintf("%s %d: %s", s.Mode, s.Copies, s.Reason); !strings.HasPrefix(got, tt.skips[i]) {
					t.Errorf("%q does not begin with %q", got, tt.skips[i])
				}
			}
		})
	}
}

// TestShares: caps of n copies never sum up to more than the whole.
func TestShares(t *testing.T) {
	for n := 1; n <= MaxCopies; n++ {
		if p := *shareOf(n); p <= 0 || p*float64(n) > 100.0001 {
			t.Errorf("%d copies have %g %% each", n, p)
		}
	}
}

func measure(ctx context.Context, t *testing.T, run func(context.Context, Step) (Run, error), steps ...Step) Result {
	t.Helper()
	r := result()
	r.Runs, r.Skipped = nil, nil
	if err := Measure(ctx, &r, steps, run, func(Progress) {}); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestMeasure(t *testing.T) {
	alone := Step{Mode: Exclusive, Copies: 1, Repeat: 1}
	two, again, fifty := Step{Mode: MPS, Copies: 2, Repeat: 1}, Step{Mode: MPS, Copies: 2, Repeat: 2}, Step{Mode: MPS, Copies: 50, Repeat: 1}
	works := func(_ context.Context, s Step) (Run, error) { return run(s.Mode, s.Copies, s.Repeat, 10), nil }

	if r := measure(t.Context(), t, works, alone, two, again); len(r.Runs) != 3 || len(r.Skipped) != 0 {
		t.Errorf("%d runs, %v", len(r.Runs), r.Skipped)
	}
	// 50 times 1000 MiB are more than the GPU has.
	if r := measure(t.Context(), t, works, alone, fifty); len(r.Runs) != 1 || !strings.Contains(r.Skipped[0].Reason, "50 times the 1000 MiB") {
		t.Errorf("%+v", r.Skipped)
	}
	calls := 0
	fails := func(_ context.Context, s Step) (Run, error) {
		calls++
		r := run(s.Mode, s.Copies, s.Repeat, 10)
		r.Jobs[0].Failed = "exit status 2"
		return r, nil
	}
	if r := measure(t.Context(), t, fails, two, again); calls != 1 || len(r.Runs) != 1 || len(r.Skipped) != 0 {
		t.Errorf("after %d calls %+v", calls, r)
	}
	not := func(context.Context, Step) (Run, error) { return Run{}, NotCounted{Reason: "no server came up"} }
	calls = 0
	never := func(ctx context.Context, s Step) (Run, error) {
		if calls++; s.Mode == Exclusive {
			return works(ctx, s)
		}
		return Run{}, NotCounted{Reason: "no server came up", MPS: true}
	}
	if r := measure(t.Context(), t, never, two, Step{Mode: MPSCapped, Copies: 2, Repeat: 1}, again, alone); calls != 2 || len(r.Skipped) != 2 || len(r.Runs) != 1 {
		t.Errorf("%d calls, %+v", calls, r.Skipped)
	}
	if r := measure(t.Context(), t, not, two, again); len(r.Skipped) != 1 || r.Skipped[0].Reason != "no server came up" {
		t.Errorf("%+v", r.Skipped)
	}
	broken := errors.New("broken")
	r := result()
	if err := Measure(t.Context(), &r, []Step{again}, func(context.Context, Step) (Run, error) { return Run{}, broken }, func(Progress) {}); !errors.Is(err, broken) {
		t.Error(err)
	}
}

// TestCut: what a benchmark has come to so far is a whole result, which says what
// is missing; the one that goes on is none the wiser.
func TestCut(t *testing.T) {
	r := result()
	r.Runs, r.Skipped = []Run{run(MPS, 2, 1, 10)}, make([]Skip, 0, 8)
	cut := r.Cut([]Step{{Mode: MPS, Copies: 2, Repeat: 2}, {Mode: MPS, Copies: 4, Repeat: 1}, {Mode: MPS, Copies: 4, Repeat: 2}}, "it was cut off")
	if d := cmp.Diff([]Skip{{MPS, 4, "it was cut off"}}, cut.Skipped); d != "" {
		t.Error(d)
	}
	if err := cut.Check(); err != nil || len(r.Skipped) != 0 || len(r.Skipped[:1]) == 1 && r.Skipped[:1][0].Reason != "" {
		t.Errorf("%v, %+v", err, r.Skipped[:1])
	}
}

// TestMeasureEnds: a context that ends keeps what there is and says the cause.
func TestMeasureEnds(t *testing.T) {
	cause := errors.New("it is late")
	ctx, cancel := context.WithCancelCause(t.Context())
	ends := func(ctx context.Context, s Step) (Run, error) {
		if s.Mode == MPS {
			cancel(cause)
			return Run{}, ctx.Err()
		}
		return run(s.Mode, s.Copies, s.Repeat, 10), nil
	}
	r := measure(ctx, t, ends, Step{Mode: Exclusive, Copies: 1, Repeat: 1}, Step{Mode: MPS, Copies: 2, Repeat: 1}, Step{Mode: MPSCapped, Copies: 2, Repeat: 1}, Step{Mode: Exclusive, Copies: 1, Repeat: 2})
	if len(r.Runs) != 1 {
		t.Fatalf("%d runs", len(r.Runs))
	}
	want := []Skip{{MPS, 2, "it is late"}, {MPSCapped, 2, "it is late"}}
	if d := cmp.Diff(want, r.Skipped); d != "" {
		t.Error(d)
	}
}
