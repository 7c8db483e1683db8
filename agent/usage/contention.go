package usage

import (
	"math"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// contention says whether jobs that share a GPU slow each other down at its memory: its
// interface is busy near what it can reach, for ten minutes in the mean, with several jobs there.
type contention struct {
	// busy is the part of the time with traffic, the past weighed less and less.
	busy gpu.Measured[float64]
	now  bool
}

const (
	// contentionTime is the time constant of the mean.
	contentionTime = 10 * time.Minute
	// contended is three quarters of the 0.8 that NVIDIA's DCGM documentation calls the
	// practical maximum of DRAM activity, relieved less, so that the state does not flap.
	contended, relieved = 0.6, 0.5
)

// take adds an interval with so much traffic and so many jobs with a process.
func (c *contention) take(dram gpu.Measured[float64], jobs int, took time.Duration) {
	if !dram.Known {
		*c = contention{}
		return
	}
	if !c.busy.Known {
		c.busy = gpu.Known(0.0)
	}
	c.busy.Value += (dram.Value - c.busy.Value) * (1 - math.Exp(-took.Seconds()/contentionTime.Seconds()))
	least := contended
	if c.now {
		least = relieved
	}
	c.now = jobs > 1 && c.busy.Value > least
}
