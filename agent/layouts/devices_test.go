package layouts

import (
	"maps"
	"slices"
	"testing"

	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
)

// TestPresent: what the inventory has is there, and a place of the plan if it has a device.
func TestPresent(t *testing.T) {
	inv := gpu.Inventory{GPUs: []gpu.GPU{{UUID: testGPU, MIGDevices: []gpu.MIGDevice{{UUID: "MIG-1"}}}}}
	p := plan.Plan{GPUs: []plan.GPU{
		{UUID: "GPU-gone"}, {UUID: "place 1", Place: "1g.5gb@0", Device: "MIG-1"}, {UUID: "place 2", Place: "1g.5gb@1"},
	}}
	want := map[gpu.UUID]bool{testGPU: true, "MIG-1": true, "place 1": true, "place 2": false}
	if got := Present(p, inv); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestIsolated: the GPUs that are divided by the plan's word, or by its MIG devices, each once; none that is observed.
func TestIsolated(t *testing.T) {
	p := plan.Plan{Divided: []gpu.UUID{"GPU-1"}, GPUs: []plan.GPU{
		{UUID: "MIG-1", Parent: "GPU-1"}, {UUID: "MIG-2", Parent: "GPU-2"}, {UUID: "MIG-3", Parent: "GPU-2"}, {UUID: "GPU-3"},
	}}
	if got := Isolated(p); !slices.Equal(got, []gpu.UUID{"GPU-1", "GPU-2"}) {
		t.Errorf("%v", got)
	}
	p.Observe = true
	if got := Isolated(p); len(got) > 0 {
		t.Errorf("observed: %v", got)
	}
}
