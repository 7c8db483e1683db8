package mig_test

import (
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// TestTooWide: a demand whose combinations do not fit into 63 bits is an error, with what to do.
func TestTooWide(t *testing.T) {
	c := chip(t, "A100-40GB")
	var node []gpu.MIGGPU
	for i := range 400 {
		node = append(node, gpu.MIGGPU{Index: i, Chip: c})
	}
	var demand []mig.Demand
	for _, p := range c.Profiles {
		demand = append(demand, mig.Demand{Profile: p.Name, Count: 10_000, Weight: 1})
	}
	var catalogue mig.Catalogue
	_, err := mig.PlanDemand(&catalogue, node, demand)
	if err == nil || !strings.Contains(err.Error(), "plan fewer GPUs at once") {
		t.Error(err)
	}
}
