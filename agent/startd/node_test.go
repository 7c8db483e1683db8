package startd

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

func TestNode(t *testing.T) {
	const device, there = gpu.UUID("MIG-00000004-0000-5000-8000-000000000000"), gpu.UUID("MIG-00000005-0000-5000-8000-000000000000")
	const shared, whole, lost = gpu.UUID("GPU-00000001-0000-4000-8000-000000000000"), gpu.UUID("GPU-00000002-0000-4000-8000-000000000000"), gpu.UUID("GPU-00000003-0000-4000-8000-000000000000")
	p := plan.Plan{
		Schema:      plan.Schema,
		Host:        gpu.Host{Name: "wn-gpu1.example.org", CPUs: 64, Memory: 393216},
		Driver:      "550.163.01",
		CUDA:        "12.4",
		RequestVRAM: plan.RequestVRAM{Minimum: 1536, Quantum: 512, WithoutRequest: config.WithoutRequestWhole},
		CPUOnly:     plan.Resources{CPUs: 6, Memory: 39321},
		GPUs: []plan.GPU{
			{UUID: shared, Index: 3, Name: "Tesla V100S-PCIE-32GB", PCI: "0000:1a:00.0", Memory: 32768, Capability: gpu.Volta, Mode: config.ModeWhole, Elastic: true,
				Shares: 7, Pool: 32256, LargestRequest: 16384, DefaultRequest: 4608, Resources: plan.Resources{CPUs: 30, Memory: 170000},
				Threads: plan.Threads{Policy: config.ThreadsFixed, Percent: 25, Most: 50}, Tenancy: plan.Tenancy{Policy: config.TenancyMultiUser, Tenant: config.TenantVO}},
			{UUID: whole, Index: 1, Name: "Tesla P100-PCIE-16GB", PCI: "0000:1b:00.0", Memory: 16384, Capability: gpu.ComputeCapability{Major: 6}, Mode: config.ModeWhole,
				Shares: 1, Pool: 16384, LargestRequest: 16384, DefaultRequest: 16384, Resources: plan.Resources{CPUs: 28, Memory: 183895}},
			{UUID: device, Index: 2, Name: "NVIDIA A30", PCI: "0000:1c:00.0", Memory: 5952, Capability: gpu.ComputeCapability{Major: 8}, Mode: config.ModeMIG,
				Shares: 1, Pool: 5952, LargestRequest: 5952, DefaultRequest: 5952, Resources: plan.Resources{CPUs: 1, Memory: 1}, Parent: lost, Profile: "1g.6gb", Place: "1g.6gb@3", Device: there, Multiprocessors: 14},
		},
		MIG:    []plan.MIGGPU{{UUID: lost, Repartition: mig.Suggest}, {UUID: whole, Repartition: mig.Auto}},
		Absent: []gpu.UUID{lost}, Divided: []gpu.UUID{lost},
	}
	want := condor.Node{
		CPUs: 65, Memory: 393217, // the place takes one more than the host has, and not at the same time
		CPUOnly: condor.Share{CPUs: 6, Memory: 39321}, Driver: "550.163.01", CUDA: "12.4",
		WithoutRequest: condor.WithoutRequestWhole, Minimum: 1536, Quantum: 512, Absent: []gpu.UUID{lost},
		PipeRoot: "/run/gpuslot/mps", Libexec: "/usr/libexec/gpuslot", Inventory: "/run/gpuslot/condor/inventory.ad", Supervise: true, Divided: true, Repartition: "auto", PerGPU: true, Execute: "/var/lib/gpuslot/execute",
		Weight: condor.WeightCPUsOrVRAM, Reserves: true,
		Growth: condor.Growth{Retries: 3, Factor: 2, ExitCodes: []int{85}, LimitPercent: 90, EarlyPercent: 95, OverBudget: 76, AtLimit: 82, NearLimit: 83},
		Devices: []condor.Device{
			{UUID: shared, Index: 3, Name: "Tesla V100S-PCIE-32GB", PCI: "0000:1a:00.0", Memory: 32768, Capability: gpu.Volta, Shared: true, Elastic: true,
				Shares: 7, Pool: 32256, LargestRequest: 16384, DefaultRequest: 4608, Share: condor.Share{CPUs: 30, Memory: 170000}, Tenant: condor.TenantVO, MostThreads: 50},
			{UUID: whole, Index: 1, Name: "Tesla P100-PCIE-16GB", PCI: "0000:1b:00.0", Memory: 16384, Capability: gpu.ComputeCapability{Major: 6},
				Shares: 1, Pool: 16384, LargestRequest: 16384, DefaultRequest: 16384, Share: condor.Share{CPUs: 28, Memory: 183895}, MostThreads: 100},
			{UUID: device, Index: 2, Name: "NVIDIA A30", PCI: "0000:1c:00.0", Memory: 5952, Capability: gpu.ComputeCapability{Major: 8},
				Shares: 1, Pool: 5952, LargestRequest: 5952, DefaultRequest: 5952, Share: condor.Share{CPUs: 1, Memory: 1}, MostThreads: 100, Parent: lost, Profile: "1g.6gb", Place: "1g.6gb@3", There: there, Multiprocessors: 14},
		},
	}
	cfg := config.Default()
	cfg.Placement = config.Placement{LargeAfter: time.Minute, SlotWeight: config.WeightCPUsOrVRAM}
	cfg.HTCondor.Layout = config.LayoutStartdPerGPU
	if got := Node(p, cfg).Growth; !reflect.DeepEqual(got, condor.Growth{}) {
		t.Errorf("by itself nothing grows: %+v", got)
	}
	cfg.Growth = config.Growth{Retries: 3, ExitCodes: []int{85}, EarlyPercent: 95}
	got := Node(p, cfg)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	got = Node(p, cfg)
	p.GPUs[0].Mode, p.GPUs[0].Elastic = config.ModeTimeSlice, false
	if d := Node(p, cfg).Devices[0]; !d.Shared || !d.WithoutMPS {
		t.Errorf("time slices: %+v", d)
	}
	// A field that condor gains later must not stay empty unnoticed.
	full := got.Devices[0]
	full.Parent, full.Profile, full.Place, full.There, full.Multiprocessors = got.Devices[2].Parent, got.Devices[2].Profile, got.Devices[2].Place, there, got.Devices[2].Multiprocessors
	for _, v := range []any{got, full} {
		for i := range reflect.TypeOf(v).NumField() {
			if f := reflect.TypeOf(v).Field(i); f.Name != "Version" && f.Name != "WithoutMPS" && f.Name != "MPS" && f.Name != "SiteSlotTypes" && f.Name != "Docker" && reflect.ValueOf(v).Field(i).IsZero() {
				t.Errorf("%T.%s is empty", v, f.Name)
			}
		}
	}
}
