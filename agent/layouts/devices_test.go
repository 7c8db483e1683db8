package layouts

import (
	"maps"
	"slices"
	"testing"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
)

// TestPresent: what the inventory has is there, and a place of the plan if it has a device.
func TestPresent(t *testing.T) {
	inv := gpu.Inventory{GPUs: []gpu.GPU{{UUID: testGPU, MIGDevices: []gpu.MIGDevice{{UUID: "MIG-1"}}}}}
	p := plan.Plan{GPUs: []plan.GPU{
		{UUID: "GPU-gone"}, {UUID: "place 1", Place: "1g.5gb@0", Device: "MIG-1"}, {UUID: "place 2", Place: "1g.5gb@1"},
	}}
	want := map[gpu.UUID]bool{testGPU: true, "MIG-1": true, "place 1": true, "place 2": false}
	if got := Present(p, inv); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestIsolated: the GPUs that are divided by the plan's word, or by its MIG devices, each once; none that is observed.
func TestIsolated(t *testing.T) {
	p := plan.Plan{Divided: []gpu.UUID{"GPU-1"}, GPUs: []plan.GPU{
		{UUID: "MIG-1", Parent: "GPU-1"}, {UUID: "MIG-2", Parent: "GPU-2"}, {UUID: "MIG-3", Parent: "GPU-2"}, {UUID: "GPU-3"},
	}}
	if got := Isolated(p); !slices.Equal(got, []gpu.UUID{"GPU-1", "GPU-2"}) {
		t.Errorf("%v", got)
	}
	p.Observe = true
	if got := Isolated(p); len(got) > 0 {
		t.Errorf("observed: %v", got)
	}
}

// TestForJobs: GPUs that jobs share, also by turns. Not those with more than the default reserve, nor MIG devices, nor
// those of one job, nor any that are observed. One that cannot be read stays.
func TestForJobs(t *testing.T) {
	usual, desktop := plan.Kept{Margin: 64}, plan.Kept{Margin: 65}
	p := plan.Plan{Schema: plan.Schema, GPUs: []plan.GPU{
		{UUID: "GPU-mps", Mode: config.ModeMPS, Kept: usual},
		{UUID: "GPU-slices", Mode: config.ModeTimeSlice, Kept: plan.Kept{Margin: 26}},
		{UUID: "GPU-turns", Mode: config.ModeWhole, Elastic: true, Kept: usual},
		{UUID: "GPU-whole", Mode: config.ModeWhole},
		{UUID: "GPU-observed", Mode: config.ModeObserve},
		{UUID: "GPU-desktop", Mode: config.ModeMPS, Kept: desktop},
		{UUID: "GPU-desktop by turns", Mode: config.ModeMPS, Elastic: true, Kept: desktop},
		{UUID: "MIG-shared", Parent: "GPU-1", Mode: config.ModeMPS, Kept: usual},
	}, MIG: []plan.MIGGPU{{UUID: "GPU-1"}}}
	all := []gpu.UUID{"GPU-mps", "GPU-slices", "GPU-turns", "GPU-1"}
	observed := p
	observed.Observe = true
	for name, c := range map[string]struct {
		plan         plan.Plan
		before, want []gpu.UUID
	}{
		"at first":                 {plan: p, want: all},
		"one does not answer":      {plan: p, before: []gpu.UUID{"GPU-mute", "GPU-mps"}, want: append(slices.Clone(all), "GPU-mute")},
		"one is whole now":         {plan: p, before: []gpu.UUID{"GPU-whole", "GPU-desktop"}, want: all},
		"observed":                 {plan: observed, before: all},
		"without a plan":           {before: all, want: all},
		"without a plan, at first": {},
	} {
		var inv gpu.Inventory
		for _, g := range c.plan.GPUs {
			inv.GPUs = append(inv.GPUs, gpu.GPU{UUID: g.UUID})
		}
		if got := ForJobs(c.plan, inv, c.before); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
