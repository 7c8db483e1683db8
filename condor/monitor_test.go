package condor

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// TestMonitorNumbers: what a slot must be larger than, and the least request, are in the ad
// where they are set; on a MIG device an old bound is taken back.
func TestMonitorNumbers(t *testing.T) {
	const device = "MIG-00000000-5be4-11f1-9c2d-0242ac120002"
	for name, c := range map[string]struct {
		state GPUState
		want  []string
	}{
		"bounds": {
			GPUState{UUID: uuid(0), Least: 8192, Above: 16384, AboveHost: Share{CPUs: 4, Memory: 2048}},
			[]string{"GPUVRAMLeast = 8192", "GPUAbove = 16384", "GPUAboveCpus = 4", "GPUAboveMemory = 2048"},
		},
		"a GPU without": {GPUState{UUID: uuid(0)}, []string{"GPUVRAMLeast = undefined"}},
		"a MIG device without": {
			GPUState{UUID: gpu.UUID(device)},
			[]string{"GPUVRAMLeast = undefined", "GPUAbove = undefined", "GPUAboveCpus = undefined", "GPUAboveMemory = undefined"},
		},
	} {
		c.state.Time = time.Unix(1795254170, 0)
		var got []string
		for line := range strings.Lines(string(MonitorAds([]GPUState{c.state}))) {
			if strings.HasPrefix(line, "GPUAbove") || strings.HasPrefix(line, "GPUVRAMLeast") {
				got = append(got, strings.TrimSpace(line))
			}
		}
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
