package mig_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// What work has waited long for is not taken away at the moment it becomes free,
// though three small jobs are worth more than one: it would wait for as long again.
func TestPolicySparesWhatIsWaitedFor(t *testing.T) {
	for _, tt := range []struct {
		name  string
		waits time.Duration
		act   mig.Act
	}{
		{"long", 90 * time.Minute, mig.Nothing},
		{"a little", 30 * time.Minute, mig.Replan},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rules := auto()
			rules.Reservations = 0
			g := busyNode(t, 0, 1, 2, 3)
			three, err := mig.ProfileNamed(g.Chip, "3g.20gb")
			if err != nil {
				t.Fatal(err)
			}
			at := gpu.Place{Profile: three.ID, Start: 4}
			g.Instances = append(g.Instances[:4], gpu.Instance{Place: at, Size: 4, ID: 1, Owner: gpu.Ours, Holders: []gpu.Holder{{Slot: "slot1_4"}}})
			p := newPond(t, rules, g)
			p.ends[key(0, at)] = morning.Add(tt.waits)
			for p.now.Sub(morning) < tt.waits {
				p.look(mig.Demand{Profile: "3g.20gb", Count: 1}, mig.Demand{Profile: "1g.5gb", Count: 3})
			}
			if p.last.Act != tt.act {
				t.Errorf("%s: %s, want %s", p.last.Act, p.last.Why, tt.act)
			}
		})
	}
}

// TestPolicySparesAll: two idle devices that two jobs have waited for long are both spared.
func TestPolicySparesAll(t *testing.T) {
	const waits = 90 * time.Minute
	rules := auto()
	rules.Reservations = 0
	g := busyNode(t, 0)
	three, err := mig.ProfileNamed(g.Chip, "3g.20gb")
	if err != nil {
		t.Fatal(err)
	}
	g.Instances = nil
	for i, start := range []int{0, 4} {
		g.Instances = append(g.Instances, gpu.Instance{Place: gpu.Place{Profile: three.ID, Start: start}, Size: 4, ID: 1 + i,
			Owner: gpu.Ours, Holders: []gpu.Holder{{Slot: fmt.Sprintf("slot1_%d", 1+i)}}})
	}
	p := newPond(t, rules, g)
	for _, i := range g.Instances {
		p.ends[key(0, i.Place)] = morning.Add(waits)
	}
	for p.now.Sub(morning) < waits {
		p.look(mig.Demand{Profile: "3g.20gb", Count: 2}, mig.Demand{Profile: "1g.5gb", Count: 7})
	}
	if p.last.Act != mig.Nothing {
		t.Errorf("%s: %s, want nothing", p.last.Act, p.last.Why)
	}
}

// What was just made for work that waits is not kept free for other work that has
// waited as long, before the first could be matched: neither would get it. Found by
// gpuslot simulate, where looks come before negotiations.
func TestPolicyLeavesWhatItMadeToItsWork(t *testing.T) {
	g := busyNode(t, 0)
	whole, ok := g.Chip.Whole()
	if !ok {
		t.Fatal("the chip has no full profile")
	}
	at := gpu.Place{Profile: whole.ID, Start: 0}
	g.Instances = []gpu.Instance{{Place: at, Size: 8, ID: 1, Owner: gpu.Ours}}
	rules := auto()
	p := newPond(t, rules, g)
	for p.now.Sub(morning) < rules.Dwell {
		d := p.look(mig.Demand{Profile: whole.Name, Count: 1, Age: 90 * time.Minute}, mig.Demand{Profile: "1g.5gb", Count: 700, Age: 90 * time.Minute})
		if len(d.Reserved) > 0 {
			t.Fatalf("%s after %s: %s", d.Act, p.now.Sub(morning), d.Why)
		}
	}
}

// TestPolicyReservationLimit: no more room is kept than the rules allow, however much work starves.
func TestPolicyReservationLimit(t *testing.T) {
	for most := range 3 {
		rules := auto()
		rules.Reservations = most
		g, other := busyNode(t, 0, 1, 2, 3, 4, 5, 6), busyNode(t, 0, 1, 2, 3, 4, 5, 6)
		other.Index, other.UUID = 1, "GPU-00000001-0000-0000-0000-000000000000"
		p := newPond(t, rules, g, other)
		for range 10 {
			p.look(mig.Demand{Profile: "3g.20gb", Count: 1, Age: 2 * time.Hour}, mig.Demand{Profile: "2g.10gb", Count: 1, Age: 2 * time.Hour})
		}
		if n := len(p.past.Reservations); n != most {
			t.Errorf("%d reservations, %d are allowed: %s", n, most, p.last.Why)
		}
	}
}
