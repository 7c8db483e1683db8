package condor

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/gpu"
)

var update = flag.Bool("update", false, "write the golden files anew; read them before you commit them")

// v100s is one GPU of the node in the examples: a Tesla V100S with 32 GB.
func v100s(i int) Device {
	return Device{
		UUID:           uuid(i),
		Index:          i,
		Name:           "Tesla V100S-PCIE-32GB",
		PCI:            gpu.PCIBusID(fmt.Sprintf("0000:%02x:00.0", 0x1a+i)),
		Memory:         32768,
		Capability:     gpu.Volta,
		Shared:         true,
		Shares:         8,
		Pool:           32256,
		LargestRequest: 32256,
		DefaultRequest: 4096,
		Share:          Share{CPUs: 11, Memory: 44032},
	}
}

func uuid(i int) gpu.UUID {
	return gpu.UUID(fmt.Sprintf("GPU-%08d-5be4-11f1-9c2d-0242ac120002", i))
}

// wholeV100S is the same GPU, not shared.
func wholeV100S(i int) Device {
	d := v100s(i)
	d.Shared, d.Shares, d.Pool, d.LargestRequest = false, 1, d.Memory, d.Memory
	return d
}

// elasticV100S is the same GPU, elastic.
func elasticV100S(i int) Device {
	d := v100s(i)
	d.Elastic = true
	return d
}

// instance is a MIG device of an A100.
func instance(i int, profile string, memory gpu.MiB, sms int) Device {
	return Device{
		UUID: gpu.UUID(fmt.Sprintf("MIG-%08d-5be4-51f1-9c2d-0242ac120002", i)), Name: "NVIDIA A100-SXM4-40GB", PCI: "0000:1a:00.0",
		Memory: memory, Capability: gpu.ComputeCapability{Major: 8}, Shares: 1, Pool: memory, LargestRequest: memory, DefaultRequest: memory,
		Share: Share{CPUs: 3, Memory: 11008}, Profile: profile, Parent: uuid(0), Multiprocessors: sms,
	}
}

func exampleNode(devices ...Device) Node {
	return Node{
		Version: "0.1.0", CPUs: 96, Memory: 385024,
		CPUOnly: Share{CPUs: 8, Memory: 32768},
		Driver:  "550.163.01", CUDA: "12.4",
		Devices:        devices,
		WithoutRequest: WithoutRequestRefuse,
		Minimum:        1536, Quantum: 512,
		PipeRoot:  "/run/gpuslot/mps",
		Libexec:   "/usr/libexec/gpuslot",
		Inventory: "/run/gpuslot/condor/inventory.ad",
	}
}

// examples are the nodes that the golden files and the real HTCondor see.
func examples() map[string]Node {
	all := func(make func(int) Device) (d []Device) {
		for i := range 8 {
			d = append(d, make(i))
		}
		return d
	}
	shared := exampleNode(all(v100s)...)
	shared.Supervise = true

	whole := exampleNode(append(all(v100s)[2:], wholeV100S(0), wholeV100S(1))...)
	whole.WithoutRequest = WithoutRequestWhole

	none := exampleNode()
	none.CPUOnly = Share{CPUs: 96, Memory: 385024}
	none.CUDA, none.Driver = "", ""

	seven := exampleNode(all(v100s)[:7]...)
	seven.Absent = []gpu.UUID{uuid(7)}
	seven.WithoutRequest = WithoutRequestShare

	elastic := exampleNode(v100s(0), elasticV100S(1), elasticV100S(2))
	elastic.Weight, elastic.Reserves = WeightCPUsOrVRAM, true

	only := exampleNode(all(wholeV100S)...)
	only.CPUOnly = Share{}

	capped := v100s(1)
	capped.Name, capped.LargestRequest, capped.Memory = "NVIDIA A100-SXM4-40GB", 16384, 40960
	capped.Capability = gpu.ComputeCapability{Major: 8}
	mixed := exampleNode(v100s(0), capped)

	// Each GPU with a startd of its own: shared, whole, and in MIG devices.
	each := exampleNode(v100s(0), v100s(1), wholeV100S(2))
	each.PerGPU, each.Execute = true, "/var/lib/gpuslot/execute"

	// More slot types than HTCondor reads by itself.
	var sixteen []Device
	for i := range 16 {
		d := v100s(i)
		d.Share.CPUs, d.Share.Memory = 5, 22016
		sixteen = append(sixteen, d)
	}
	many := exampleNode(sixteen...)

	// Tenants that are not accounts, jobs that ask for multiprocessors, and what
	// the node's MPS can do.
	tenants := exampleNode(all(v100s)[:3]...)
	tenants.Devices[0].Tenant, tenants.Devices[1].Tenant = TenantVO, TenantGroup
	tenants.Devices[0].MostThreads, tenants.Devices[1].MostThreads = 12.5, 100
	tenants.Growth = Growth{Retries: 3, Factor: 2, ExitCodes: []int{85, 12}, LimitPercent: 90, EarlyPercent: 95, OverBudget: 76, AtLimit: 82, NearLimit: 83}
	tenants.MPS = &[]string{"server-status", "privilege-checks", "multi-user"}

	// A GPU in MIG devices, of which one is shared, beside a shared and a whole GPU.
	big := instance(0, "3g.20gb", 19968, 42)
	big.Shared, big.Shares, big.Pool, big.LargestRequest, big.DefaultRequest = true, 4, 19456, 19456, 4608
	ahead := instance(4, "3g.20gb", 19968, 42)
	ahead.Place, ahead.There = "3g.20gb@4", "MIG-00000009-5be4-51f1-9c2d-0242ac120002"
	mig := exampleNode(ahead, big, instance(1, "2g.10gb", 9856, 28), instance(2, "1g.5gb", 4864, 14), instance(3, "1g.5gb", 4864, 14), v100s(1), wholeV100S(2))

	// The largest of today: 16 GPUs in seven MIG devices each, at their places.
	sevens := exampleNode()
	sevens.Supervise, sevens.CPUs, sevens.Memory = true, 240, 2097152
	for i := range 112 {
		d := instance(100+i, "1g.18gb", 16384, 16)
		d.Index, d.Parent, d.Name, d.Share = i/7, uuid(i/7), "NVIDIA H200", Share{CPUs: 2, Memory: 16384}
		d.Place, d.There = fmt.Sprintf("1g.18gb@%d", i%7), gpu.UUID(fmt.Sprintf("MIG-%08d-5be4-51f1-9c2d-0242ac120002", 500+i))
		sevens.Devices = append(sevens.Devices, d)
	}

	follows := exampleNode(ahead, instance(2, "1g.5gb", 4864, 14))
	follows.Repartition, follows.Supervise = "auto", true

	return map[string]Node{"each": each, "mig": mig, "follows": follows, "sevens": sevens, "tenants": tenants, "sixteen": many, "shared": shared, "whole": whole, "none": none, "seven": seven, "only-whole": only, "mixed": mixed, "elastic": elastic}
}

// golden compares with testdata/<name>, or writes it with -update.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}
