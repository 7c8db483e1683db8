package mig

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// TestPricesBound: at the prices that are found, no plan is worth more than the bound, and
// the best plan is mostly worth all of it. Without that a search is exact but long.
func TestPricesBound(t *testing.T) {
	exact, all := [3]int{}, 0
	for _, model := range []string{"A100-40", "A30-24", "RTXPRO6000-96"} {
		for seed := range uint64(10) {
			all++
			s := pricedSearch(t, model, seed)
			chosen, _ := s.best()
			score := s.scoreOf(chosen)
			bound, plan := s.bound(s.prices, make([]int, len(s.needs))), worth{score[0] * fraction, score[1] * fraction, s.rest(score)}
			if bound.below(plan) {
				t.Errorf("%s, seed %d: the bound %v is below the plan %v", model, seed, bound, plan)
			}
			if 100*bound.value > 104*plan.value {
				t.Errorf("%s, seed %d: the bound %v is far above the plan %v", model, seed, bound, plan)
			}
			same := worth{plan.value - bound.value, plan.age - bound.age, plan.rest - bound.rest}
			for level := range exact {
				if *same.level(level) != 0 {
					break
				}
				exact[level]++
			}
		}
	}
	if exact[0] < all*2/3 || exact[1] < all*2/3 || exact[2] < all/4 {
		t.Errorf("of %d bounds %v are exact in worth, in age too, and in all", all, exact)
	}
}

// pricedSearch is of four empty GPUs with a demand for every profile of about what they hold.
func pricedSearch(t *testing.T, model string, seed uint64) *search {
	t.Helper()
	chip, err := Model(model, 0)
	if err != nil {
		t.Fatal(err)
	}
	const gpus = 4
	var node []gpu.MIGGPU
	for i := range gpus {
		node = append(node, gpu.MIGGPU{Index: i, Chip: chip})
	}
	r := rand.New(rand.NewPCG(seed, 1))
	var demand []Demand
	for _, p := range chip.Profiles {
		demand = append(demand, Demand{Profile: p.Name, Count: r.IntN(2 + 2*p.Max*gpus/len(chip.Profiles)),
			Weight: 1 + int64(r.IntN(40)+p.Slices*r.IntN(40)), Age: time.Duration(r.IntN(3)*r.IntN(500)) * time.Second})
	}
	var catalogue Catalogue
	bs, err := catalogue.boards(node)
	if err != nil {
		t.Fatal(err)
	}
	needs, err := gather(bs, demand)
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSearch(bs, needs)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
