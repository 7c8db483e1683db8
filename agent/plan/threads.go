package plan

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// Shared reports whether several jobs may run on the GPU, each with a budget of its VRAM.
func (g GPU) Shared() bool { return shares(g.Mode) }

// MPS reports whether the GPU has a control daemon, whose MPS clients its jobs are.
func (g GPU) MPS() bool { return g.Mode == config.ModeMPS }

// NeedsLimits reports whether no job may start before the driver has limited its cgroup.
func (g GPU) NeedsLimits() bool { return g.Mode == config.ModeTimeSlice }

// shares reports whether several jobs run on a GPU of a mode at a time.
func shares(m config.Mode) bool { return m == config.ModeMPS || m == config.ModeTimeSlice }

// ThreadPercentage is the active thread percentage of a job with this budget
// that asks for none: above 0, at most 100, rounded down to the one decimal
// that the control daemon keeps. Without a cap it is 100. Of a partition it is
// its part of the multiprocessors, which no variable has to say.
func (g GPU) ThreadPercentage(budget gpu.MiB) (percent float64, capped bool) {
	var t int64
	switch g.Threads.Policy {
	case config.ThreadsEqual:
		t = 1000 / int64(max(1, g.Shares))
	case config.ThreadsByVRAM:
		t = int64(max(0, min(budget, g.Pool)) * 1000 / max(1, g.Pool))
	case config.ThreadsFixed:
		t = tenths(g.Threads.Percent)
	case config.ThreadsPartitioned:
		t = g.Threads.Partition.tenths(g.Shares)
	default:
		return 100, false
	}
	t = min(max(t, 1), 1000)
	return float64(t) / 10, t < 1000
}

// MostThreads is the largest percentage that a job with this budget may ask
// for: the policy's own, or the site's bound if that is higher.
func (g GPU) MostThreads(budget gpu.MiB) float64 {
	own, _ := g.ThreadPercentage(budget)
	return max(own, float64(min(tenths(g.Threads.Most), 1000))/10)
}

// UnheldThreads says on which GPUs a job can have more multiprocessors than its percentage: the
// control daemon keeps one limit for all its clients, and a job sets its own lower one.
func (p Plan) UnheldThreads() []string {
	on := map[float64][]string{}
	for _, g := range p.GPUs {
		if !g.MPS() || g.Partitioned() {
			continue
		}
		own, _ := g.ThreadPercentage(p.RequestVRAM.Minimum)
		if most := g.MostThreads(g.LargestRequest); own < most {
			on[most] = append(on[most], strconv.Itoa(g.Index))
		}
	}
	var out []string
	for _, most := range slices.Sorted(maps.Keys(on)) {
		out = append(out, fmt.Sprintf("Thread percentages below %v are not enforced on GPU %s: a job that unsets its own "+
			"may use up to %v %% of the multiprocessors, and gpuslot does not notice.",
			most, strings.Join(on[most], ", "), most))
	}
	return out
}

// tenths rounds down to what the control daemon keeps. 33.3 has no exact binary
// form; a hair is added before rounding down.
func tenths(percent float64) int64 { return int64(math.Floor(percent*10 + 1e-6)) }

// ControlDaemons lists the control daemons that should run, in PCI order. A
// daemon's defaults are the most that any job of its GPU may have, because a
// client may lower them and never raise them. Beside partitions percentages mean
// nothing.
func (p Plan) ControlDaemons() []mps.Wanted {
	var out []mps.Wanted
	for _, g := range p.GPUs {
		if g.MPS() {
			w := mps.Wanted{GPU: g.UUID, Limit: g.LargestRequest, ThreadPercentage: g.MostThreads(g.LargestRequest)}
			if g.Partitioned() {
				w.ThreadPercentage = 100
			}
			out = append(out, w)
		}
	}
	return out
}
