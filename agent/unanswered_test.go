package agent

import (
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// TestNoWork: nothing but MPS servers is on a GPU only where a late sample shows all of
// its processes.
func TestNoWork(t *testing.T) {
	for name, c := range map[string]struct {
		bend func(r *gpu.Reading)
		want bool
	}{
		"an idle GPU": {func(*gpu.Reading) {}, true},
		"an MPS client of no job": {func(r *gpu.Reading) {
			r.Processes = gpu.Known([]gpu.DeviceProcess{{PID: 300, MPSClient: true}})
		}, false},
		"processes that are not known": {func(r *gpu.Reading) {
			r.Processes = gpu.Measured[[]gpu.DeviceProcess]{}
		}, false},
		"an old sample": {func(r *gpu.Reading) { r.At = r.At.Add(-time.Hour) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			ta := newTestAgent(t, 2, "")
			ta.proc.Add(proctree.Process{PID: 300, Parent: 1, Comm: "left", UID: 1000})
			now := time.Now()
			r := gpu.Reading{GPU: uuid(0), At: now}
			r.Processes = gpu.Known([]gpu.DeviceProcess{})
			c.bend(&r)
			ta.sampler = usage.NewSampler(usage.Options{
				Source: &fakeUsage{[]gpu.Reading{r}}, Site: site{ta.Agent}, Interval: time.Second,
				Proc: ta.proc.Root, Now: func() time.Time { return r.At },
			})
			ta.sampler.Round(t.Context())
			if got := (work{ta.Agent}).None(uuid(0), now); got != c.want {
				t.Errorf("no work: %t", got)
			}
			if (work{ta.Agent}).None(uuid(1), now) {
				t.Error("the GPU without a sample has no work")
			}
		})
	}
}
