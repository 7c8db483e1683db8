package mig_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// hardNode is so many GPUs in so many states, idle and foreign instances in each; with
// 0 states all are empty.
func hardNode(j *judge, gpus, states int, r *rand.Rand) (node []gpu.MIGGPU) {
	for i := range gpus {
		g := gpu.MIGGPU{Index: i, Chip: j.chip}
		if states > 0 && i >= states {
			g.Instances = node[i-states].Instances
		} else if states > 0 {
			for k, p := range j.all[r.IntN(len(j.all))] {
				in := gpu.Instance{Place: p, ID: k + 1, Owner: gpu.Ours}
				if r.IntN(3) == 0 {
					in.Owner = gpu.Foreign
				}
				g.Instances = append(g.Instances, in)
			}
		}
		node = append(node, g)
	}
	return node
}

// hardDemand asks for all profiles, together about as much as the GPUs hold, with
// weights that nothing divides and ages that break their ties.
func hardDemand(c gpu.Chip, gpus int, r *rand.Rand) (ds []mig.Demand) {
	top := []int{3, 8, 40, 1000}[r.IntN(4)]
	for _, p := range c.Profiles {
		ds = append(ds, mig.Demand{
			Profile: p.Name,
			Count:   r.IntN(2 + 2*p.Max*gpus/len(c.Profiles)),
			Weight:  1 + int64(r.IntN(top)) + int64(p.Slices*r.IntN(top)),
			Age:     time.Duration(r.IntN(3)*r.IntN(500)) * time.Second,
		})
	}
	return ds
}

// TestHardDemandsProven: no demand on 8 GPUs of any model, empty or in several states, is
// too hard to prove its plan the best.
func TestHardDemandsProven(t *testing.T) {
	var catalogue mig.Catalogue
	judges := map[string]*judge{}
	prove := func(model string, states int, seed uint64) {
		if judges[model] == nil {
			judges[model] = newJudge(t, chip(t, model))
		}
		r := rand.New(rand.NewPCG(seed, 7))
		p, err := mig.PlanDemand(&catalogue, hardNode(judges[model], 8, states, r), hardDemand(judges[model].chip, 8, r))
		if err != nil || !p.Proven {
			t.Errorf("%s, %d states, seed %d: proven %t: %v", model, states, seed, p.Proven, err)
		}
	}
	prove("A100-80GB", 2, 0x158727)
	prove("RTXPRO6000-96GB", 0, 15441002417719836225)
	models := mig.Models()
	for range 50 {
		prove(models[rand.IntN(len(models))], []int{0, 1, 2, 4, 8}[rand.IntN(5)], rand.Uint64())
	}
}

// TestMoreThanProven: 16 empty GPUs with a demand whose plan cannot be proven are planned all the same, and say so. The
// plan is no worse than that of half of them with half of the demand, which is proven, made twice.
func TestMoreThanProven(t *testing.T) {
	var catalogue mig.Catalogue
	j := newJudge(t, chip(t, "RTXPRO6000-96GB"))
	served := func(gpus int, ds []mig.Demand) (worth int64, proven bool) {
		p, err := mig.PlanDemand(&catalogue, hardNode(j, gpus, 0, nil), ds)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range p.Served {
			worth += int64(s.Served) * ds[i].Weight
		}
		return worth, p.Proven
	}
	for _, seed := range []uint64{1, 2} {
		half := hardDemand(j.chip, 8, rand.New(rand.NewPCG(seed, 7)))
		demand := slices.Clone(half)
		for i := range demand {
			demand[i].Count *= 2
		}
		eight, proven := served(8, half)
		if !proven {
			t.Errorf("seed %d: the plan of 8 GPUs is not proven", seed)
		}
		sixteen, proven := served(16, demand)
		if proven || sixteen < 2*eight {
			t.Errorf("seed %d: 16 GPUs serve a worth of %d, proven %t, 8 GPUs half of the demand with %d", seed, sixteen, proven, eight)
		}
	}
}
