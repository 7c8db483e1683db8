package plan

import (
	"testing"

	"github.com/gpuslot/gpuslot/gpu"
)

// TestServersHaveABound: a server is kept 1 GiB at most, and less than the GPU has.
func TestServersHaveABound(t *testing.T) {
	for memory, want := range map[gpu.MiB]gpu.MiB{46068: 1024, 512: 511} {
		inv := WithServers(gpu.Inventory{GPUs: []gpu.GPU{{UUID: "GPU-a", Memory: memory}}}, map[gpu.UUID]gpu.MiB{"GPU-a": 20000})
		if got := inv.GPUs[0].MPSServer; got != want {
			t.Errorf("%s: %s, want %s", memory, got, want)
		}
	}
}
