package layouts

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// TestWaitsAddUp: jobs of one profile add up, and the first of them says how long they have waited.
func TestWaitsAddUp(t *testing.T) {
	var w waits
	w.add("1g.5gb", condor.Waiting{Jobs: 2, Waits: 10})
	w.add("3g.20gb", condor.Waiting{Jobs: 1, Waits: 5})
	w.add("1g.5gb", condor.Waiting{Jobs: 3, Waits: 40})
	w.add("1g.5gb", condor.Waiting{Jobs: 1, Waits: 20})
	want := []api.StatusDemand{{Profile: "1g.5gb", Jobs: 6, WaitsSeconds: 40}, {Profile: "3g.20gb", Jobs: 1, WaitsSeconds: 5}}
	if d := cmp.Diff(want, w.by); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestTooMuch: the sentence has what the job asks for, and no word of what it does not.
func TestTooMuch(t *testing.T) {
	largest := plan.GPU{Profile: "7g.40gb", Resources: plan.Resources{CPUs: 8, Memory: 65536}}
	for asks, c := range map[string]condor.Waiting{
		"request_vram = 2048, which":                                           {VRAM: 2048, Jobs: 3},
		"request_vram = 2048, request_cpus = 9, which":                         {VRAM: 2048, CPUs: 9},
		"request_vram = 2048, request_memory = 70000, which":                   {VRAM: 2048, Memory: 70000},
		"request_vram = 2048, request_cpus = 1, request_memory = 70000, which": {VRAM: 2048, CPUs: 1, Memory: 70000},
	} {
		got := tooMuch(c, largest)
		if !strings.HasPrefix(got.Why, asks) || !strings.Contains(got.Why, "7g.40gb, has 8 CPUs and 65536 MiB") || got.Jobs != c.Jobs || got.CPUs != c.CPUs {
			t.Errorf("%+v, want %q", got, asks)
		}
	}
}

// TestUnservedIsLoggedOnce: each request once, for as long as jobs with it wait, and again after that.
func TestUnservedIsLoggedOnce(t *testing.T) {
	var log strings.Builder
	l := New(Options{Paths: config.Paths{State: t.TempDir()}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	a, b := api.StatusUnserved{Why: "a"}, api.StatusUnserved{Why: "b"}
	for i, c := range []struct {
		now  []api.StatusUnserved
		want int // lines in all
	}{
		{nil, 0}, {[]api.StatusUnserved{a}, 1}, {[]api.StatusUnserved{a}, 1}, {[]api.StatusUnserved{a, b}, 2}, {[]api.StatusUnserved{b}, 2},
		{[]api.StatusUnserved{a, b}, 3}, {nil, 3},
	} {
		l.logUnserved(mig.Auto, c.now)
		if got := strings.Count(log.String(), "\n"); got != c.want {
			t.Errorf("round %d: %d lines, want %d", i, got, c.want)
		}
	}
}

// TestWhatWaitsHere: jobs for several GPUs are none for a device. Of the others this node takes its part.
func TestWhatWaitsHere(t *testing.T) {
	n := followingNode(t, "suggest", "")
	one := condor.Waiting{GPUs: 1, VRAM: 4096, Jobs: 100}
	several := one
	several.GPUs = 2
	w := waitsHere(&n.plan, mig.Suggest, condor.Demand{Nodes: 10, Waiting: []condor.Waiting{several, one}})
	if len(w.by) != 1 || w.by[0].Jobs != 100 || w.by[0].Here != 10 || w.other != 0 {
		t.Errorf("%+v", w)
	}
	if got, want := w.here(), []mig.Demand{{Profile: "1g.5gb", Count: 10}}; !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestAgeOfADemand is told in seconds.
func TestAgeOfADemand(t *testing.T) {
	got := demandOf(api.StatusDemand{Profile: "1g.5gb", Jobs: 5, Here: 3, WaitsSeconds: 90}, 4)
	if want := (mig.Demand{Profile: "1g.5gb", Count: 4, Age: 90 * time.Second}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestLeaveLarge: devices of GPUs whose layout follows the work take no jobs that smaller ones serve while larger jobs
// wait.
func TestLeaveLarge(t *testing.T) {
	w := waits{
		profiles: []plan.GPU{{Profile: "1g.5gb", Pool: 5}, {Profile: "3g.20gb", Pool: 20}, {Profile: "7g.40gb", Pool: 40}},
		by:       []api.StatusDemand{{Profile: "3g.20gb", Jobs: 1}},
	}
	p := &plan.Plan{MIG: []plan.MIGGPU{{UUID: "auto", Repartition: mig.Auto}, {UUID: "suggest", Repartition: mig.Suggest}}}
	p.GPUs = []plan.GPU{
		{UUID: "no place", Parent: "auto", Profile: "7g.40gb"}, {UUID: "small", Parent: "auto", Place: "x", Profile: "1g.5gb"},
		{UUID: "another GPU's", Parent: "suggest", Place: "x", Profile: "7g.40gb"}, {UUID: "large", Parent: "auto", Place: "x", Profile: "7g.40gb"},
	}
	l := New(Options{})
	l.below = map[gpu.UUID]plan.GPU{}
	if l.leaveLarge(p, w); len(l.below) != 1 || l.below["large"].Profile != "1g.5gb" {
		t.Errorf("%+v", l.below)
	}
}
