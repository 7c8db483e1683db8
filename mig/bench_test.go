package mig_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// benchNode is a node of A100s whose instances are partly busy.
func benchNode(tb testing.TB, gpus int, seed uint64) []gpu.MIGGPU {
	j := newJudge(tb, chip(tb, "A100-40"))
	r := rand.New(rand.NewPCG(seed, 1))
	var node []gpu.MIGGPU
	for i := range gpus {
		g := gpu.MIGGPU{UUID: gpu.UUID(fmt.Sprintf("GPU-%08d-0000-0000-0000-000000000000", i)), Index: i, Chip: j.chip}
		for k, p := range j.all[r.IntN(len(j.all))] {
			q, _ := j.chip.Profile(p.Profile)
			in := gpu.Instance{Place: p, Size: q.Size, ID: k + 1, Owner: gpu.Ours}
			if r.IntN(2) == 0 {
				in.Holders = []gpu.Holder{{Slot: "slot1_1"}}
			}
			g.Instances = append(g.Instances, in)
		}
		node = append(node, g)
	}
	return node
}

// demandFor asks for every profile, at random, about as much as so many GPUs have.
func demandFor(gpus int, seed uint64, weights func(gpu.Profile) int64, c gpu.Chip) (ds []mig.Demand) {
	r := rand.New(rand.NewPCG(seed, 2))
	for _, p := range c.Profiles {
		ds = append(ds, mig.Demand{Profile: p.Name, Count: r.IntN(1 + p.Max*gpus/3), Weight: weights(p)})
	}
	return ds
}

func equal(gpu.Profile) int64      { return 1 }
func bySlices(p gpu.Profile) int64 { return int64(p.Slices) }

// BenchmarkPlanGPU plans one seven-slice GPU for a demand for all profiles,
// enumeration included.
func BenchmarkPlanGPU(b *testing.B) {
	node := benchNode(b, 1, 1)
	ds := demandFor(3, 1, equal, node[0].Chip)
	for b.Loop() {
		var c mig.Catalogue
		if _, err := mig.PlanDemand(&c, node, ds); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPlanNode plans 16 GPUs, empty or in 16 different states, for a
// demand for all profiles.
func BenchmarkPlanNode(b *testing.B) {
	weights := map[string]func(gpu.Profile) int64{"equal": equal, "by-slices": bySlices}
	for _, name := range []string{"equal", "by-slices"} {
		for _, state := range []string{"empty", "half-busy"} {
			for seed := range uint64(4) {
				b.Run(fmt.Sprintf("%s/%s/%d", name, state, seed), func(b *testing.B) {
					node := benchNode(b, 16, seed)
					if state == "empty" {
						for i := range node {
							node[i].Instances = nil
						}
					}
					ds := demandFor(16, seed, weights[name], node[0].Chip)
					var c mig.Catalogue
					proven := 0.0
					for b.Loop() {
						p, err := mig.PlanDemand(&c, node, ds)
						if err != nil {
							b.Fatal(err)
						}
						if p.Proven {
							proven = 1
						}
					}
					b.ReportMetric(proven, "proven") // 1 or 0
				})
			}
		}
	}
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

// BenchmarkPlanHard plans 8 and 16 GPUs for hard demands, ten new ones each time, and
// reports the median, the longest time and how many plans were proven.
func BenchmarkPlanHard(b *testing.B) {
	for _, gpus := range []int{8, 16} {
		for _, model := range []string{"A30-24", "A100-40", "RTXPRO6000-96"} {
			for _, states := range []int{0, 4, 16} {
				benchmarkHard(b, gpus, model, states)
			}
		}
	}
}

func benchmarkHard(b *testing.B, gpus int, model string, states int) {
	b.Run(fmt.Sprintf("%d-GPUs/%s/%d-states", gpus, model, states), func(b *testing.B) {
		j := newJudge(b, chip(b, model))
		var c mig.Catalogue
		var took []time.Duration
		proven := 0
		for b.Loop() {
			for range 10 {
				r := rand.New(rand.NewPCG(uint64(len(took)), 7))
				node, ds := hardNode(j, gpus, states, r), hardDemand(j.chip, gpus, r)
				start := time.Now()
				p, err := mig.PlanDemand(&c, node, ds)
				if err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
				proven += one(p.Proven)
			}
		}
		slices.Sort(took)
		n := len(took)
		b.ReportMetric(float64(took[n/2].Microseconds())/1000, "median-ms")
		b.ReportMetric(float64(took[n-1].Microseconds())/1000, "longest-ms")
		b.ReportMetric(float64(proven)/float64(n), "proven")
	})
}
