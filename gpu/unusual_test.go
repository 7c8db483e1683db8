package gpu

import (
	"strings"
	"testing"
)

// TestIntegratedGPUsAreKnownByName: names as NVML spells them, and none of a card.
func TestIntegratedGPUsAreKnownByName(t *testing.T) {
	for name, want := range map[string]bool{
		"NVIDIA GB10": true, "Orin (nvgpu)": true, "NVIDIA Thor": true, "NVIDIA Tegra X1": true,
		"NVIDIA GB200": false, "NVIDIA GH200 480GB": false, "Tesla T4": false, "NVIDIA H100 80GB HBM3": false,
		"NVIDIA GeForce GT 1030": false,
	} {
		if got := (GPU{Name: name}).Has(Integrated); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestInventoryHasKnownTraits: a trait that this gpuslot does not know may be a reason not to share.
func TestInventoryHasKnownTraits(t *testing.T) {
	inv := Inventory{Schema: InventorySchema, Host: Host{CPUs: 1, Memory: 1}, GPUs: []GPU{{UUID: "GPU-00000000-0000-4000-8000-000000000001",
		Name: "Tesla T4", PCI: "0000:3b:00.0", Memory: 15360, Capability: ComputeCapability{Major: 7, Minor: 5}, Unusual: AllTraits()}}}
	if err := inv.Check(); err != nil {
		t.Error(err)
	}
	inv.GPUs[0].Unusual = []Trait{"quantum"}
	if err := inv.Check(); err == nil || !strings.Contains(err.Error(), `unusual has "quantum"`) {
		t.Errorf("%v", err)
	}
}
