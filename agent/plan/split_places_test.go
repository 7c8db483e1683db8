package plan_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
)

// The places of several layouts each have what they would have alone, and no layout
// has more than its GPU's part, which is the host less the other GPU's and the rest.
func TestPlacesOfSeveralLayouts(t *testing.T) {
	cfg, err := config.Parse("gpuslot.toml", []byte("[gpu.\""+string(uuid(0))+"\"]\nmode = \"mig\"\n"+
		`mig_layout = ["1g.5gb*7", "3g.20gb, 2g.10gb, 1g.5gb*2", "7g.40gb", "3g.20gb*2"]`))
	if err != nil {
		t.Fatal(err)
	}
	for cpus := 1; cpus < 300; cpus++ {
		inv := gpu.Inventory{Schema: gpu.InventorySchema, Driver: "550.163.01", CUDA: "12.4", Host: gpu.Host{Name: "wn1", CPUs: cpus, Memory: gpu.MiB(1000 * cpus)}}
		for i := range 2 {
			inv.GPUs = append(inv.GPUs, gpu.GPU{UUID: uuid(i), Index: i, Name: "NVIDIA A100-PCIE-40GB", PCI: gpu.PCIBusID(fmt.Sprintf("0000:1%d:00.0", i)),
				Memory: 40960, Capability: gpu.ComputeCapability{Major: 8}, Multiprocessors: 108, MIGCapable: true})
		}
		p, err := plan.Build(cfg, inv)
		if err != nil {
			t.Fatalf("%d CPUs: %v", cpus, err)
		}
		other, _ := p.GPU(uuid(1))
		part := cpus - p.CPUOnly.CPUs - other.Resources.CPUs
		for _, g := range p.GPUs {
			if g.Resources.CPUs < 1 || g.Resources.Memory < 1 {
				t.Errorf("%d CPUs: %s%s has %s", cpus, g.UUID, g.Place, g.Resources)
			}
		}
		for _, layout := range p.MIG[0].Placed {
			sum := 0
			for _, g := range p.GPUs {
				if slices.Contains(strings.Split(layout, ","), g.Place) {
					sum += g.Resources.CPUs
				}
			}
			if sum > part {
				t.Errorf("%d CPUs: %s has %d of %d", cpus, layout, sum, part)
			}
			if layout == "7g.40gb@0" && part >= 7 && sum != part {
				t.Errorf("%d CPUs: the device that is the whole GPU has %d of %d", cpus, sum, part)
			}
			if cpus > 40 && sum <= part-7 && layout != "3g.20gb@0,3g.20gb@4" { // which strands a slice
				t.Errorf("%d CPUs: %s has only %d of %d", cpus, layout, sum, part)
			}
		}
	}
}

// TestPlacesOfTwoLayouts: two are several, too, and the device that is the whole GPU has all of the GPU's part. Beside
// a device that no layout has the places share the part.
func TestPlacesOfTwoLayouts(t *testing.T) {
	cfg, err := config.Parse("gpuslot.toml", []byte("[sharing]\nmode = \"mig\"\n"+`mig_layout = ["7g.40gb", "3g.20gb*2"]`))
	if err != nil {
		t.Fatal(err)
	}
	inv := gpu.Inventory{Schema: gpu.InventorySchema, Driver: "550.163.01", CUDA: "12.4", Host: gpu.Host{Name: "wn1", CPUs: 40, Memory: 40000},
		GPUs: []gpu.GPU{{UUID: uuid(0), Name: "NVIDIA A100-PCIE-40GB", PCI: "0000:10:00.0", Memory: 40960,
			Capability: gpu.ComputeCapability{Major: 8}, Multiprocessors: 108, MIGCapable: true}}}
	p, err := plan.Build(cfg, inv)
	if err != nil {
		t.Fatal(err)
	}
	whole := plan.Resources{CPUs: inv.Host.CPUs - p.CPUOnly.CPUs, Memory: inv.Host.Memory - p.CPUOnly.Memory}
	half := plan.Resources{CPUs: 3 * whole.CPUs / 7, Memory: 3 * whole.Memory / 7}
	if got, want := resourcesOf(p), map[string]plan.Resources{"7g.40gb@0": whole, "3g.20gb@0": half, "3g.20gb@4": half}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if cfg, err = config.Parse("gpuslot.toml", []byte("[sharing]\nmode = \"mig\"\nmig_layout = [\"2g.10gb@0\", \"1g.5gb@0,1g.5gb@1\"]")); err != nil {
		t.Fatal(err)
	}
	inv.GPUs[0].MIGEnabled = true
	inv.GPUs[0].MIGDevices = []gpu.MIGDevice{{UUID: "MIG-00000001-0000-5000-8000-000000000000", Profile: "3g.20gb",
		GPUInstance: 1, Owner: gpu.Foreign, Start: new(4), Memory: 19968}}
	if p, err = plan.Build(cfg, inv); err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, has := range resourcesOf(p) {
		sum += has.CPUs
	}
	if sum != whole.CPUs || len(p.GPUs) != 4 {
		t.Errorf("beside a device that no layout has: %v, want %d in all; %q", resourcesOf(p), whole.CPUs, p.Warnings)
	}
}

// TestSharedInstance: MIG devices that share a GPU instance are not offered, because nothing keeps their memory apart.
func TestSharedInstance(t *testing.T) {
	cfg, err := config.Parse("gpuslot.toml", []byte("[sharing]\nmode = \"mig\"\nmig_layout = \"keep\""))
	if err != nil {
		t.Fatal(err)
	}
	device := func(n int, profile string, instance int) gpu.MIGDevice {
		return gpu.MIGDevice{UUID: gpu.UUID(fmt.Sprintf("MIG-0000000%d-0000-5000-8000-000000000000", n)), Profile: profile,
			GPUInstance: instance, Owner: gpu.Foreign, Memory: 19968}
	}
	inv := gpu.Inventory{Schema: gpu.InventorySchema, Driver: "550.163.01", CUDA: "12.4", Host: gpu.Host{Name: "wn1", CPUs: 40, Memory: 40000},
		GPUs: []gpu.GPU{{UUID: uuid(0), Name: "NVIDIA A100-PCIE-40GB", PCI: "0000:10:00.0", Memory: 40960, MIGEnabled: true,
			Capability: gpu.ComputeCapability{Major: 8}, Multiprocessors: 108, MIGCapable: true,
			MIGDevices: []gpu.MIGDevice{device(1, "1c.3g.20gb", 1), device(2, "2c.3g.20gb", 1), device(3, "3g.20gb", 2)}}}}
	p, err := plan.Build(cfg, inv)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.GPUs) != 1 || p.GPUs[0].UUID != device(3, "", 0).UUID {
		t.Errorf("offered: %+v", p.GPUs)
	}
	said := fmt.Sprint(p.Warnings)
	for n := range 2 {
		if want := fmt.Sprintf("MIG device %s is not offered: it shares the memory of GPU instance 1", device(n+1, "", 0).UUID); !strings.Contains(said, want) {
			t.Errorf("%q does not say %q", said, want)
		}
	}
}

// resourcesOf are those of each place, or of each device that has none.
func resourcesOf(p plan.Plan) map[string]plan.Resources {
	out := map[string]plan.Resources{}
	for _, g := range p.GPUs {
		out[cmp.Or(g.Place, string(g.UUID))] = g.Resources
	}
	return out
}
