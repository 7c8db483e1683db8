package admission

import (
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
)

func TestWantsWhole(t *testing.T) {
	g := &admitState().Plan.GPUs[0]
	for _, c := range []struct {
		name  string
		gpus  int
		vram  *int64
		rule  config.WithoutRequest
		whole bool
	}{
		{"several GPUs", 2, nil, config.WithoutRequestRefuse, true},
		{"a share", 1, vram(int64(4096)), config.WithoutRequestWhole, false},
		{"more than any share", 1, vram(int64(g.LargestRequest) + 1), config.WithoutRequestRefuse, true},
		{"no VRAM", 1, nil, config.WithoutRequestRefuse, false},
		{"no VRAM, as the site wants", 1, nil, config.WithoutRequestWhole, true},
	} {
		j := &api.Job{ProvisionedVRAM: c.vram, AssignedGPUs: make([]string, c.gpus)}
		if got := wantsWhole(j, g, c.rule); got != c.whole {
			t.Errorf("%s: whole is %v", c.name, got)
		}
	}
}
