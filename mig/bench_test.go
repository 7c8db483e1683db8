package mig_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/mig"
)

// BenchmarkPlanGPU plans one GPU for a hard demand, enumeration included.
func BenchmarkPlanGPU(b *testing.B) {
	j := newJudge(b, chip(b, "A100-40"))
	r := rand.New(rand.NewPCG(1, 7))
	node, ds := hardNode(j, 1, 1, r), hardDemand(j.chip, 3, r)
	for b.Loop() {
		var c mig.Catalogue
		if _, err := mig.PlanDemand(&c, node, ds); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPlanNode plans 8 and 16 GPUs for ten hard demands. It reports the median and the
// longest CPU time, with the aim of each, and the part of the plans that were proven.
func BenchmarkPlanNode(b *testing.B) {
	for _, gpus := range []int{8, 16} {
		for _, model := range []string{"A100-40", "RTXPRO6000-96"} {
			for _, states := range []int{0, 4} {
				b.Run(fmt.Sprintf("%d-GPUs/%s/%d-states", gpus, model, states), func(b *testing.B) {
					benchmarkNode(b, gpus, model, states)
				})
			}
		}
	}
}

func benchmarkNode(b *testing.B, gpus int, model string, states int) {
	j := newJudge(b, chip(b, model))
	var c mig.Catalogue
	if _, err := c.Layouts(j.chip); err != nil {
		b.Fatal(err)
	}
	var took []time.Duration
	proven := 0.0
	for b.Loop() {
		for range 10 {
			r := rand.New(rand.NewPCG(uint64(len(took)), 7))
			node, ds := hardNode(j, gpus, states, r), hardDemand(j.chip, gpus, r)
			start := cpuTime(b)
			p, err := mig.PlanDemand(&c, node, ds)
			if err != nil {
				b.Fatal(err)
			}
			took = append(took, cpuTime(b)-start)
			if p.Proven {
				proven++
			}
		}
	}
	slices.Sort(took)
	median, longest := "median-ms(no-aim)", "longest-ms(aim:1000)"
	if gpus <= 8 {
		median, longest = "median-ms(aim:20)", "longest-ms(aim:300)"
	}
	b.ReportMetric(took[len(took)/2].Seconds()*1000, median)
	b.ReportMetric(took[len(took)-1].Seconds()*1000, longest)
	b.ReportMetric(proven/float64(len(took)), "proven")
	b.ReportMetric(0, "ns/op") // of ten plans: says nothing
}

// cpuTime is what this process used so far, in user mode.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano())
}
