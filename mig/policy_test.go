package mig_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

func TestPolicyKeepsItsPromises(t *testing.T) {
	j := newJudge(t, classic(t))
	total := 0
	rapid.Check(t, func(t *rapid.T) {
		r := auto()
		r.Samples = rapid.IntRange(1, 3).Draw(t, "samples")
		r.PerHour = rapid.IntRange(1, 6).Draw(t, "per hour")
		r.Dwell = time.Duration(rapid.IntRange(0, 15).Draw(t, "dwell")) * time.Minute
		r.ReserveAfter = time.Duration(rapid.IntRange(0, 20).Draw(t, "reserve after")) * time.Minute
		r.ReserveFor = time.Duration(rapid.IntRange(0, 60).Draw(t, "reserve for")) * time.Minute
		r.Reservations = rapid.IntRange(0, 2).Draw(t, "reservations")
		p := newPond(t, r, drawGPU(t, j, 0), drawGPU(t, j, 1))
		var demand []mig.Demand
		for range 60 {
			if rapid.IntRange(0, 3).Draw(t, "new demand") == 0 {
				demand = drawDemand(t, j.chip, 4)
			}
			d := p.look(demand...)
			if d.Act == mig.Propose {
				t.Fatal("auto does not propose")
			}
			total += len(d.Reserved)
			if rapid.Bool().Draw(t, "jobs start") {
				p.fill(0, func() time.Duration { return time.Duration(rapid.IntRange(1, 90).Draw(t, "minutes")) * time.Minute })
			}
			for _, r := range d.Reserved {
				keepsNoForeign(t, p, r)
			}
		}
	})
	if total == 0 {
		t.Error("nothing was ever reserved")
	}
}

func keepsNoForeign(t *rapid.T, p *pond, r mig.Reservation) {
	for _, g := range p.gpus {
		for _, in := range g.Instances {
			if g.UUID == r.GPU && r.Keep.Contains(in.Place) && in.Owner != gpu.Ours {
				t.Fatalf("%s is reserved, but not ours", g.Chip.FormatPlace(in.Place))
			}
		}
	}
}

// Demand that comes and goes from look to look changes nothing, and one that
// swings slowly destroys no more than the dwell allows.
func TestPolicyDoesNotOscillate(t *testing.T) {
	c := classic(t)
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.SampledFrom(c.Profiles).Draw(t, "a"), rapid.SampledFrom(c.Profiles).Draw(t, "b")
		if a.ID == b.ID {
			t.Skip("one profile")
		}
		period := rapid.IntRange(1, 12).Draw(t, "period")
		r := auto()
		p := newPond(t, r, gpu.MIGGPU{UUID: "GPU-00000000-0000-0000-0000-000000000000", Chip: c})
		const looks = 240
		changes := 0
		for i := range looks {
			now := a
			if i/period%2 == 1 {
				now = b
			}
			if p.look(mig.Demand{Profile: now.Name, Count: 1 + i%3}).Act == mig.Replan {
				changes++
			}
		}
		if period < r.Samples && changes > 0 {
			t.Errorf("%d changes for demand that was never there in %d looks in a row", changes, r.Samples)
		}
		if most := looks / int(r.Dwell/time.Minute); p.destroyed > most*c.Units() {
			t.Errorf("%d instances destroyed", p.destroyed)
		}
		if most := r.PerHour * looks / 60; changes > most {
			t.Errorf("%d changes in %d minutes, at most %d", changes, looks, most)
		}
	})
}

// A demand that stays is served in the end, although every idle instance that is not
// reserved is taken by somebody else at once.
func TestPolicyServesWhatPersists(t *testing.T) {
	j := newJudge(t, classic(t))
	waited := 0
	rapid.Check(t, func(t *rapid.T) {
		g := drawGPU(t, j, 0)
		wanted := rapid.SampledFrom(j.chip.Profiles).Draw(t, "wanted")
		if !canHave(j, g, wanted.ID) {
			t.Skip("foreign instances bar it for ever")
		}
		p := newPond(t, auto(), g)
		for i := range p.gpus[0].Instances {
			if in := &p.gpus[0].Instances[i]; in.Owner == gpu.Ours && in.Busy() {
				p.ends[key(0, in.Place)] = p.now.Add(time.Duration(rapid.IntRange(1, 200).Draw(t, "first minutes")) * time.Minute)
			}
		}
		other := rapid.SampledFrom(j.chip.Profiles).Draw(t, "other")
		// Its turn may come after one of the other's, each waiting for jobs to end.
		limit := p.rules.ReserveAfter + 2*(200*time.Minute+p.rules.Dwell) + time.Hour + 10*time.Minute
		for p.now.Sub(morning) < limit {
			if p.fill(wanted.ID, func() time.Duration { return time.Duration(rapid.IntRange(1, 200).Draw(t, "minutes")) * time.Minute }) > 0 {
				return
			}
			d := p.look(mig.Demand{Profile: wanted.Name, Count: 1}, mig.Demand{Profile: other.Name, Count: 3})
			if len(d.Reserved) > 0 {
				waited++
			}
		}
		t.Errorf("%s was not served within %s: %s", wanted.Name, limit, p.last.Why)
	})
	if waited == 0 {
		t.Error("no case needed a reservation")
	}
}

// canHave: foreign instances leave room for one of ours.
func canHave(j *judge, g gpu.MIGGPU, id gpu.ProfileID) bool {
	var foreign gpu.Layout
	for _, in := range g.Instances {
		if in.Owner != gpu.Ours {
			foreign = append(foreign, in.Place)
		}
	}
	foreign = gpu.NewLayout(foreign...)
	return slices.ContainsFunc(j.all, func(l gpu.Layout) bool {
		return len(foreign.Without(l)) == 0 && number(l.Without(foreign), id) > 0
	})
}

// A reservation ends when its demand goes, and when no job ends for too long.
func TestPolicyReservationEnds(t *testing.T) {
	j := newJudge(t, classic(t))
	rapid.Check(t, func(t *rapid.T) {
		rules := auto()
		rules.ReserveFor = 2 * time.Hour
		p := newPond(t, rules, drawGPU(t, j, 0))
		wanted := mig.Demand{Profile: rapid.SampledFrom(j.chip.Profiles).Draw(t, "wanted").Name, Count: 1, Age: 2 * time.Hour}
		for range 3 {
			p.look(wanted)
		}
		if len(p.last.Reserved) == 0 {
			t.Skip("no need")
		}
		goes := *p
		if d := goes.look(); len(d.Reserved) > 0 {
			t.Errorf("still reserved without demand: %s", d.Why)
		}
		ended := false
		for end := p.now.Add(p.rules.ReserveFor + 2*time.Minute); p.now.Before(end); {
			ended = len(p.look(wanted).Reserved) == 0 || ended
		}
		if !ended {
			t.Errorf("reserved for %s and more: %s", p.rules.ReserveFor, p.last.Why)
		}
	})
}

// busyNode is a GPU of seven 1g, some in use.
func busyNode(t testing.TB, busy ...int) gpu.MIGGPU {
	c := classic(t)
	p, err := mig.ProfileNamed(c, "1g.5gb")
	if err != nil {
		t.Fatal(err)
	}
	g := gpu.MIGGPU{UUID: "GPU-00000000-0000-0000-0000-000000000000", Chip: c}
	for start := range 7 {
		in := gpu.Instance{Place: gpu.Place{Profile: p.ID, Start: start}, Size: 1, ID: 7 + start, Owner: gpu.Ours}
		if slices.Contains(busy, start) {
			in.Holders = []gpu.Holder{{Slot: fmt.Sprintf("slot1_%d", start)}}
		}
		g.Instances = append(g.Instances, in)
	}
	return g
}

// What each mode says of one wait: four idle 1g make a 3g; a busy one in the
// way is waited for.
func TestPolicyModes(t *testing.T) {
	three := mig.Demand{Profile: "3g.20gb", Count: 1, Age: 2 * time.Hour}
	for _, tt := range []struct {
		name string
		mode mig.Repartition
		busy []int
		act  mig.Act
		why  string
	}{
		{"static", mig.Static, []int{0, 1, 2, 3}, mig.Nothing, "repartition is static"},
		{"suggest fusion", mig.Suggest, []int{0, 1, 2, 3}, mig.Propose, "auto would serve 1 of 3g.20gb more: GPU 0: destroy 1g.5gb@4,1g.5gb@5,1g.5gb@6, create 3g.20gb@4"},
		{"fusion", mig.Auto, []int{0, 1, 2, 3}, mig.Replan, "serves 1 of 3g.20gb more: GPU 0: destroy 1g.5gb@4,1g.5gb@5,1g.5gb@6, create 3g.20gb@4"},
		{"wait", mig.Auto, []int{0, 1, 2, 3, 5}, mig.Reserve, "3g.20gb@4 on GPU 0 is for 3g.20gb, which waited at 2026-03-01T06:14:00Z; idle, kept free for it: 1g.5gb@4, 1g.5gb@6; 1g.5gb@5 is used by slot1_5"},
		{"suggest waiting", mig.Suggest, []int{0, 1, 2, 3, 5}, mig.Propose, "auto would wait: 3g.20gb@4 on GPU 0 is for 3g.20gb, which waited at 2026-03-01T06:14:00Z; idle, kept free for it: 1g.5gb@4, 1g.5gb@6; 1g.5gb@5 is used by slot1_5"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := auto()
			r.Repartition = tt.mode
			p := newPond(t, r, busyNode(t, tt.busy...))
			for range 12 {
				p.look()
			}
			p.look(three)
			if tt.mode == mig.Auto && p.last.Act != mig.Nothing {
				t.Errorf("acts on one look: %s", p.last.Why)
			}
			if tt.act == mig.Replan || tt.mode == mig.Suggest {
				p.look(three)
			} else {
				p.look(three)
				p.look(three)
			}
			if p.last.Act != tt.act || p.last.Why != tt.why {
				t.Errorf("%s: %s\nwant %s: %s", p.last.Act, p.last.Why, tt.act, tt.why)
			}
			if tt.mode != mig.Auto && (len(p.last.Reserved) > 0 || len(p.past.Reservations) > 0 || len(p.past.Changed) > 0) {
				t.Errorf("%s remembers what it did not do: %+v", tt.mode, p.past)
			}
		})
	}
}

// A reservation is fulfilled when the last job in its way ends, and then forgotten.
func TestPolicyFusesWhenFree(t *testing.T) {
	three := mig.Demand{Profile: "3g.20gb", Count: 1, Age: 2 * time.Hour}
	p := newPond(t, auto(), busyNode(t, 0, 1, 2, 3, 5))
	for range 12 {
		p.look(three)
	}
	if p.last.Act != mig.Reserve || p.last.Reserved[0].Busy != 1 {
		t.Fatalf("%s: %s", p.last.Act, p.last.Why)
	}
	p.gpus[0].Instances[5].Holders = nil
	d := p.look(three)
	if d.Act != mig.Replan || len(d.Reserved) > 0 {
		t.Fatalf("%s: %s", d.Act, d.Why)
	}
	if got := p.gpus[0].Chip.Format(p.gpus[0].Layout()); got != "1g.5gb@0,1g.5gb@1,1g.5gb@2,1g.5gb@3,3g.20gb@4" {
		t.Error(got)
	}
}

// The past survives a restart of the agent as JSON; a profile that nobody has is told if a job wants it.
func TestPolicyPastAsJSON(t *testing.T) {
	p := newPond(t, auto(), busyNode(t, 0, 1, 2, 3, 5))
	for range 5 {
		p.look(mig.Demand{Profile: "8g.88gb"}, mig.Demand{Profile: "9g.99gb", Count: 1}, mig.Demand{Profile: "3g.20gb", Count: 1, Age: 2 * time.Hour})
	}
	if p.last.Act != mig.Reserve || !strings.Contains(p.last.Why, "9g.99gb is a profile of no GPU here") || strings.Contains(p.last.Why, "8g.88gb") {
		t.Error(p.last.Why)
	}
	b, err := json.Marshal(p.past)
	if err != nil {
		t.Fatal(err)
	}
	var again mig.Past
	if err := json.Unmarshal(b, &again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p.past, again); diff != "" {
		t.Error(diff)
	}
}

func TestRulesCheck(t *testing.T) {
	for _, tt := range []struct {
		change func(*mig.Rules)
		want   string
	}{
		{func(r *mig.Rules) { r.Repartition = "always" }, `repartition "always": it is static, suggest or auto`},
		{func(r *mig.Rules) { r.Samples = 0 }, "samples 0"},
		{func(r *mig.Rules) { r.PerHour = 0 }, "changes per hour 0"},
		{func(r *mig.Rules) { r.Reservations = -1 }, "reservations -1"},
		{func(r *mig.Rules) { r.Dwell = -time.Second }, "-1s: no time of a rule can be negative"},
	} {
		r := mig.DefaultRules()
		tt.change(&r)
		if _, _, err := mig.Decide(&mig.Catalogue{}, r, mig.Past{}, mig.Sight{}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want %s", err, tt.want)
		}
	}
	r := mig.DefaultRules()
	if _, _, err := mig.Decide(&mig.Catalogue{}, r, mig.Past{}, mig.Sight{}); err != nil {
		t.Error(err)
	}
	if most := int(time.Hour / r.Dwell); r.PerHour != most {
		t.Errorf("%d changes in an hour, of which %s of dwell let at most %d happen", r.PerHour, r.Dwell, most)
	}
}

// without removes the instances at some starts.
func without(g gpu.MIGGPU, starts ...int) gpu.MIGGPU {
	g.Instances = slices.DeleteFunc(g.Instances, func(in gpu.Instance) bool { return slices.Contains(starts, in.Start) })
	return g
}

// What is reserved serves nobody else, neither its idle instances nor its free room;
// room beside it does.
func TestPolicyReservedRoom(t *testing.T) {
	three, one := mig.Demand{Profile: "3g.20gb", Count: 1, Age: 2 * time.Hour}, mig.Demand{Profile: "1g.5gb", Count: 1}
	for _, tt := range []struct {
		free []int
		act  mig.Act
		want string
	}{
		{[]int{6}, mig.Reserve, "1g.5gb@0,1g.5gb@1,1g.5gb@2,1g.5gb@3,1g.5gb@4,1g.5gb@5"},
		{[]int{3}, mig.Replan, "1g.5gb@0,1g.5gb@1,1g.5gb@2,1g.5gb@3,1g.5gb@4,1g.5gb@5,1g.5gb@6"},
	} {
		p := newPond(t, auto(), without(busyNode(t, 0, 1, 2, 3, 5), tt.free...))
		for range 12 {
			p.look(three)
		}
		if len(p.last.Reserved) != 1 || p.last.Reserved[0].Place.Start != 4 {
			t.Fatalf("%v: %s", tt.free, p.last.Why)
		}
		p.look(three, one)
		if n := p.past.Unmet[len(p.past.Unmet)-1]; n.String() != "1 of 1g.5gb, 1 of 3g.20gb" {
			t.Errorf("%v: missing %s", tt.free, n)
		}
		d := p.look(three, one)
		if got := p.gpus[0].Chip.Format(p.gpus[0].Layout()); d.Act != tt.act || got != tt.want {
			t.Errorf("%v: %s, %s: %s", tt.free, d.Act, got, d.Why)
		}
	}
}

// Work whose own kind of instance exists waits its turn; nothing is reserved.
func TestPolicyWaitsItsTurn(t *testing.T) {
	g := without(busyNode(t, 0, 1, 2, 3), 4, 5, 6)
	three, err := mig.ProfileNamed(g.Chip, "3g.20gb")
	if err != nil {
		t.Fatal(err)
	}
	g.Instances = append(g.Instances, gpu.Instance{Place: gpu.Place{Profile: three.ID, Start: 4}, Size: 4, Owner: gpu.Ours, Holders: []gpu.Holder{{Slot: "slot1_9"}}})
	p := newPond(t, auto(), g)
	for range 5 {
		if d := p.look(mig.Demand{Profile: "3g.20gb", Count: 1, Age: 3 * time.Hour}); d.Act != mig.Nothing {
			t.Fatalf("%s: %s", d.Act, d.Why)
		}
	}
}

// Where places are given nothing is made elsewhere, neither now nor after a wait.
func TestPolicyKeepsToPlaces(t *testing.T) {
	at := func(g gpu.MIGGPU, text string) gpu.Layout {
		w, err := mig.ParseWant(g.Chip, text)
		if err != nil {
			t.Fatal(err)
		}
		return w.Placed
	}
	for _, busy := range [][]int{nil, {5}} {
		g := busyNode(t, busy...)
		var catalogue mig.Catalogue
		var past mig.Past
		r := auto()
		r.Dwell, r.ReserveAfter = 0, 0
		sight := mig.Sight{At: morning, GPUs: []gpu.MIGGPU{g}, Demand: []mig.Demand{{Profile: "3g.20gb", Count: 2}, {Profile: "2g.10gb", Count: 3}, {Profile: "7g.40gb", Count: 1}},
			Places: map[gpu.UUID]gpu.Layout{g.UUID: at(g, "3g.20gb@4, 2g.10gb@2")}}
		for range 5 {
			sight.At = sight.At.Add(time.Minute)
			d, next, err := mig.Decide(&catalogue, r, past, sight)
			if err != nil {
				t.Fatal(err)
			}
			past = next
			for _, kept := range d.Reserved {
				if !sight.Places[g.UUID].Contains(kept.Place) {
					t.Errorf("room is kept for %s", g.Chip.FormatPlace(kept.Place))
				}
			}
			if d.Plan == nil {
				continue
			}
			for _, s := range d.Plan.Steps {
				if s.Verb == mig.Create && !sight.Places[g.UUID].Contains(s.Place) && s.Name != "1g.5gb" {
					t.Errorf("%s", s)
				}
			}
		}
		if len(past.Changed)+len(past.Reservations) == 0 {
			t.Error("nothing was decided")
		}
	}
}
