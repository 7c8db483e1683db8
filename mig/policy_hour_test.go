package mig_test

import (
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// TestPolicyHourPasses: a GPU that has had its changes of the hour is changed again when the
// hour is over. The pond sees to it that it is not before.
func TestPolicyHourPasses(t *testing.T) {
	rules := auto()
	rules.PerHour, rules.Reservations = 1, 0
	p := newPond(t, rules, gpu.MIGGPU{UUID: "GPU-00000000-0000-0000-0000-000000000000", Chip: classic(t)})
	for _, profile := range []string{"3g.20gb", "7g.40gb", "4g.20gb"} {
		for range 62 {
			p.look(mig.Demand{Profile: profile, Count: 1})
		}
		if l := p.gpus[0].Chip.Format(p.gpus[0].Layout()); l[:len(profile)] != profile {
			t.Errorf("%s is wanted, there is %s: %s", profile, l, p.last.Why)
		}
	}
}

// TestPolicyReservesAgain: room that was given up is kept again after as long.
func TestPolicyReservesAgain(t *testing.T) {
	rules := auto()
	rules.ReserveFor = 30 * time.Minute
	p := newPond(t, rules, busyNode(t, 0, 1, 2, 3, 5))
	begins, had := 0, false
	for range 100 {
		has := len(p.look(mig.Demand{Profile: "3g.20gb", Count: 1, Age: 2 * time.Hour}).Reserved) > 0
		if has && !had {
			begins++
		}
		had = has
	}
	if begins != 2 {
		t.Errorf("reserved %d times in 100 minutes, want twice for 30", begins)
	}
}

// TestPolicyCountsWhatItMakes: what idle instances serve anyway is no gain of a change.
func TestPolicyCountsWhatItMakes(t *testing.T) {
	g := busyNode(t)
	three, err := mig.ProfileNamed(g.Chip, "3g.20gb")
	if err != nil {
		t.Fatal(err)
	}
	g.Instances = []gpu.Instance{{Place: gpu.Place{Profile: three.ID, Start: 4}, Size: 4, ID: 1, Owner: gpu.Ours}}
	p := newPond(t, auto(), g)
	for range 2 {
		p.look(mig.Demand{Profile: "3g.20gb", Count: 2})
	}
	if want := "serves 1 of 3g.20gb more: GPU 0: create 3g.20gb@0"; p.last.Why != want {
		t.Errorf("%s, want %s", p.last.Why, want)
	}
}

// TestPolicyReservesForWhatStays: no room is kept for work that one look has seen, however
// long it says that it has waited.
func TestPolicyReservesForWhatStays(t *testing.T) {
	two, three := mig.Demand{Profile: "2g.10gb", Count: 1}, mig.Demand{Profile: "3g.20gb", Count: 1, Age: 2 * time.Hour}
	p := newPond(t, auto(), busyNode(t, 0, 1, 2, 3, 4, 5, 6))
	p.look(two)
	p.look(two)
	for looks := range 2 {
		if d := p.look(two, three); len(d.Reserved) != looks {
			t.Errorf("%d reserved after %d looks: %s", len(d.Reserved), 1+looks, d.Why)
		}
	}
}
