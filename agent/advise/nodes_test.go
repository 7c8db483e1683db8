package advise

import (
	"fmt"
	"slices"
	"strings"
	"testing"

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
