// Package history makes up what jobs left behind, with known truth: for the tests
// of advice, and pictures of it. Start at Kind.
package history

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/gpuslot/gpuslot/agent/record"
	"github.com/gpuslot/gpuslot/gpu"
)

// Start is when histories begin.
var Start = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

// Kind is what is true of a made-up class of jobs.
type Kind struct {
	User, Program string
	GPUs          float64
	// Peak draws a peak in MiB; nil is not measured.
	Peak func(*rand.Rand) float64
	// Hours is the mean run time, SM and DRAM the activity of a job alone, 0 to 1;
	// below 0 it is not measured.
	Hours, SM, DRAM float64
	// IdleWatts and FullWatts are those of the GPU idle and busy; 0 is not measured.
	IdleWatts, FullWatts float64
	Model                string
	MemoryMiB            int64
}

// A100 are jobs of two hours on an A100 with 40 GB.
func A100(user, program string, peak func(*rand.Rand) float64, sm, dram float64) Kind {
	return Kind{User: user, Program: program, GPUs: 1, Peak: peak, Hours: 2, SM: sm, DRAM: dram, IdleWatts: 55, FullWatts: 400, Model: "NVIDIA A100-SXM4-40GB", MemoryMiB: 40960}
}

// Lognormal peaks have a median, and a spread in logarithms.
func Lognormal(median, sigma float64) func(*rand.Rand) float64 {
	return func(r *rand.Rand) float64 { return median * math.Exp(sigma*r.NormFloat64()) }
}

// Constant peaks are all alike.
func Constant(v float64) func(*rand.Rand) float64 { return func(*rand.Rand) float64 { return v } }

// Bimodal peaks are near a, and a part of them near b.
func Bimodal(a, b, part float64) func(*rand.Rand) float64 {
	return func(r *rand.Rand) float64 {
		if r.Float64() < part {
			return b * (1 + 0.05*r.NormFloat64())
		}
		return a * (1 + 0.05*r.NormFloat64())
	}
}

// Heavy peaks have the tail of a power.
func Heavy(least, alpha float64) func(*rand.Rand) float64 {
	return func(r *rand.Rand) float64 { return least * math.Pow(1-r.Float64(), -1/alpha) }
}

// Jobs are n of a kind that ended one after the other on a few GPUs, each alone
// on one. They begin at the time.
func (k Kind) Jobs(r *rand.Rand, n int, from time.Time) []record.Job {
	var out []record.Job
	for i := range n {
		seconds := k.Hours * 3600 * math.Exp(0.3*r.NormFloat64())
		begin := from.Add(time.Duration(float64(i)/8*k.Hours*float64(time.Hour)) + time.Duration(r.IntN(600))*time.Second)
		j := record.Job{
			Node: fmt.Sprintf("wn%d", i%2), Slot: fmt.Sprintf("slot1_%d", i%8+1), Job: fmt.Sprintf("%d.0", i+1), Schedd: "ap.example.org#" + k.User,
			Owner: k.User, Group: "group_" + k.User[:1], Program: k.Program, Mode: "observe", Share: 1,
			GPU: gpu.UUID(fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", i%8)), Model: k.Model, MemoryMiB: k.MemoryMiB,
			Begin: begin, End: begin.Add(time.Duration(seconds * float64(time.Second))),
		}
		gpus := k.GPUs
		j.Requested.GPUs = &gpus
		if k.Peak != nil {
			m := int64(math.Max(1, math.Min(k.Peak(r), float64(k.MemoryMiB))))
			j.PeakMiB = &m
			j.Curve = &record.Curve{Seconds: seconds / 4, MiB: []int64{m / 4, m, m / 2, m}}
		}
		if k.SM >= 0 {
			busy := seconds * math.Min(1, k.SM*(1+0.2*r.NormFloat64()))
			j.Method, j.SM = "exclusive", record.Bounds{Min: &busy, Estimate: &busy, Max: &busy}
			idle := seconds - busy
			j.IdleSeconds = &idle
			if k.FullWatts > 0 {
				joules := k.IdleWatts*seconds + (k.FullWatts-k.IdleWatts)*busy
				j.Joules.Estimate = &joules
			}
		}
		if k.DRAM >= 0 {
			busy := seconds * math.Min(1, k.DRAM*(1+0.1*r.NormFloat64()))
			j.DRAMSeconds = &busy
		}
		out = append(out, j)
	}
	return out
}

// SharedBy turns jobs into those of n on a GPU, with a request.
func SharedBy(jobs []record.Job, n int, request int64) []record.Job {
	for i := range jobs {
		jobs[i].Mode, jobs[i].Share, jobs[i].BudgetMiB = "mps", 1/float64(n), request
		jobs[i].Requested.VRAMMiB = &request
	}
	return jobs
}

// Seeded draws the same for the same seed.
func Seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 10)) }
