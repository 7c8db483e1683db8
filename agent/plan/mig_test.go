package plan_test

import (
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// a100s is a node with so many GPUs that can be divided.
func a100s(n int) gpu.Inventory {
	inv := gpu.Inventory{Schema: gpu.InventorySchema, Driver: "550.163.01", CUDA: "12.4", Host: gpu.Host{Name: "wn1", CPUs: 80, Memory: 80000}}
	for i := range n {
		inv.GPUs = append(inv.GPUs, gpu.GPU{UUID: uuid(i), Index: i, Name: "NVIDIA A100-PCIE-40GB", PCI: gpu.PCIBusID([]string{"0000:10:00.0", "0000:11:00.0"}[i]),
			Memory: 40960, Capability: gpu.ComputeCapability{Major: 8}, Multiprocessors: 108, MIGCapable: true})
	}
	return inv
}

// TestRepartitionNeeds: a layout follows the work where HTCondor has slots for others, and a warning says what is missing.
func TestRepartitionNeeds(t *testing.T) {
	for text, want := range map[string]struct {
		how  mig.Repartition
		says string
	}{
		`mig_layout = ["7g.40gb", "3g.20gb*2"]`:                     {mig.Auto, ""},
		`mig_layout = "3g.20gb*2"`:                                  {mig.Auto, "has one layout in mig_layout and nothing to change to"},
		"mig_layout = [\"7g.40gb\", \"3g.20gb*2\"]\nmig_mps = true": {mig.Static, "has no effect with mig_mps"},
	} {
		cfg, err := config.Parse("gpuslot.toml", []byte("[sharing]\nmode = \"mig\"\nrepartition = \"auto\"\n"+text+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		p, err := plan.Build(cfg, a100s(1))
		if err != nil || p.MIG[0].Repartition != want.how {
			t.Errorf("%s: %q, %v", text, p.MIG[0].Repartition, err)
		}
		all := strings.Join(p.Warnings, "\n")
		if !strings.Contains(all, want.says) || strings.Contains(all, "repartition") != (want.says != "") {
			t.Errorf("%s: %s, want %q", text, all, want.says)
		}
	}
}

// TestRepartition: a plan follows the work as far as any of its GPUs does.
func TestRepartition(t *testing.T) {
	for want, all := range map[mig.Repartition][]mig.Repartition{
		"": {mig.Static}, mig.Suggest: {mig.Static, mig.Suggest}, mig.Auto: {mig.Suggest, mig.Auto, mig.Static},
	} {
		var p plan.Plan
		for _, how := range all {
			p.MIG = append(p.MIG, plan.MIGGPU{Repartition: how})
		}
		if got := p.Repartition(); got != want {
			t.Errorf("%q: %q, want %q", all, got, want)
		}
	}
}

// TestPlacesOfTheSecondGPU: a GPU with one layout does not keep the next from the parts of its places.
func TestPlacesOfTheSecondGPU(t *testing.T) {
	cfg, err := config.Parse("gpuslot.toml", []byte("[sharing]\nmode = \"mig\"\nmig_layout = [\"7g.40gb\", \"3g.20gb*2\"]\n"+
		"[gpu.\""+string(uuid(0))+"\"]\nmig_layout = \"3g.20gb*2\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Build(cfg, a100s(2))
	if err != nil {
		t.Fatal(err)
	}
	has := map[gpu.UUID]map[string]int{uuid(0): {}, uuid(1): {}}
	for _, g := range p.GPUs {
		has[g.Parent][g.Place] = g.Resources.CPUs
	}
	if of := has[uuid(1)]; of["3g.20gb@0"] != 3*of["7g.40gb@0"]/7 || len(has[uuid(0)]) != 2 {
		t.Errorf("%v", has)
	}
}

// TestModelAndPhysical: a MIG device has the name and the UUID of its GPU, too.
func TestModelAndPhysical(t *testing.T) {
	whole := plan.GPU{UUID: uuid(0), Name: "NVIDIA A100-PCIE-40GB"}
	part := plan.GPU{UUID: "MIG-1", Name: whole.Name, Parent: uuid(0), Profile: "1g.5gb"}
	if whole.Model() != whole.Name || part.Model() != whole.Name+" MIG 1g.5gb" || whole.Physical() != uuid(0) || part.Physical() != uuid(0) {
		t.Errorf("%s of %s, %s of %s", whole.Model(), whole.Physical(), part.Model(), part.Physical())
	}
}

// TestPartitionsNeedKnownMultiprocessors: no number of shares helps where it is not known how many there are.
func TestPartitionsNeedKnownMultiprocessors(t *testing.T) {
	cfg, err := config.Parse("gpuslot.toml", []byte("[sharing]\nthreads = \"partitioned\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	inv := a100s(1)
	inv.Driver, inv.CUDA = "590.48.01", "13.1"
	for _, known := range []int{0, 108} {
		inv.GPUs[0].Multiprocessors = known
		_, err := plan.Build(cfg, inv)
		if (err == nil) != (known > 0) || err != nil && (!strings.Contains(err.Error(), "is not known") || strings.Contains(err.Error(), "set shares to")) {
			t.Errorf("%d multiprocessors: %v", known, err)
		}
	}
}
