package startd

import (
	"fmt"
	"testing"

	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// The ids that HTCondor gives GPUs.
func TestResolver(t *testing.T) {
	uuid := func(n int) gpu.UUID { return gpu.UUID(fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", n)) }
	short := func(n int) string { return string(uuid(n))[:12] } // as condor_gpu_discovery prints it
	find := Resolver(&plan.Plan{GPUs: []plan.GPU{
		{UUID: uuid(0)}, {UUID: uuid(1)}, {UUID: "GPU-5a1e0c11-7d02-4b6a-9c31-0e84a2d1f001"},
	}})
	for name, tt := range map[string]struct {
		ad   condor.Slot
		id   string
		want gpu.UUID
	}{
		"whole":            {condor.Slot{}, string(uuid(0)), uuid(0)},
		"ambiguous":        {condor.Slot{}, short(0), ""},
		"short":            {condor.Slot{}, "GPU-5a1e0c11", "GPU-5a1e0c11-7d02-4b6a-9c31-0e84a2d1f001"},
		"told besides":     {condor.Slot{DeviceUUID: uuid(0).Bare()}, short(0), uuid(0)},
		"by index":         {condor.Slot{DeviceUUID: uuid(0).Bare()}, "CUDA0", uuid(0)},
		"by index, no ad":  {condor.Slot{}, "CUDA0", ""},
		"another's":        {condor.Slot{}, "GPU-ffffffff", ""},
		"too short":        {condor.Slot{}, "GPU-", ""},
		"nothing":          {condor.Slot{}, "", ""},
		"a device's, MIG-": {condor.Slot{DeviceUUID: string(uuid(0))}, "x", uuid(0)},
	} {
		if got, ok := find(tt.ad, tt.id); got != tt.want || ok != (tt.want != "") {
			t.Errorf("%s: %q, %v", name, got, ok)
		}
	}
}
