package usage

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// tiny is rounding.
const tiny = 1e-9

// schedule is a device's multiprocessors over time, cell by cell: which parts
// had work on it. Several may: kernels of MPS clients share a multiprocessor.
type schedule struct {
	sms, steps int
	// work[part][step] are the multiprocessors the part worked on.
	work [][]map[int]bool
}

// random fills a schedule: each part has clients with a cap each, is there for
// a part of the time, and works as much as it likes within its cap.
func random(t *rapid.T) (schedule, []Part) {
	s := schedule{sms: rapid.IntRange(1, 24).Draw(t, "sms"), steps: rapid.IntRange(1, 12).Draw(t, "steps")}
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
	parts := make([]Part, rapid.IntRange(1, 6).Draw(t, "parts"))
	for i := range parts {
		clients := rapid.IntRange(0, 3).Draw(t, "clients")
		most := rapid.IntRange(1, s.sms).Draw(t, "cap")
		parts[i].Cap = min(1, float64(clients*most)/float64(s.sms))
		parts[i].Weight = parts[i].Cap * rapid.Float64Range(0, 1).Draw(t, "weight")
		steps := make([]map[int]bool, s.steps)
		begin, busy := r.IntN(s.steps), r.Float64()
		for k := range steps {
			steps[k] = map[int]bool{}
			for range clients {
				if k < begin || r.Float64() > busy {
					continue
				}
				for _, sm := range r.Perm(s.sms)[:r.IntN(most+1)] {
					steps[k][sm] = true
				}
			}
		}
		s.work = append(s.work, steps)
	}
	return s, parts
}

// activity is the share of cells in which anybody worked; of is one part's.
func (s schedule) activity() float64 {
	busy := 0
	for k := range s.steps {
		anybody := map[int]bool{}
		for i := range s.work {
			for sm := range s.work[i][k] {
				anybody[sm] = true
			}
		}
		busy += len(anybody)
	}
	return float64(busy) / float64(s.sms*s.steps)
}

func (s schedule) of(part int) float64 {
	busy := 0
	for _, sms := range s.work[part] {
		busy += len(sms)
	}
	return float64(busy) / float64(s.sms*s.steps)
}

func checkDivision(t *rapid.T, d Division, activity float64) {
	sum := d.Rest
	for i, r := range d.Parts {
		if !(0 <= r.Lower && r.Lower <= r.Estimate && r.Estimate <= r.Upper && r.Upper <= activity+tiny) {
			t.Fatalf("part %d of %v: %+v is not in order", i, activity, r)
		}
		sum += r.Estimate
	}
	if math.Abs(sum-activity) > tiny {
		t.Fatalf("estimates and rest make %v, the activity is %v: %+v", sum, activity, d)
	}
}

// Whatever the parts do, the truth is inside their bounds.
func TestBoundsHoldOnAnySchedule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, parts := random(t)
		a := s.activity()
		for _, d := range []Division{Divide(a, parts), DivideMeasured(a, parts)} {
			checkDivision(t, d, a)
			if d.Beyond > tiny {
				t.Fatalf("nobody worked beyond a cap, but %v is said to be beyond", d.Beyond)
			}
			for i, r := range d.Parts {
				if u := s.of(i); u < r.Lower-tiny || u > r.Upper+tiny {
					t.Fatalf("part %d worked %v, outside %+v", i, u, r)
				}
			}
		}
	})
}

// Whatever the numbers are, estimates and rest close the sum.
func TestDivisionsClose(t *testing.T) {
	share := rapid.Float64Range(0, 1)
	rapid.Check(t, func(t *rapid.T) {
		parts := make([]Part, rapid.IntRange(0, 8).Draw(t, "parts"))
		for i := range parts {
			parts[i].Cap = share.Draw(t, "cap")
			parts[i].Weight = parts[i].Cap * share.Draw(t, "weight")
		}
		a := share.Draw(t, "activity")
		checkDivision(t, Divide(a, parts), a)
		checkDivision(t, DivideMeasured(a, parts), a)
	})
}

// A part that is left out makes the bounds wrong: the test above can fail.
func TestBoundsNeedEveryPart(t *testing.T) {
	// Two parts, one capped at a quarter; the other one, uncapped, is left out.
	d := Divide(0.9, []Part{{Cap: 0.25, Weight: 0.25}})
	if math.Abs(d.Beyond-0.65) > tiny || d.Parts[0].Lower != 0.25 {
		t.Errorf("0.65 of the activity is nobody's: %+v", d)
	}
	d = Divide(0.9, []Part{{Cap: 0.25, Weight: 0.25}, {Cap: 1, Weight: 1}})
	if d.Beyond != 0 || d.Parts[0].Lower > tiny {
		t.Errorf("with the other one there is no such alarm: %+v", d)
	}
}

// The widths that the design promises (monitoring facts, section 4.2).
func TestWidths(t *testing.T) {
	four := func(c float64) []Part {
		return []Part{{c, c}, {c, c}, {c, c}, {c, c}}
	}
	for _, c := range []struct {
		activity float64
		parts    []Part
		want     Range
	}{
		{0.9, four(0.25), Range{0.15, 0.225, 0.25}},
		{0.5, four(0.25), Range{0, 0.125, 0.25}},
		{0.9, four(0.5), Range{0, 0.225, 0.5}},
		{0.7, []Part{{1, 1}}, Range{0.7, 0.7, 0.7}},
		{0.2, []Part{{0.25, 0.25}, {0.25, 0}}, Range{0, 0.2, 0.2}},
		{0, four(0.25), Range{}},
	} {
		got := Divide(c.activity, c.parts).Parts[0]
		if math.Abs(got.Lower-c.want.Lower) > tiny || math.Abs(got.Estimate-c.want.Estimate) > tiny || math.Abs(got.Upper-c.want.Upper) > tiny {
			t.Errorf("%v of %v: %+v, want %+v", c.activity, c.parts, got, c.want)
		}
	}
}

func TestMeasuredSharesAreKept(t *testing.T) {
	d := DivideMeasured(0.8, []Part{{1, 0.3}, {1, 0.2}})
	if d.Parts[0].Estimate != 0.3 || d.Parts[1].Estimate != 0.2 || math.Abs(d.Rest-0.3) > tiny {
		t.Errorf("0.3 and 0.2 of 0.8 leave 0.3: %+v", d)
	}
	d = DivideMeasured(0.4, []Part{{1, 0.6}, {1, 0.2}})
	if math.Abs(d.Parts[0].Estimate-0.4*2/3) > 0.03 || math.Abs(d.Parts[0].Estimate+d.Parts[1].Estimate-0.4) > tiny {
		t.Errorf("shares that add up to more than the device are scaled: %+v", d)
	}
}
