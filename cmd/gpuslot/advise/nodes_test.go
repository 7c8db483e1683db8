package advise

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/history"
)

// TestSingleGPUNodes: where a node has one GPU it is nodes that stay whole.
func TestSingleGPUNodes(t *testing.T) {
	jobs := slices.Concat(history.A100("alice", "train", history.Constant(2800), .08, .05).Jobs(history.Seeded(1), 300, history.Start),
		history.A100("carol", "lattice", history.Constant(35000), .9, .5).Jobs(history.Seeded(2), 300, history.Start))
	for i := range jobs {
		jobs[i].Node = string(jobs[i].GPU)
	}
	s := adviceOf(defaults(), jobs).Settings[0]
	want := fmt.Sprintf("leave about %d of the %d nodes as they are", s.GPUs/2, s.GPUs)
	if why := strings.Join(s.Why, " "); s.OfNode != 1 || !strings.Contains(why, want) || slices.ContainsFunc(s.Lines, func(l string) bool { return strings.HasPrefix(l, "whole") }) {
		t.Errorf("%d GPUs of a node, %q, %q, want %q", s.OfNode, s.Lines, why, want)
	}
}

// TestHostOfTheInventory: the CPUs of a node count only if its inventory says how many
// there are.
func TestHostOfTheInventory(t *testing.T) {
	jobs, cpus := history.A100("alice", "train", history.Constant(2800), .08, .05).Jobs(history.Seeded(1), 300, history.Start), 24.0
	for i := range jobs {
		jobs[i].Requested.CPUs = &cpus
	}
	o := defaults()
	if fit := adviceOf(o, jobs).Classes[0].Fit; fit.ByHost != nil {
		t.Errorf("no node is known, and its host fits %d", *fit.ByHost)
	}
	m := &model{name: jobs[0].Model, memory: gpu.MiB(jobs[0].MemoryMiB)}
	m.settle()
	o.Nodes = []gpu.Inventory{m.inventory(4)}
	o.Nodes[0].Host.CPUs = 128 // 28 for each GPU, and a tenth for jobs without one
	if fit := adviceOf(o, jobs).Classes[0].Fit; fit.ByHost == nil || *fit.ByHost != 1 {
		t.Errorf("%+v", fit)
	}
}
