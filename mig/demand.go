package mig

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// PlanDemand finds the best layouts of all GPUs together for the work that
// waits. Idle instances of ours serve it; busy and foreign ones stay as they
// are and do not. Instances that no waiting job wants are kept, unless their room
// is.
func PlanDemand(c *Catalogue, gpus []gpu.MIGGPU, demand []Demand) (Plan, error) {
	bs, err := c.boards(gpus)
	if err != nil {
		return Plan{}, err
	}
	return planBoards(bs, demand)
}

// planBoards plans within the layouts that each board has.
func planBoards(bs []board, demand []Demand) (Plan, error) {
	needs, err := gather(bs, demand)
	if err != nil {
		return Plan{}, err
	}
	search, err := newSearch(bs, needs)
	if err != nil {
		return Plan{}, err
	}
	chosen, proven := search.best()
	plan := Plan{Proven: proven}
	for i, b := range bs {
		plan.GPUs = append(plan.GPUs, b.result(chosen[i]))
		plan.Steps = append(plan.Steps, b.steps(chosen[i])...)
	}
	for _, n := range needs {
		plan.Served = append(plan.Served, n.served(bs, chosen))
	}
	return plan, nil
}

// need is the demand for one profile.
type need struct {
	name string
	// asked is the number of requests, wanted at most as many as the node can have.
	asked, wanted int
	// values of serving so many, from 0 to wanted: weight, then age in seconds.
	values []score
	// places that serve it, on each GPU.
	places []uint64
	// most that one GPU can serve.
	most int
}

// gather merges the demand by profile and values it, the most worth first.
func gather(bs []board, demand []Demand) ([]need, error) {
	var needs []need
	var groups [][]Demand
	for _, d := range demand {
		if d.Count < 0 || d.Weight < 0 || d.Weight > maxWeight || d.Age < 0 || d.Age > maxAge {
			return nil, fmt.Errorf("demand for %s: count %d, weight %d, age %s; "+
				"none may be negative, the weight at most %d, the age at most %s",
				d.Profile, d.Count, d.Weight, d.Age, maxWeight, maxAge)
		}
		i := slices.IndexFunc(needs, func(n need) bool { return n.name == d.Profile })
		if i < 0 {
			n, err := newNeed(bs, d.Profile)
			if err != nil {
				return nil, err
			}
			i, needs, groups = len(needs), append(needs, n), append(groups, nil)
		}
		groups[i] = append(groups[i], d)
	}
	for i := range needs {
		needs[i].value(bs, groups[i])
	}
	return needs, distinct(needs)
}

// newNeed finds the places; a profile that no GPU has is an error.
func newNeed(bs []board, name string) (need, error) {
	n := need{name: name}
	var errs []error
	found := false
	for _, b := range bs {
		p, err := ProfileNamed(b.ls.chip, name)
		if err != nil {
			errs, n.places = append(errs, err), append(n.places, 0)
			continue
		}
		found = true
		n.places = append(n.places, b.ls.of(p.ID)&^b.pinned)
	}
	if !found && len(bs) > 0 {
		return need{}, errs[0]
	}
	return n, nil
}

// distinct: two names of one profile would count its instances twice.
func distinct(needs []need) error {
	for i, n := range needs {
		for _, m := range needs[:i] {
			for g := range n.places {
				if n.places[g]&m.places[g] != 0 {
					return fmt.Errorf("demand names one profile twice, as %s and %s; use one name", m.name, n.name)
				}
			}
		}
	}
	return nil
}

// value sums the worth of serving the first so many.
func (n *need) value(bs []board, group []Demand) {
	slices.SortStableFunc(group, func(a, b Demand) int {
		return cmp.Or(cmp.Compare(max(b.Weight, 1), max(a.Weight, 1)), cmp.Compare(b.Age, a.Age))
	})
	room := 0
	for i, b := range bs {
		most := 0
		for _, e := range b.candidates {
			most = max(most, int(count(e.set&n.places[i])))
		}
		room, n.most = room+most, max(n.most, most)
	}
	n.values = []score{{}}
	for _, d := range group {
		n.asked += d.Count
		for range min(d.Count, room-n.wanted) {
			n.wanted++
			n.values = append(n.values, n.values[n.wanted-1].plus(score{max(d.Weight, 1), int64(d.Age / time.Second)}))
		}
	}
}

func (n need) served(bs []board, chosen []uint64) Served {
	s := Served{Profile: n.name, Wanted: n.asked}
	all := make([]outcome, len(bs))
	for i, b := range bs {
		all[i] = outcome{b, chosen[i], n.places[i]}
		s.Served += int(count(chosen[i] & n.places[i]))
	}
	if s.Served = min(s.Served, s.Wanted); s.Served < s.Wanted {
		s.Why, s.Waits = whyNot(all)
	}
	return s
}

// errTooWide is a demand whose combinations cannot even be numbered.
var errTooWide = errors.New("so many profiles on so many GPUs cannot be planned together; plan fewer GPUs at once")
