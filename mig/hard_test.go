package mig_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/mig"
)

// hardNode is 16 GPUs in so many states, idle and foreign instances in each; 0:
// all are empty.
func hardNode(j *judge, states int, r *rand.Rand) (node []mig.GPU) {
	for i := range 16 {
		g := mig.GPU{Index: i, Chip: j.chip}
		if states > 0 && i >= states {
			g.Instances = node[i-states].Instances
		} else if states > 0 {
			for k, p := range j.all[r.IntN(len(j.all))] {
				in := mig.Instance{Place: p, ID: k + 1, Owner: mig.Ours}
				if r.IntN(3) == 0 {
					in.Owner = mig.Foreign
				}
				g.Instances = append(g.Instances, in)
			}
		}
		node = append(node, g)
	}
	return node
}

// hardDemand asks for all profiles, together about as much as 16 GPUs hold, with
// weights that nothing divides and ages that break their ties.
func hardDemand(c mig.Chip, r *rand.Rand) (ds []mig.Demand) {
	top := []int{3, 8, 40, 1000}[r.IntN(4)]
	for _, p := range c.Profiles {
		ds = append(ds, mig.Demand{
			Profile: p.Name,
			Count:   r.IntN(2 + 2*p.Max*16/len(c.Profiles)),
			Weight:  1 + int64(r.IntN(top)) + int64(p.Slices*r.IntN(top)),
			Age:     time.Duration(r.IntN(3)*r.IntN(500)) * time.Second,
		})
	}
	return ds
}

// TestHardDemandsProven: no demand on 16 GPUs of any model, empty or in several
// states, is too hard to prove its plan the best.
func TestHardDemandsProven(t *testing.T) {
	var catalogue mig.Catalogue
	judges := map[string]*judge{}
	prove := func(model string, states int, seed uint64) {
		if judges[model] == nil {
			judges[model] = newJudge(t, chip(t, model))
		}
		r := rand.New(rand.NewPCG(seed, 7))
		p, err := mig.PlanDemand(&catalogue, hardNode(judges[model], states, r), hardDemand(judges[model].chip, r))
		if err != nil || !p.Proven {
			t.Errorf("%s, %d states, seed %d: proven %t: %v", model, states, seed, p.Proven, err)
		}
	}
	prove("A100-80GB", 2, 0x158727) // takes more than 2,000 boxes
	models := mig.Models()
	for range 50 {
		prove(models[rand.IntN(len(models))], []int{0, 1, 2, 4, 16}[rand.IntN(5)], rand.Uint64())
	}
}
