package plan_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
)

func TestThreadPercentage(t *testing.T) {
	for _, c := range []struct {
		threads plan.Threads
		shares  int
		budget  gpu.MiB
		want    float64
		capped  bool
	}{
		{plan.Threads{Policy: config.ThreadsUncapped}, 8, 4000, 100, false},
		{plan.Threads{Policy: config.ThreadsEqual}, 8, 4000, 12.5, true},
		{plan.Threads{Policy: config.ThreadsEqual}, 7, 4000, 14.2, true}, // 14.28…, down
		{plan.Threads{Policy: config.ThreadsEqual}, 1, 4000, 100, false},
		{plan.Threads{Policy: config.ThreadsByVRAM}, 8, 8000, 25, true},
		{plan.Threads{Policy: config.ThreadsByVRAM}, 8, 32000, 100, false},
		{plan.Threads{Policy: config.ThreadsByVRAM}, 8, 40000, 100, false}, // above the pool
		{plan.Threads{Policy: config.ThreadsByVRAM}, 8, 1, 0.1, true},      // never 0, which the daemon refuses
		{plan.Threads{Policy: config.ThreadsByVRAM}, 8, 0, 0.1, true},
		{plan.Threads{Policy: config.ThreadsFixed, Percent: 33.3}, 8, 4000, 33.3, true},
		{plan.Threads{Policy: config.ThreadsFixed, Percent: 0.1}, 8, 4000, 0.1, true},
		{plan.Threads{Policy: config.ThreadsFixed, Percent: 100}, 8, 4000, 100, false},
	} {
		g := plan.GPU{Threads: c.threads, Shares: c.shares, Pool: 32000}
		if got, capped := g.ThreadPercentage(c.budget); got != c.want || capped != c.capped {
			t.Errorf("%s, %d shares, %d: %v %v, want %v %v", c.threads, c.shares, c.budget, got, capped, c.want, c.capped)
		}
	}
}

// The documented numbers of contexts per device (NVIDIA MPS documentation), less one.
func TestClientCeiling(t *testing.T) {
	for cuda, want := range map[string]int{"": 47, "11.4": 47, "12.9": 47, "13.0": 47, "13.1": 59, "13.2": 59, "14.0": 59, "x": 47} {
		if got := plan.ClientCeiling(cuda); got != want {
			t.Errorf("CUDA %q: %d, want %d", cuda, got, want)
		}
	}
}

// sharedNode is two shared GPUs and a whole one.
func sharedNode() plan.Plan {
	shared := plan.GPU{UUID: uuid(1), Name: "Tesla V100S-PCIE-32GB", Mode: config.ModeMPS, Shares: 8, Pool: 32000, LargestRequest: 16000, DefaultRequest: 3584,
		Resources: plan.Resources{CPUs: 6, Memory: 40000}, Threads: plan.Threads{Policy: config.ThreadsEqual}}
	small := shared
	small.UUID, small.Pool, small.Resources = uuid(2), 8192, plan.Resources{CPUs: 20, Memory: 9000}
	return plan.Plan{
		Schema:      plan.Schema,
		RequestVRAM: plan.RequestVRAM{Minimum: 1536, Quantum: 512},
		GPUs:        []plan.GPU{shared, small, {UUID: uuid(3), Mode: config.ModeWhole, Shares: 1, Pool: 32000, Resources: plan.Resources{CPUs: 6, Memory: 40000}}},
	}
}

func TestCapacity(t *testing.T) {
	perGPU, all := sharedNode().Capacity(plan.Request{CPUs: 1, Memory: 4000, VRAM: 4000})
	// A request of 4000 is a budget of 4096: 7 in 32000, 2 in 8192.
	want := []plan.Capacity{
		{GPU: uuid(1), CPUs: 6, Memory: 10, VRAM: 7, Shares: 8, Jobs: 6, RunsOut: []string{"CPUs"}},
		{GPU: uuid(2), CPUs: 20, Memory: 2, VRAM: 2, Shares: 8, Jobs: 2, RunsOut: []string{"memory", "VRAM"}},
	}
	if d := cmp.Diff(want, perGPU); d != "" {
		t.Errorf("per GPU (-want +got):\n%s", d)
	}
	if d := cmp.Diff(plan.Capacity{CPUs: 26, Memory: 12, VRAM: 9, Shares: 16, Jobs: 8, RunsOut: []string{"VRAM"}}, all); d != "" {
		t.Errorf("all (-want +got):\n%s", d)
	}
	other := sharedNode()
	slices.Reverse(other.GPUs) // the whole GPU comes first
	if again, sum := other.Capacity(plan.Request{CPUs: 1, Memory: 4000, VRAM: 4000}); len(again) != 2 || sum.Jobs != all.Jobs {
		t.Errorf("in another order: %+v, %+v", again, sum)
	}
	_, all = sharedNode().Capacity(plan.Request{CPUs: 1, Memory: 1, VRAM: 16001})
	if all.Jobs != 0 || all.VRAM != 0 {
		t.Errorf("a job above the largest request fits: %+v", all)
	}
	_, all = sharedNode().Capacity(plan.Request{})
	if all.CPUs != 26 || all.VRAM != 20+5 {
		t.Errorf("a request of nothing counts as the least one: %+v", all)
	}
}

func TestBudget(t *testing.T) {
	r := plan.RequestVRAM{Minimum: 1536, Quantum: 512}
	for want, budget := range map[gpu.MiB]gpu.MiB{0: 1536, 1: 1536, 1536: 1536, 1537: 2048, 4000: 4096, 4096: 4096} {
		if got := r.Budget(want); got != budget {
			t.Errorf("a request of %d gets %d, want %d", want, got, budget)
		}
	}
}

func TestControlDaemons(t *testing.T) {
	p := sharedNode()
	p.GPUs[1].Threads = plan.Threads{Policy: config.ThreadsByVRAM}
	var got []string
	for _, w := range p.ControlDaemons() {
		got = append(got, fmt.Sprint(w.GPU == uuid(3), w.Limit, w.ThreadPercentage))
	}
	// The percentage by VRAM is the job's own, so its daemon does not cap.
	if d := cmp.Diff([]string{"false 16000 MiB 12.5", "false 16000 MiB 100"}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestDiff(t *testing.T) {
	old, now := sharedNode(), sharedNode()
	now.GPUs[0].Shares, now.GPUs[0].Threads = 1, plan.Threads{Policy: config.ThreadsFixed, Percent: 50}
	now.GPUs[1].UUID = uuid(9)
	now.GPUs[2].ComputeMode = gpu.ComputeModeExclusiveProcess
	now.CPUOnly = plan.Resources{CPUs: 1, Memory: 2000}
	now.Absent = []gpu.UUID{uuid(2)}
	now.Warnings = []string{"a warning is no difference"}
	want := []string{
		"GPU-00000001-0000-4000-8000-000000000000: the number of shares changes from 8 to 1.",
		"GPU-00000001-0000-4000-8000-000000000000: threads changes from equal to 50 %.",
		"GPU-00000002-0000-4000-8000-000000000000 is configured but missing.",
		"GPU-00000002-0000-4000-8000-000000000000 is no longer offered.",
		"GPU-00000003-0000-4000-8000-000000000000: the compute mode changes from none to exclusive-process.",
		"GPU-00000009-0000-4000-8000-000000000000 (Tesla V100S-PCIE-32GB) is offered, mps in 8 shares of 8192 MiB.",
		"The node: the part for jobs without GPUs changes from none to 1 CPU and 2000 MiB.",
	}
	if d := cmp.Diff(want, plan.Diff(old, now)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if said := plan.Diff(old, sharedNode()); len(said) > 0 {
		t.Errorf("equal plans differ: %q", said)
	}
}

// BenchmarkBuild plans the node of the project's speed target: 16 GPUs with 48
// shares each, at most 5 ms.
func BenchmarkBuild(b *testing.B) {
	cfg, err := config.Parse("gpuslot.toml", []byte("[sharing]\nshares = 48\n"))
	if err != nil {
		b.Fatal(err)
	}
	inv := gpu.Inventory{Schema: gpu.InventorySchema, Host: gpu.Host{Name: "wn-gpu1", CPUs: 256, Memory: 1 << 20}, Driver: "590.44.01", CUDA: "13.1"}
	for i := range 16 {
		inv.GPUs = append(inv.GPUs, gpu.GPU{UUID: uuid(i), Index: i, Name: "NVIDIA H200", Memory: 143771,
			PCI: gpu.PCIBusID(fmt.Sprintf("0000:%02x:00.0", i)), Capability: gpu.ComputeCapability{Major: 9}})
	}
	b.ReportAllocs()
	for b.Loop() {
		p, err := plan.Build(cfg, inv)
		if err != nil || len(p.GPUs) != 16 || p.GPUs[15].Shares != 48 {
			b.Fatal(err)
		}
	}
}
