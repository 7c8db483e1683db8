package plan_test

import (
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
)

// TestObserveWithoutGPUs: a node whose GPUs are gone is what its own tables say.
func TestObserveWithoutGPUs(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, "[sharing]\nmode = \"observe\"\n": true, "[host.\"wn1\"]\nmode = \"observe\"\n": true, "[host.\"wn2\"]\nmode = \"observe\"\n": false,
	} {
		cfg, err := config.Parse("gpuslot.toml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if p, err := plan.Build(cfg, a100s(0)); err != nil || p.Observe != want {
			t.Errorf("%q: observed %t, %v", text, p.Observe, err)
		}
	}
}

// TestObserveMIGMode: of a GPU in MIG mode the devices are observed, and a warning says that there is none.
func TestObserveMIGMode(t *testing.T) {
	cfg, err := config.Parse("gpuslot.toml", []byte("[sharing]\nmode = \"observe\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	const warning = "no MIG device is known of"
	for devices := range 2 {
		inv := a100s(2)
		inv.GPUs[0].MIGEnabled, inv.GPUs[0].MIGDevices = true, []gpu.MIGDevice{{UUID: "MIG-1", Profile: "1g.5gb", Memory: 4864}}[:devices]
		p, err := plan.Build(cfg, inv)
		if err != nil || len(p.GPUs) != devices+1 || len(p.MIG) != 1 || strings.Contains(strings.Join(p.Warnings, "\n"), warning) != (devices == 0) {
			t.Errorf("%d devices: %+v, %v", devices, p, err)
		}
	}
}
