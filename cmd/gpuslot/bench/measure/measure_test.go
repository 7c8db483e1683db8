package measure

import (
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/gpu"
)

func TestChosenGPU(t *testing.T) {
	all := []gpu.GPU{{Index: 0, UUID: "GPU-aaaa0000-0000-0000-0000-000000000000"}, {Index: 1, UUID: "GPU-aaaa1111-0000-0000-0000-000000000000"}}
	for text, want := range map[string]int{"0": 0, "1": 1, "GPU-aaaa1": 1, string(all[0].UUID): 0, "GPU-aaaa": -1, "GPU-": -1, "2": -1, "": -1} {
		g, err := chosenGPU(all, text)
		if (err == nil) != (want >= 0) || err == nil && g.Index != want {
			t.Errorf("%q: %v %v", text, g.Index, err)
		}
	}
}

func TestLeftToBench(t *testing.T) {
	shared := []api.StatusGPU{{UUID: "GPU-1", Mode: "mps"}}
	tests := map[string]struct {
		status api.Status
		gpu    gpu.UUID
		left   bool
	}{
		"shared":              {api.Status{GPUs: shared}, "GPU-1", false},
		"observed":            {api.Status{GPUs: []api.StatusGPU{{UUID: "GPU-1", Mode: "observe"}}}, "GPU-1", true},
		"another":             {api.Status{GPUs: shared}, "GPU-2", true},
		"quiesced":            {api.Status{GPUs: shared, Node: &api.NodeStatus{Phase: "quiesced"}}, "GPU-1", true},
		"not quiesced as yet": {api.Status{GPUs: shared, Node: &api.NodeStatus{Phase: "quiescing"}}, "GPU-1", false},
	}
	for name, tt := range tests {
		if err := leftToBench(tt.status, tt.gpu); (err == nil) != tt.left {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWithoutCUDA(t *testing.T) {
	got := withoutCUDA([]string{"A=1", "CUDA_MPS_PIPE_DIRECTORY=/x", "CUDA_VISIBLE_DEVICES=3", "NVIDIA_VISIBLE_DEVICES=all", "CUDA_HOME=/usr"})
	if strings.Join(got, " ") != "A=1 CUDA_HOME=/usr" {
		t.Error(got)
	}
}
