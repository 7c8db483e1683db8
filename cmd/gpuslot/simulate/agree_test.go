package simulate

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/simulate/layouts"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// TestAgreesWithTraces: package layouts, which knows MIG devices and nothing else, was written
// apart from this package. On jobs that only need memory both say the same of a
// static layout. Of layouts that follow they do not: layouts gives each job the
// smallest instance alone, while slots of larger ones take small jobs too unless
// larger ones wait at that moment (GPUSLOT_LARGE), for better or worse.
func TestAgreesWithTraces(t *testing.T) {
	g, err := NewGroup("g", 1, 2, "A100-40", 256, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	pool := Pool{Groups: []Group{g}, Matching: DefaultMatching(), Model: DefaultModel()}
	pool.Matching.Interval, pool.Matching.Start, pool.Matching.Worklife = 0, 0, 0
	chip, err := mig.Model("A100-40", 0)
	if err != nil {
		t.Fatal(err)
	}
	node := layouts.Node{Chip: layouts.Plain(chip), GPUs: 2, Destroy: time.Second, Create: time.Second / 2}
	jobs, trace := agreed(400)

	const layout = "3g.20gb, 2g.10gb, 1g.5gb*2"
	static, err := StaticMIG(pool, map[string]string{g.Inventory.GPUs[0].Name: layout})
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(context.Background(), pool, static, List(jobs...), Options{})
	if err != nil {
		t.Fatal(err)
	}
	rows, err := layouts.Compare(node, []layouts.Trace{trace}, []layouts.Policy{layouts.Layout{Text: layout}})
	if err != nil {
		t.Fatal(err)
	}
	want := rows[0]
	if r.Started != len(jobs) || want.Started != len(jobs) || !near(r.Wait.Mean, want.MeanWait, 1e-6) || !near(r.Wait.P95, want.P95Wait, 0.01) || want.MeanWait == 0 {
		t.Errorf("%d jobs wait %g s, 95 %% up to %g s; layouts: %d, %g s, %g s", r.Started, r.Wait.Mean, r.Wait.P95, want.Started, want.MeanWait, want.P95Wait)
	}
}

func near(got, want, part float64) bool { return math.Abs(got/want-1) <= part }

// agreed are the same jobs for both.
func agreed(n int) (jobs []Job, trace layouts.Trace) {
	r := rand.New(rand.NewPCG(1, 2))
	var at time.Duration
	for range n {
		at += time.Duration(r.ExpFloat64() * 400e9)
		took := time.Duration((60 + r.ExpFloat64()*1800) * 1e9)
		memory := []gpu.MiB{4000, 4000, 4000, 9000, 9000, 18000}[r.IntN(6)]
		jobs = append(jobs, Job{Owner: "a", Arrival: at, GPUs: 1, CPUs: 1, VRAM: memory, Work: Work{Seconds: took.Seconds()}})
		trace = append(trace, layouts.Job{Arrival: at, Duration: took, Memory: memory})
	}
	return jobs, trace
}
