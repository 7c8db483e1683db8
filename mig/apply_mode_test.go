package mig

import (
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/gpu"
)

// TestModeAsksAgain: who came to the GPU after the first look keeps its mode.
func TestModeAsksAgain(t *testing.T) {
	f, e := given(t, two0)
	f.before = func(call string, _ gpu.Place) error {
		if call == "destroy" {
			f.s.Holders = []gpu.Holder{{PID: 9}}
		}
		return nil
	}
	_, err := e.Apply(t.Context(), testGPU, Wanted{})
	if err == nil || !strings.Contains(err.Error(), "held by pid 9") || !f.s.Enabled {
		t.Errorf("enabled %t: %v", f.s.Enabled, err)
	}
	for _, call := range f.calls {
		if strings.HasPrefix(call, "mode") {
			t.Errorf("the driver was asked: %v", f.calls)
		}
	}
}
