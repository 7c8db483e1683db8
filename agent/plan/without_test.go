package plan_test

import (
	"cmp"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
)

// TestWithoutRequest: a job without request_vram gets a whole GPU only where the node has one,
// now or at times.
func TestWithoutRequest(t *testing.T) {
	inv := gpu.Inventory{Schema: gpu.InventorySchema, Host: gpu.Host{Name: "wn1", CPUs: 64, Memory: 1 << 18}, Driver: "550.163.01", CUDA: "12.4"}
	for i := range 2 {
		inv.GPUs = append(inv.GPUs, gpu.GPU{UUID: uuid(i), Index: i, Name: "Tesla V100S-PCIE-32GB", PCI: gpu.PCIBusID([]string{"0000:1a:00.0", "0000:1b:00.0"}[i]),
			Memory: 32768, Capability: gpu.Volta})
	}
	const auto, whole, share, refuse = config.WithoutRequestAuto, config.WithoutRequestWhole, config.WithoutRequestShare, config.WithoutRequestRefuse
	for _, c := range []struct {
		first, second string // the modes of the two GPUs
		says, want    config.WithoutRequest
		warns         bool
	}{
		{"mps", "mps", auto, refuse, false}, {"mps", "mps", whole, refuse, true}, {"mps", "mps", share, share, false}, {"mps", "mps", refuse, refuse, false},
		{"mps", "whole", auto, whole, false}, {"whole", "mps", whole, whole, false}, {"mps", "whole", share, share, false},
		{"whole", "mps", refuse, refuse, false},
		{"mps", "elastic", auto, refuse, false}, {"mps", "elastic", whole, whole, false}, {"elastic", "elastic", refuse, refuse, false},
		{"elastic", "whole", auto, whole, false}, {"whole", "elastic", whole, whole, false},
	} {
		text := "[sharing]\nwhole = 0\n[request_vram]\nwithout_request = \"" + cmp.Or(string(c.says), "auto") + "\"\n" +
			"[gpu.\"" + string(uuid(0)) + "\"]\nmode = \"" + c.first + "\"\n[gpu.\"" + string(uuid(1)) + "\"]\nmode = \"" + c.second + "\"\n"
		cfg, err := config.Parse("gpuslot.toml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		p, err := plan.Build(cfg, inv)
		if err != nil {
			t.Fatal(err)
		}
		warns := strings.Contains(strings.Join(p.Warnings, "\n"), "no GPU of this node is whole")
		if p.RequestVRAM.WithoutRequest != c.want || warns != c.warns {
			t.Errorf("%s and %s, %s: %s, want %s; %q", c.first, c.second, c.says, p.RequestVRAM.WithoutRequest, c.want, p.Warnings)
		}
	}
}
