package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
)

// TestUnusualGPUs: each trait leaves a GPU out, makes it whole or is a warning, with the reason.
func TestUnusualGPUs(t *testing.T) {
	for trait, want := range map[gpu.Trait]struct{ mode, says string }{
		gpu.Integrated:   {"", "not offered: it has no memory of its own"},
		gpu.HostVGPU:     {"", "not offered: it serves virtual machines"},
		gpu.VGPU:         {"whole", "whole, not shared: it is a vGPU in a virtual machine"},
		gpu.Confidential: {"whole", "whole, not shared: confidential computing is on"},
		gpu.NUMAMemory:   {"whole", "whole, not shared: its memory is a NUMA node of the host"},
		gpu.Display:      {"mps", "a display is active on it"},
	} {
		inv := gpu.Inventory{Schema: gpu.InventorySchema, Driver: "580.95.05", CUDA: "13.0",
			Host: gpu.Host{Name: "wn1", CPUs: 64, Memory: 524288}, GPUs: []gpu.GPU{{
				UUID: "GPU-00000000-0000-4000-8000-000000000001", Name: "NVIDIA H100 80GB HBM3", PCI: "0000:3b:00.0", Memory: 81559,
				Capability: gpu.ComputeCapability{Major: 9}, Unusual: []gpu.Trait{trait},
			}}}
		p, err := plan.Build(config.Default(), inv)
		mode := ""
		if len(p.GPUs) > 0 {
			mode = string(p.GPUs[0].Mode)
		}
		if err != nil || mode != want.mode || !slices.ContainsFunc(p.Warnings, func(w string) bool { return strings.Contains(w, want.says) }) {
			t.Errorf("%s: mode %q, %q, %v", trait, mode, p.Warnings, err)
		}
		cfg, err := config.Parse("gpuslot.toml", []byte("[gpu.\"GPU-00000000-0000-4000-8000-000000000001\"]\nmode = \"mps\"\n"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := plan.Build(cfg, inv); (err != nil) != (want.mode == "whole") {
			t.Errorf("%s, with mode = \"mps\" for it: %v", trait, err)
		}
	}
}
