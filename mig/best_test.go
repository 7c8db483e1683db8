package mig

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gpuslot/gpuslot/gpu"
)

// reference is the best score of all, found in the plainest way: GPU after
// GPU, the best local score for every number served. It knows no kinds of GPUs,
// no bound and no prices.
func reference(bs []board, needs []need) (best score) {
	reached := map[[8]int]score{{}: {}}
	for g, b := range bs {
		gives := map[[8]int]score{}
		for _, e := range b.candidates {
			var n [8]int
			for k, need := range needs {
				n[k] = int(count(e.set & need.places[g]))
			}
			keep(gives, n, b.local(e))
		}
		next := map[[8]int]score{}
		for had, local := range reached {
			for more, s := range gives {
				n := had
				for k, need := range needs {
					n[k] = min(had[k]+more[k], need.wanted)
				}
				keep(next, n, local.plus(s))
			}
		}
		reached = next
	}
	first := true
	for n, v := range reached {
		for k, need := range needs {
			v = v.plus(need.values[n[k]])
		}
		if first || v.compare(best) > 0 {
			best, first = v, false
		}
	}
	return best
}

func keep(all map[[8]int]score, n [8]int, s score) {
	if old, known := all[n]; !known || s.compare(old) > 0 {
		all[n] = s
	}
}

// checkBest: the layouts chosen score as the reference, and the search knows it.
func checkBest(t interface{ Fatal(...any) }, catalogue *Catalogue, node []gpu.MIGGPU, ds []Demand) {
	bs, err := catalogue.boards(node)
	if err != nil {
		t.Fatal(err)
	}
	needs, err := gather(bs, ds)
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSearch(bs, needs)
	if err != nil {
		t.Fatal(err)
	}
	chosen, proven := s.best()
	if got, want := s.scoreOf(chosen), reference(bs, needs); got != want || !proven {
		t.Fatal(fmt.Sprintf("score %v, want %v; proven %t", got, want, proven))
	}
}

func (s *search) scoreOf(chosen []uint64) (v score) {
	for i, b := range s.boards {
		v = v.plus(b.local(b.ls.all[b.ls.index[chosen[i]]]))
	}
	for _, n := range s.needs {
		served := 0
		for i := range chosen {
			served += int(count(chosen[i] & n.places[i]))
		}
		v = v.plus(n.values[min(served, n.wanted)])
	}
	return v
}

// TestBestOfKept: foreign instances on half of the GPUs, and more demand than room.
func TestBestOfKept(t *testing.T) {
	chip, err := Model("A30-24", 0)
	if err != nil {
		t.Fatal(err)
	}
	node := make([]gpu.MIGGPU, 6)
	for i := range node {
		node[i] = gpu.MIGGPU{Index: i, Chip: chip}
		if i == 1 || i == 2 || i == 5 {
			node[i].Instances = []gpu.Instance{{Place: gpu.Place{Profile: 14, Start: 0}, Owner: gpu.Foreign}}
		}
	}
	checkBest(t, &Catalogue{}, node, []Demand{
		{Profile: "1g.6gb", Count: 6, Weight: 6}, {Profile: "1g.6gb+me", Count: 2, Weight: 2}, {Profile: "2g.12gb", Count: 5},
		{Profile: "2g.12gb+me", Count: 5, Weight: 4}, {Profile: "4g.24gb", Count: 6, Weight: 5},
	})
}

// TestBestOfNode: on nodes of every model, too large to try everything, in any
// state, the plan is the best.
func TestBestOfNode(t *testing.T) {
	for _, model := range Models() {
		t.Run(model, func(t *testing.T) {
			t.Parallel()
			chip, err := Model(model, 0)
			if err != nil {
				t.Fatal(err)
			}
			var catalogue Catalogue
			rapid.Check(t, func(t *rapid.T) {
				checkBest(t, &catalogue, drawNode(t, &catalogue, chip), drawDemands(t, chip))
			})
		})
	}
}

// drawNode has up to four GPUs, often some in equal state.
func drawNode(t *rapid.T, c *Catalogue, chip gpu.Chip) []gpu.MIGGPU {
	ls, err := c.Layouts(chip)
	if err != nil {
		t.Fatal(err)
	}
	node := make([]gpu.MIGGPU, rapid.IntRange(2, 4).Draw(t, "gpus"))
	for i := range node {
		node[i] = gpu.MIGGPU{Index: i, Chip: chip}
		if i > 0 && rapid.Bool().Draw(t, "like the last") {
			node[i].Instances = node[i-1].Instances
			continue
		}
		for _, p := range ls.layout(rapid.SampledFrom(ls.all).Draw(t, "layout").set) {
			owner := gpu.Ours
			if rapid.Bool().Draw(t, "foreign") {
				owner = gpu.Foreign
			}
			node[i].Instances = append(node[i].Instances, gpu.Instance{Place: p, Owner: owner})
		}
	}
	return node
}

// drawDemands asks for up to four profiles, sparsely enough for the reference.
func drawDemands(t *rapid.T, chip gpu.Chip) (ds []Demand) {
	top := rapid.SampledFrom([]int64{3, 17, maxWeight}).Draw(t, "top weight")
	for _, p := range rapid.Permutation(chip.Profiles).Draw(t, "profiles")[:rapid.IntRange(1, min(4, len(chip.Profiles))).Draw(t, "kinds")] {
		for range rapid.IntRange(1, 2).Draw(t, "groups") {
			ds = append(ds, Demand{
				Profile: p.Name, Count: rapid.IntRange(0, 3).Draw(t, "count"),
				Weight: rapid.Int64Range(0, top).Draw(t, "weight"),
				Age:    time.Duration(rapid.IntRange(0, 3).Draw(t, "age")) * 977 * time.Second,
			})
		}
	}
	return ds
}
