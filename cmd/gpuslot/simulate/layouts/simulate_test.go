package layouts_test

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/simulate/layouts"
	"github.com/gpuslot/gpuslot/mig"
)

func auto() layouts.Incremental {
	r := mig.DefaultRules()
	r.Repartition = mig.Auto
	return layouts.Incremental{Title: "auto", Rules: r, Every: time.Minute}
}

func minutes(n int) time.Duration { return time.Duration(n) * time.Minute }

// Reckoned by hand: two 3g for three jobs of ten minutes, the third waits until the first ends.
func TestRunByHand(t *testing.T) {
	n := node(t, "A100-40", 1)
	trace := layouts.Trace{
		{Arrival: 0, Duration: minutes(10), Profile: "3g.20gb"},
		{Arrival: minutes(1), Duration: minutes(10), Memory: 15000},
		{Arrival: minutes(2), Duration: minutes(10), Profile: "3g.20gb"},
		{Arrival: minutes(3), Duration: minutes(10), Profile: "4g.20gb"},
	}
	r, err := layouts.Run(n, trace, layouts.Layout{Text: "3g.20gb*2"})
	if err != nil {
		t.Fatal(err)
	}
	if r.Jobs != 4 || r.Started != 3 || r.MeanWait != 480.0/3 || r.P95Wait != 480 || r.Hours != 20.0/60 || r.Changes != 0 {
		t.Errorf("%+v", r)
	}
	// SMs: 42 twice, and none asked for; of 108 for 20 minutes.
	if want := 2 * 42.0 * 10 / (108 * 20); r.SMs == nil || math.Abs(*r.SMs-want) > 1e-9 {
		t.Errorf("%v of the SMs, want %v", r.SMs, want)
	}
	if want := (2*19968.0 + 15000) * 10 / (40192 * 20); r.Memory == nil || math.Abs(*r.Memory-want) > 1e-9 {
		t.Errorf("%v of the memory, want %v", r.Memory, want)
	}
}

// A whole GPU is reflashed only when nothing runs: 2 s for two instances that go, 0.5 s
// for the one that comes, and a reset.
func TestReflashWaits(t *testing.T) {
	n := node(t, "A100-40", 1)
	n.Reset = 10 * time.Second
	trace := layouts.Trace{
		{Arrival: 0, Duration: minutes(10), Profile: "3g.20gb"},
		{Arrival: minutes(1), Duration: minutes(10), Profile: "7g.40gb"},
		{Arrival: minutes(9), Duration: minutes(10), Profile: "3g.20gb"},
	}
	r, err := layouts.Run(n, trace, layouts.Reflash{First: "3g.20gb*2"})
	if err != nil {
		t.Fatal(err)
	}
	if r.Started != 3 || r.Changes != 1 || r.Destroyed != 2 || r.Created != 1 || r.P95Wait != (18*time.Minute+12500*time.Millisecond).Seconds() {
		t.Errorf("%+v", r)
	}
	r, err = layouts.Run(n, trace, layouts.Reflash{First: "3g.20gb*2", DrainAfter: minutes(2)})
	if err != nil {
		t.Fatal(err)
	}
	// Drained at 3 min, reflashed at 10, the 7g ends at 20 min 12.5 s, then two 3g again.
	if r.Started != 3 || r.Changes != 2 || r.P95Wait != (11*time.Minute+12500*time.Millisecond+11*time.Second+500*time.Millisecond).Seconds()+0 {
		t.Errorf("%+v", r)
	}
}

// For equal seeds everything is equal; for others it is not.
func TestDeterministic(t *testing.T) {
	run := func(seed uint64) (layouts.Trace, layouts.Result) {
		n := node(t, "A100-40", 2)
		trace, err := layouts.Synthetic{Load: 0.7, Seed: seed, Jobs: 200, Mean: time.Hour, Most: 4}.Trace(n.Chip, n.GPUs)
		if err != nil {
			t.Fatal(err)
		}
		r, err := layouts.Run(n, trace, auto())
		if err != nil {
			t.Fatal(err)
		}
		return trace, r
	}
	trace1, r1 := run(1)
	trace2, r2 := run(1)
	if !reflect.DeepEqual(trace1, trace2) || !reflect.DeepEqual(r1, r2) {
		t.Errorf("%+v\n%+v", r1, r2)
	}
	if trace3, _ := run(2); reflect.DeepEqual(trace1, trace3) {
		t.Error("another seed, the same trace")
	}
}

// Whatever the jobs, gpuslot's policy starts all of them and disturbs none.
func TestAutoStartsAll(t *testing.T) {
	n := node(t, "A100-40", 1)
	rapid.Check(t, func(t *rapid.T) {
		n.GPUs = rapid.IntRange(1, 2).Draw(t, "gpus")
		var trace layouts.Trace
		for range rapid.IntRange(0, 25).Draw(t, "jobs") {
			trace = append(trace, layouts.Job{
				Arrival:  minutes(rapid.IntRange(0, 300).Draw(t, "arrival")),
				Duration: minutes(rapid.IntRange(1, 200).Draw(t, "duration")),
				Profile:  rapid.SampledFrom(n.Chip.Profiles).Draw(t, "profile").Name,
			})
		}
		r, err := layouts.Run(n, trace, auto())
		if err != nil {
			t.Fatal(err)
		}
		if r.Started != len(trace) || r.Disturbed != 0 {
			t.Errorf("%d of %d jobs started, %d disturbed", r.Started, len(trace), r.Disturbed)
		}
	})
}

func TestRefused(t *testing.T) {
	one := layouts.Trace{{Duration: time.Second, Profile: "1g.5gb"}}
	for _, tt := range []struct {
		trace  layouts.Trace
		policy layouts.Policy
		gpus   int
		want   string
	}{
		{one, layouts.Layout{Text: "4g.20gb*2"}, 1, "static 4g.20gb*2: no such layout"},
		{one, layouts.Layout{Text: "none;none"}, 1, "layouts for 2 GPUs; there are 1"},
		{one, auto(), 0, "0 GPUs; 1 to 16 can be simulated"},
		{layouts.Trace{{Duration: time.Second, Profile: "9g"}}, auto(), 1, "job 1 by arrival: "},
		{layouts.Trace{{Duration: time.Second, Memory: 50000}}, auto(), 1, "no MIG profile of A100-40GB is known to have"},
		{layouts.Trace{{Profile: "1g.5gb"}}, auto(), 1, "duration 0s"},
	} {
		n := node(t, "A100-40", 1)
		n.GPUs = tt.gpus
		if _, err := layouts.Run(n, tt.trace, tt.policy); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want %s", err, tt.want)
		}
	}
}
