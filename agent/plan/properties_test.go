package plan_test

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
)

// inventories are all that gpu.Inventory.Check lets through, real models often.
func inventories() *rapid.Generator[gpu.Inventory] {
	return rapid.Custom(func(t *rapid.T) gpu.Inventory {
		inv := gpu.Inventory{
			Schema: gpu.InventorySchema,
			Host: gpu.Host{
				Name:   rapid.SampledFrom([]string{"wn-gpu1", "wn-gpu1.example.org", "other"}).Draw(t, "host"),
				CPUs:   rapid.OneOf(rapid.IntRange(1, 20), rapid.IntRange(1, 1<<16)).Draw(t, "cpus"),
				Memory: gpu.MiB(rapid.OneOf(rapid.Int64Range(1, 100), rapid.Int64Range(1, 1<<30)).Draw(t, "memory")),
			},
			Driver: rapid.SampledFrom([]string{"", "535.261.03", "550.163.01", "555.58.02"}).Draw(t, "driver"),
			CUDA:   rapid.SampledFrom([]string{"", "12.4", "13.0", "13.1"}).Draw(t, "cuda"),
		}
		for i := range rapid.IntRange(0, 16).Draw(t, "gpus") {
			inv.GPUs = append(inv.GPUs, gpu.GPU{
				UUID:       uuid(i),
				Index:      i,
				Name:       rapid.SampledFrom(models).Draw(t, "name"),
				PCI:        gpu.PCIBusID(fmt.Sprintf("0000:%02x:00.0", i*7%16)),
				Memory:     gpu.MiB(rapid.OneOf(rapid.Int64Range(1, 4096), rapid.Int64Range(4096, 300000), rapid.Int64Range(1, 4<<20)).Draw(t, "vram")),
				Capability: gpu.ComputeCapability{Major: rapid.IntRange(5, 12).Draw(t, "major")},
				MIGCapable: true,

				Multiprocessors: rapid.IntRange(0, 200).Draw(t, "sms"),
				MIGEnabled:      rapid.IntRange(0, 4).Draw(t, "mig") == 0,
			})
			if g := &inv.GPUs[i]; g.MIGEnabled {
				g.MIGDevices = migDevices(t, i, g.Memory)
			}
		}
		if err := inv.Check(); err != nil {
			t.Fatalf("the generator made an impossible node: %v", err)
		}
		return inv
	})
}

// migDevices are some, none, or not read.
func migDevices(t *rapid.T, of int, most gpu.MiB) []gpu.MIGDevice {
	var out []gpu.MIGDevice
	if rapid.Bool().Draw(t, "read") {
		out = []gpu.MIGDevice{}
	}
	for i := range rapid.IntRange(0, 7).Draw(t, "devices") {
		out = append(out, gpu.MIGDevice{
			UUID:        gpu.UUID(fmt.Sprintf("MIG-%08x-%04x-5000-8000-000000000000", of, i)),
			Profile:     rapid.SampledFrom([]string{"1g.5gb", "3g.20gb", "7g.40gb"}).Draw(t, "profile"),
			GPUInstance: i,
			Memory:      gpu.MiB(rapid.Int64Range(1, int64(most)).Draw(t, "device memory")),
		})
	}
	return out
}

var models = []string{"Tesla V100S-PCIE-32GB", "NVIDIA A100-PCIE-40GB", "Tesla T4"}

func uuid(i int) gpu.UUID { return gpu.UUID(fmt.Sprintf("GPU-%08x-0000-4000-8000-000000000000", i)) }

// configs are files that config.Parse takes; some wish for what no node has.
func configs() *rapid.Generator[config.Config] {
	return rapid.Custom(func(t *rapid.T) config.Config {
		var b strings.Builder
		quantum := rapid.Int64Range(1, 5000).Draw(t, "quantum")
		fmt.Fprintf(&b, "[request_vram]\nquantum = %d\nminimum = %d\n", quantum, quantum*rapid.Int64Range(1, 8).Draw(t, "minimum"))
		maybe(t, &b, "without_request", `"auto"`, `"whole"`, `"share"`, `"refuse"`)
		b.WriteString("[cpu_only]\n")
		maybe(t, &b, "cpus", "0", "1", "8", `"10%"`, `"50%"`)
		maybe(t, &b, "memory", "0", "1000", `"10%"`, `"99%"`)
		for _, table := range []string{"sharing", `model."Tesla T4"`, `model."NVIDIA A100-PCIE-40GB"`, `host."wn-*"`, `gpu."` + string(uuid(1)) + `"`, `gpu."` + string(uuid(99)) + `"`} {
			if !rapid.Bool().Draw(t, table) {
				continue
			}
			fmt.Fprintf(&b, "[%s]\n", table)
			maybe(t, &b, "mode", `"mps"`, `"whole"`, `"mig"`, `"choose"`)
			maybe(t, &b, "mig_layout", `"keep"`, `"1g.5gb*7"`, `["3g.20gb*3", "3g.20gb@4"]`, `["1g.5gb*7", "3g.20gb, 2g.10gb, 1g.5gb*2", "7g.40gb", "4g.20gb,3g.20gb"]`, `"1g.10gb"`)
			maybe(t, &b, "mig_mps", "true", "false")
			maybe(t, &b, "isolation", "true", "false")
			maybe(t, &b, "shares", "1", "8", "48", "60", `"auto"`)
			maybe(t, &b, "reserved_vram", "0", "512", "3000", "32510")
			maybe(t, &b, "largest_request", `"auto"`, "40000")
			maybe(t, &b, "threads", `"equal"`, `"by-vram"`, `"partitioned"`, "33.3", "0.1")
			maybe(t, &b, "threads_max", `"policy"`, "50", "0.1", "100")
			maybe(t, &b, "tenancy", `"one-at-a-time"`, `"common:jobs"`, `"multi-user"`)
			if !strings.HasPrefix(table, "gpu") {
				maybe(t, &b, "whole", "0", "1", "3", "20")
			}
		}
		c, err := config.Parse("gpuslot.toml", []byte(b.String()))
		if err != nil {
			t.Fatalf("the generator wrote a file that is refused: %v\n%s", err, b.String())
		}
		return c
	})
}

func maybe(t *rapid.T, b *strings.Builder, key string, values ...string) {
	if rapid.IntRange(0, 2).Draw(t, key) == 0 {
		fmt.Fprintf(b, "%s = %s\n", key, rapid.SampledFrom(values).Draw(t, key))
	}
}

func TestPlanKeepsWithinTheNode(t *testing.T) {
	built, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		cfg, inv := configs().Draw(t, "config"), inventories().Draw(t, "inventory")
		p, err := plan.Build(cfg, inv)
		if err != nil {
			refused++
			return
		}
		built++
		checkNode(t, p, inv)
		for _, g := range p.GPUs {
			if g.Shared() {
				checkShared(t, g, p, inv)
			} else if g.Shares != 1 || g.Pool != g.Memory || g.LargestRequest != g.Memory || g.ComputeMode != "" {
				t.Fatalf("whole GPU with a part or a compute mode: %+v", g)
			}
		}
	})
	if built == 0 || refused == 0 {
		t.Errorf("%d plans and %d refusals: the generators miss one of them", built, refused)
	}
}

// checkNode holds the sum of all parts to the host.
func checkNode(t *rapid.T, p plan.Plan, inv gpu.Inventory) {
	cpus, memory, several := p.CPUOnly.CPUs, p.CPUOnly.Memory, false
	for _, g := range p.GPUs {
		if g.Resources.CPUs < 1 || g.Resources.Memory < 1 {
			t.Fatalf("%s has no CPU or no memory: %+v", g.UUID, g.Resources)
		}
		if !slices.ContainsFunc(p.MIG, func(m plan.MIGGPU) bool { return m.UUID == g.Parent && len(m.Placed) > 1 }) {
			cpus += g.Resources.CPUs
			memory += g.Resources.Memory
		}
	}
	for _, m := range p.MIG {
		c, mem := atOneTime(p, m)
		cpus, memory, several = cpus+c, memory+mem, several || len(m.Placed) > 1
	}
	if len(p.GPUs) > 0 && !several && (cpus != inv.Host.CPUs || memory != inv.Host.Memory) {
		t.Fatalf("%d CPUs and %s given out, the host has %d and %s", cpus, memory, inv.Host.CPUs, inv.Host.Memory)
	}
	if cpus > inv.Host.CPUs || memory > inv.Host.Memory {
		t.Fatalf("over-subscribed: %d CPUs and %s", cpus, memory)
	}
	if (p.CPUOnly.CPUs == 0) != (p.CPUOnly.Memory == 0) {
		t.Fatalf("half a slot for jobs without GPUs: %+v", p.CPUOnly)
	}
	if p.RequestVRAM.WithoutRequest == config.WithoutRequestAuto {
		t.Fatal("without_request is undecided")
	}
}

// atOneTime is the most that any layout of a GPU with several gives out.
func atOneTime(p plan.Plan, m plan.MIGGPU) (cpus int, memory gpu.MiB) {
	if len(m.Placed) < 2 {
		return 0, 0
	}
	for _, layout := range m.Placed {
		c, mem := 0, gpu.MiB(0)
		for _, g := range p.GPUs {
			if g.Parent == m.UUID && (g.Place == "" || slices.Contains(strings.Split(layout, ","), g.Place)) {
				c, mem = c+g.Resources.CPUs, mem+g.Resources.Memory
			}
		}
		cpus, memory = max(cpus, c), max(memory, mem)
	}
	return cpus, memory
}

func checkShared(t *rapid.T, g plan.GPU, p plan.Plan, inv gpu.Inventory) {
	r := p.RequestVRAM
	switch {
	case g.Capability.Before(gpu.Volta):
		t.Fatalf("%s is shared and older than Volta", g.UUID)
	case g.Shares < 1 || g.Shares > plan.ClientCeiling(inv.CUDA):
		t.Fatalf("%s has %d shares", g.UUID, g.Shares)
	case g.Pool > g.Memory || g.Pool%r.Quantum != 0:
		t.Fatalf("%s has the pool %d of %d with quantum %d", g.UUID, g.Pool, g.Memory, r.Quantum)
	case gpu.MiB(g.Shares)*r.Minimum > g.Pool:
		t.Fatalf("%s: %d shares of at least %d do not fit into %d", g.UUID, g.Shares, r.Minimum, g.Pool)
	case gpu.MiB(g.Shares)*g.DefaultRequest > g.Pool || g.DefaultRequest < r.Minimum || g.DefaultRequest%r.Quantum != 0:
		t.Fatalf("%s: default request %d with %d shares, pool %d", g.UUID, g.DefaultRequest, g.Shares, g.Pool)
	case g.LargestRequest > g.Pool || g.LargestRequest < g.DefaultRequest || g.LargestRequest%r.Quantum != 0:
		t.Fatalf("%s: largest request %d, default %d, pool %d", g.UUID, g.LargestRequest, g.DefaultRequest, g.Pool)
	}
	if i := slices.IndexFunc(inv.GPUs, func(o gpu.GPU) bool { return o.UUID == g.UUID }); g.Partitioned() {
		if part := g.Threads.Partition; part.Chunks < 1 || part.SMs*g.Shares+part.Unused != inv.GPUs[i].Multiprocessors || part.Unused < 0 || g.Capability.Major < 8 {
			t.Fatalf("%s: %d partitions %+v of %d multiprocessors", g.UUID, g.Shares, part, inv.GPUs[i].Multiprocessors)
		}
	}
	if key := g.Tenancy.Key(); key == config.TenantAccount && g.Tenancy.Policy != config.TenancyOneAtATime {
		t.Fatalf("%s: %s keeps accounts apart", g.UUID, g.Tenancy)
	}
	budget := gpu.MiB(rapid.Int64Range(0, int64(g.Pool)).Draw(t, "budget"))
	percent, capped := g.ThreadPercentage(budget)
	// The daemon's default bounds what jobs can take, and takes nothing from them.
	for _, d := range p.ControlDaemons() {
		if most := g.MostThreads(min(budget, g.LargestRequest)); d.GPU == g.UUID && (most < percent && budget <= g.LargestRequest || most > d.ThreadPercentage || d.ThreadPercentage > 100) {
			t.Fatalf("%s: %v %% of at most %v %% for %d, the daemon allows %v", g.UUID, percent, most, budget, d.ThreadPercentage)
		}
	}
	if percent < 0.1 || percent > 100 || capped != (percent < 100) {
		t.Fatalf("%s: %v %% for %d, capped %v", g.UUID, percent, budget, capped)
	}
}

func TestPlanDoesNotDependOnTheOrderOfTheInventory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg, inv := configs().Draw(t, "config"), inventories().Draw(t, "inventory")
		shuffled := inv
		shuffled.GPUs = rapid.Permutation(inv.GPUs).Draw(t, "order")
		before := slices.Clone(shuffled.GPUs)
		a, errA := plan.Build(cfg, inv)
		b, errB := plan.Build(cfg, shuffled)
		if fmt.Sprint(errA) != fmt.Sprint(errB) || !bytes.Equal(encode(t, a), encode(t, b)) {
			t.Fatalf("another order, another plan:\n%s%v\n%s%v", encode(t, a), errA, encode(t, b), errB)
		}
		if !reflect.DeepEqual(before, shuffled.GPUs) {
			t.Fatal("Build changed its input")
		}
	})
}

// TestDiffSeesEveryDifference holds Diff to the plan file: silence means that
// all but the warnings is equal.
func TestDiffSeesEveryDifference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		inv := inventories().Draw(t, "inventory")
		a, errA := plan.Build(configs().Draw(t, "config"), inv)
		if rapid.Bool().Draw(t, "another node") {
			inv = inventories().Draw(t, "other inventory")
		}
		b, errB := plan.Build(configs().Draw(t, "other config"), inv)
		if errA != nil || errB != nil {
			return
		}
		a.Warnings, b.Warnings = nil, nil
		said := plan.Diff(a, b)
		if equal := bytes.Equal(encode(t, a), encode(t, b)); equal != (len(said) == 0) {
			t.Fatalf("equal %v, but Diff says %q", equal, said)
		}
		if !slices.IsSorted(said) {
			t.Fatalf("not sorted: %q", said)
		}
		decoded, err := plan.Decode(encode(t, a))
		if err != nil || len(plan.Diff(a, decoded)) > 0 {
			t.Fatalf("the plan file changes the plan: %v %q", err, plan.Diff(a, decoded))
		}
	})
}

func encode(t *rapid.T, p plan.Plan) []byte {
	b, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"schema": "gpuslot-plan/1", "gpus": [{"uuid": "GPU-00000001-0000-4000-8000-000000000000", "pci_bus_id": "0000:1a:00.0", "compute_capability": "7.0", "shares": 1, "vram_pool_mib": 1}]}`))
	f.Add([]byte(`{"schema": "gpuslot-plan/2"}`))
	f.Add([]byte(`{"schema": "gpuslot-plan/1", "absent": [1]}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := plan.Decode(b)
		if err != nil {
			return
		}
		out, err := p.Encode()
		if err != nil {
			t.Fatalf("accepted, but cannot be printed: %v", err)
		}
		again, err := plan.Decode(out)
		if err != nil || len(plan.Diff(p, again)) > 0 {
			t.Fatalf("printed, but read differently: %v", err)
		}
	})
}
