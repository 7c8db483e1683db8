package usage

import (
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// Jobs are said to slow each other down after a time of heavy traffic, while there are several,
// until there is clearly less; of a GPU that does not report its traffic nothing is said.
func TestContention(t *testing.T) {
	c := contention{}
	for i, step := range []struct {
		dram    float64
		jobs    int
		minutes int
		want    bool
	}{
		{0.75, 2, 5, false}, {0.75, 2, 20, true}, {0.55, 2, 60, true}, {0.55, 1, 1, false}, {0.55, 2, 1, false},
		{0.75, 2, 30, true}, {0.3, 2, 30, false}, {0.75, 1, 60, false},
	} {
		for range step.minutes * 60 {
			c.take(gpu.Known(step.dram), step.jobs, time.Second)
		}
		if c.now != step.want || !c.busy.Known {
			t.Errorf("step %d: %+v", i, c)
		}
	}
	c.take(gpu.Known(0.9), 2, time.Hour)
	if c.take(gpu.Measured[float64]{}, 2, time.Second); c.now || c.busy.Known {
		t.Errorf("%+v", c)
	}
}
