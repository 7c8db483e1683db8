package metrics

import (
	"fmt"
	"strconv"

	"github.com/gpuslot/gpuslot/agent/faults"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// criticalXIDs are those after which nobody computes there before somebody
// has done something. They are counted from 0 on: an increase from nothing is none
// to Prometheus.
var criticalXIDs = []int{48, 62, 64, 74, 79, 95, 119, 120}

// faultsOf are the counters of the GPUs' events.
func faultsOf(gpus []plan.GPU, counted []faults.Counted) []faults.Counted {
	type key struct {
		gpu    gpu.UUID
		reason string
	}
	seen := map[key]bool{}
	var out []faults.Counted
	for _, f := range counted {
		seen[key{f.GPU, f.Reason}] = true
		out = append(out, f)
	}
	for _, g := range gpus {
		if g.MIGDevice() {
			continue // its GPU tells
		}
		for _, n := range criticalXIDs {
			if reason := fmt.Sprintf("xid-%d", n); !seen[key{g.UUID, reason}] {
				out = append(out, faults.Counted{GPU: g.UUID, Reason: reason, Class: gpu.XIDByNumber(n).Class})
			}
		}
	}
	return out
}

// clientsOf counts a control daemon's MPS clients; unknown while one of its
// servers does not answer.
func clientsOf(p mps.Checked) gpu.Measured[float64] {
	for _, s := range p.States {
		if !s.Answers() {
			return gpu.Measured[float64]{}
		}
	}
	return gpu.Known(float64(p.Clients()))
}

// threadRatio is a control daemon's default active thread percentage.
func threadRatio(p mps.Checked) gpu.Measured[float64] {
	percent, err := strconv.ParseFloat(p.ThreadPercentage, 64)
	return gpu.Measured[float64]{Value: percent / 100, Known: err == nil}
}
