package mig

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// TestBestOfNode: on nodes too large to try everything, the plan scores as the
// search does that leaves nothing out and uses no bound.
func TestBestOfNode(t *testing.T) {
	chip, err := Model("A30-24", 0)
	if err != nil {
		t.Fatal(err)
	}
	var catalogue Catalogue
	rapid.Check(t, func(t *rapid.T) {
		node := make([]GPU, rapid.IntRange(3, 6).Draw(t, "gpus"))
		for i := range node {
			node[i] = GPU{Index: i, Chip: chip}
			if rapid.IntRange(0, 2).Draw(t, "busy") == 0 {
				at := Place{14, rapid.IntRange(0, 3).Draw(t, "at")}
				node[i].Instances = []Instance{{Place: at, Owner: Foreign}}
			}
		}
		var ds []Demand
		for _, p := range chip.Profiles {
			ds = append(ds, Demand{Profile: p.Name, Count: rapid.IntRange(0, 6).Draw(t, p.Name), Weight: int64(rapid.IntRange(1, 7).Draw(t, "weight"))})
		}
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
		chosen, sure := s.best()
		all := &walk{search: s, width: math.MaxInt}
		want := all.run(s.start(), s.counts()).total
		if got := s.scoreOf(chosen); got != want || !sure.plan {
			t.Fatalf("score %v, want %v; sure %+v", got, want, sure)
		}
	})
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
