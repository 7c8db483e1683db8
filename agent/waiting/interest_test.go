package waiting

import (
	"errors"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// TestInterestOf: what a node asks the pool for, and how soon again.
func TestInterestOf(t *testing.T) {
	shared := plan.GPU{UUID: "GPU-a", Mode: config.ModeMPS, LargestRequest: 30000}
	larger := plan.GPU{UUID: "GPU-b", Mode: config.ModeMPS, LargestRequest: 40000}
	whole := plan.GPU{UUID: "GPU-c", Mode: config.ModeWhole, LargestRequest: 90000}
	turning := shared
	turning.Elastic = true
	divided := []plan.MIGGPU{{UUID: "GPU-d", Repartition: mig.Auto}}
	for name, tt := range map[string]struct {
		gpus   []plan.GPU
		mig    []plan.MIGGPU
		change func(*config.Config)
		asks   bool
		again  time.Duration
		large  gpu.MiB
		after  time.Duration
		most   int
	}{
		"nothing follows": {gpus: []plan.GPU{shared}, change: func(c *config.Config) { c.Placement.LargeAfter = 0 },
			again: time.Minute},
		"large requests": {gpus: []plan.GPU{shared, larger, whole}, change: func(c *config.Config) {
			c.Placement.LargeAfter = 20 * time.Minute
		}, asks: true, again: time.Minute, large: 20000, after: 20 * time.Minute},
		"large requests that wait shortly": {gpus: []plan.GPU{larger, shared}, change: func(c *config.Config) {
			c.Placement.LargeAfter = 10 * time.Second
		}, asks: true, again: 10 * time.Second, large: 20000, after: 10 * time.Second},
		"an elastic GPU": {gpus: []plan.GPU{turning}, change: func(c *config.Config) {
			c.Placement.LargeAfter, c.Elastic.Patience = 0, 30*time.Second
		}, asks: true, again: 30 * time.Second, large: 15000, most: 1},
		"without patience": {gpus: []plan.GPU{turning}, change: func(c *config.Config) {
			c.Placement.LargeAfter, c.Elastic.Patience = 0, time.Millisecond
		}, asks: true, again: 2 * time.Second, large: 15000, most: 1},
		"patience of no elastic GPU": {gpus: []plan.GPU{shared}, change: func(c *config.Config) {
			c.Placement.LargeAfter, c.Elastic.Patience = 40*time.Second, time.Second
		}, asks: true, again: 40 * time.Second, large: 15000, after: 40 * time.Second},
		"the shorter of both": {gpus: []plan.GPU{turning}, change: func(c *config.Config) {
			c.Placement.LargeAfter, c.Elastic.Patience = 20*time.Second, 30*time.Second
		}, asks: true, again: 20 * time.Second, large: 15000, after: 20 * time.Second, most: 1},
		"layouts follow": {mig: divided, change: func(c *config.Config) {
			c.Placement.LargeAfter, c.Repartition.Dwell = 0, 70*time.Second
		}, asks: true, again: 7 * time.Second},
		"layouts and an elastic GPU": {gpus: []plan.GPU{turning}, mig: divided, change: func(c *config.Config) {
			c.Placement.LargeAfter, c.Elastic.Patience, c.Repartition.Dwell = 0, time.Minute, 70*time.Second
		}, asks: true, again: 7 * time.Second, large: 15000, most: 1},
	} {
		c := config.Default()
		tt.change(&c)
		i, again := InterestOf(&plan.Plan{GPUs: tt.gpus, MIG: tt.mig}, c)
		if (i != nil) != tt.asks || again != tt.again {
			t.Errorf("%s: %+v, again after %s", name, i, again)
			continue
		}
		if i != nil && (i.Large != tt.large || i.LargeAfter != tt.after || i.Rules.Max != tt.most ||
			len(i.Node.Devices) != len(tt.gpus)) {
			t.Errorf("%s: from %d MiB on after %s, %d whole GPUs, %d devices", name, int64(i.Large), i.LargeAfter,
				i.Rules.Max, len(i.Node.Devices))
		}
	}
	if i, again := InterestOf(nil, config.Default()); i != nil || again != 2*time.Second {
		t.Errorf("without a plan: %+v, again after %s", i, again)
	}
}

// TestLimitsOfDemand: a job counts from the very second and size that the rules say.
func TestLimitsOfDemand(t *testing.T) {
	i := pair()
	got := i.large(counted(
		condor.Waiting{GPUs: 1, VRAM: 16384, Waits: 1200}, condor.Waiting{GPUs: 1, VRAM: 16383, Waits: 1200},
		condor.Waiting{GPUs: 1, VRAM: 20000, Waits: 1200}, condor.Waiting{GPUs: 1, VRAM: 20000, Waits: 1300},
	))
	if len(got) != 2 || got[0] != 20000 || got[1] != 16384 {
		t.Errorf("large: %v", got)
	}
	if i.LargeAfter = 0; len(i.large(counted(condor.Waiting{GPUs: 1, VRAM: 20000, Waits: 1200}))) > 0 {
		t.Error("large jobs count where the site switched that off")
	}
	// A job that does not wait long enough hides no other.
	d := i.elastic(counted(condor.Waiting{GPUs: 1, Waits: 1}, condor.Waiting{GPUs: 2, Waits: 100},
		condor.Waiting{GPUs: 1, Waits: 100}, condor.Waiting{GPUs: 1, VRAM: 2048, Waits: 100}))
	if len(d.Whole) != 1 || d.Whole[0].GPUs != 2 || !d.Shared {
		t.Errorf("%+v", d)
	}
}

// TestAskReturnsTheError of the collector, besides keeping it.
func TestAskReturnsTheError(t *testing.T) {
	q, no := quiet(), errors.New("no")
	if _, err := q.Ask(t.Context(), &pool{err: no}, pair()); !errors.Is(err, no) || !errors.Is(q.Err(), no) {
		t.Errorf("%v, kept %v", err, q.Err())
	}
}

// TestReserveOfNothing: without an answer no GPU is closed, and none is new.
func TestReserveOfNothing(t *testing.T) {
	q, now := quiet(), time.Now()
	if u, least, fresh := q.Reserve([]Room{{"a", true, 30000, 1}}, now); u != "" || least != 0 || fresh {
		t.Errorf("%q for %d, new %t", u, int64(least), fresh)
	}
	q.Ask(t.Context(), &pool{demand: counted(condor.Waiting{GPUs: 1, VRAM: 20000, Waits: 3600})}, pair())
	if u, _, fresh := q.Reserve([]Room{{"a", false, 30000, 1}}, now); u != "" || fresh {
		t.Errorf("a closed GPU: %q, new %t", u, fresh)
	}
	// Of two with the same room the first counts, and one without any room counts as well.
	if got := choose(20000, "", []Room{{"a", true, 30000, 0}, {"b", true, 30000, 0}}); got != "a" {
		t.Errorf("%q", got)
	}
}

// TestReserveAfterService: after a GPU that a large job used, none closes for as long as that one was
// closed. Then its size is one like any other.
func TestReserveAfterService(t *testing.T) {
	q, now := quiet(), time.Now()
	ask := func(sizes ...gpu.MiB) {
		var w []condor.Waiting
		for i, s := range sizes {
			w = append(w, condor.Waiting{GPUs: 1, VRAM: s, Waits: int64(3600 - i)})
		}
		q.Ask(t.Context(), &pool{demand: counted(w...)}, pair())
	}
	reserve := func(free gpu.MiB) (least gpu.MiB) {
		_, least, _ = q.Reserve([]Room{{"a", true, 30000, free}}, now)
		now = now.Add(time.Second)
		return least
	}
	ask(30000)
	for second, free := range []gpu.MiB{30000, 30000, 100} { // in the third it starts
		if least := reserve(free); least != 30000 {
			t.Fatalf("second %d: closed for %s", second, least)
		}
	}
	ask(20000)
	for second, want := range []gpu.MiB{0, 0, 0, 20000} {
		if second == 2 {
			ask(20000, 30000)
		}
		if least := reserve(100); least != want {
			t.Errorf("second %d after it started: closed for %s, want %s", second, least, want)
		}
	}
}
