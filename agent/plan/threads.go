package plan

import (
	"math"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// Shared reports whether several jobs may run on the GPU, through MPS.
func (g GPU) Shared() bool { return g.Mode == config.ModeMPS }

// ThreadPercentage is the active thread percentage of a job with this budget:
// above 0, at most 100, rounded down to the one decimal that the control
// daemon keeps. Without a cap it is 100.
func (g GPU) ThreadPercentage(budget gpu.MiB) (percent float64, capped bool) {
	var tenths int64
	switch g.Threads.Policy {
	case config.ThreadsEqual:
		tenths = 1000 / int64(max(1, g.Shares))
	case config.ThreadsByVRAM:
		tenths = int64(max(0, min(budget, g.Pool)) * 1000 / max(1, g.Pool))
	case config.ThreadsFixed:
		// 33.3 has no exact binary form; a hair is added before rounding down.
		tenths = int64(math.Floor(g.Threads.Percent*10 + 1e-6))
	default:
		return 100, false
	}
	tenths = min(max(tenths, 1), 1000)
	return float64(tenths) / 10, tenths < 1000
}

// ControlDaemons lists the control daemons that should run, in PCI order. A
// daemon's default limit is the largest budget of its GPU, because a client
// may lower it and never raise it. Its default percentage is 100 where the
// percentage depends on the job.
func (p Plan) ControlDaemons() []mps.Wanted {
	var out []mps.Wanted
	for _, g := range p.GPUs {
		if g.Shared() {
			out = append(out, g.controlDaemon())
		}
	}
	return out
}

func (g GPU) controlDaemon() mps.Wanted {
	w := mps.Wanted{GPU: g.UUID, Limit: g.LargestRequest, ThreadPercentage: 100}
	if g.Threads.Policy != config.ThreadsByVRAM {
		w.ThreadPercentage, _ = g.ThreadPercentage(g.LargestRequest)
	}
	return w
}
