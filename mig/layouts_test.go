package mig_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// chosen is the chip with the profiles of a set only: plain ones have no
// suffix, classic ones no double memory either.
func chosen(c gpu.Chip, set string) gpu.Chip {
	plain := c.Profiles[:0:0]
	for _, p := range c.Profiles {
		suffix := len(p.Name) > 3 && (p.Name[len(p.Name)-1] != 'b')
		double := c.Slices() == 7 && p.Slices == 1 && p.Size == 2
		if set == "all" || !suffix && (set == "plain" || !double) {
			plain = append(plain, p)
		}
	}
	c.Profiles = plain
	return c
}

// golden are layouts and maximal layouts of each grid, counted by two
// enumerators that are not of this repository; test/sim counts the same by creating.
func golden(c gpu.Chip) map[string][2]int {
	switch {
	case c.Units() == 4:
		return map[string][2]int{"all": {76, 17}, "plain": {26, 5}, "classic": {26, 5}}
	case c.Units() == 12:
		return map[string][2]int{"all": {717, 302}, "plain": {26, 5}, "classic": {26, 5}}
	}
	return map[string][2]int{"all": {2319, 239}, "plain": {723, 78}, "classic": {298, 19}}
}

func chip(t testing.TB, model string) gpu.Chip {
	t.Helper()
	c, err := mig.Model(model, 0)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func enumerate(t testing.TB, c gpu.Chip) *mig.Layouts {
	t.Helper()
	ls, err := mig.Enumerate(c)
	if err != nil {
		t.Fatal(err)
	}
	return ls
}

func TestEnumerate(t *testing.T) {
	if n := len(mig.Models()); n != 13 {
		t.Fatalf("%d models, want the 13 that are published", n)
	}
	for _, model := range mig.Models() {
		for set, want := range golden(chip(t, model)) {
			ls := enumerate(t, chosen(chip(t, model), set))
			maximal := 0
			for range ls.Maximal() {
				maximal++
			}
			if got := [2]int{ls.Len(), maximal}; got != want {
				t.Errorf("%s, %s profiles: %v layouts and maximal ones, want %v", model, set, got, want)
			}
		}
	}
}

// TestEnumerateOrder: every layout is legal, stands once, and in order.
func TestEnumerateOrder(t *testing.T) {
	for _, model := range []string{"A100-40", "A30-24", "RTXPRO6000-96"} {
		c := chip(t, model)
		last := gpu.Layout(nil)
		first := true
		for l := range enumerate(t, c).All() {
			if err := mig.Legal(c, l); err != nil {
				t.Errorf("%s: %s: %v", model, c.Format(l), err)
			}
			if !first && last.Compare(l) >= 0 {
				t.Errorf("%s: %s stands before %s", model, c.Format(last), c.Format(l))
			}
			last, first = l, false
		}
	}
}

// flexibility is the number of maximal layouts that contain the layout, 0 if it is not legal.
func flexibility(ls *mig.Layouts, l gpu.Layout) int {
	for m, n := range ls.All() {
		if m.Equal(l) {
			return n
		}
	}
	return 0
}

// TestFlexibility: the numbers of maximal layouts that contain one instance, by
// the same outside enumerators.
func TestFlexibility(t *testing.T) {
	c := chip(t, "A100-40")
	for set, want := range map[string]map[string]int{
		"classic": {"1g.5gb@6": 12, "1g.5gb@0": 6, "1g.5gb@4": 6, "2g.10gb@0": 6, "2g.10gb@4": 6, "3g.20gb@4": 6, "3g.20gb@0": 3, "4g.20gb@0": 3, "7g.40gb@0": 1},
		"plain":   {"1g.5gb@6": 33, "1g.5gb@5": 22, "1g.5gb@4": 22, "1g.5gb@3": 21, "2g.10gb@4": 22, "2g.10gb@2": 21, "3g.20gb@4": 11, "3g.20gb@0": 7, "1g.10gb@6": 33},
	} {
		ls := enumerate(t, chosen(c, set))
		got := map[string]int{}
		for text := range want {
			w, err := mig.ParseWant(c, text)
			if err != nil {
				t.Fatal(err)
			}
			got[text] = flexibility(ls, w.Placed)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", set, d)
		}
	}
}

// TestLegal: the cases of the MIG User Guide and their reasons.
func TestLegal(t *testing.T) {
	for _, k := range []struct{ model, layout, reason string }{
		{"A100-40", "4g.20gb@0,3g.20gb@4", ""},
		{"A100-40", "3g.20gb@0,3g.20gb@4", ""},
		{"A100-40", "4g.20gb@0,3g.20gb@0", "3g.20gb@0 and 4g.20gb@0 overlap"},
		{"A100-40", "1g.5gb+me@0,1g.5gb+me@1", "more than 1 of 1g.5gb+me"},
		{"A100-40", "7g.40gb@0,1g.5gb@6", "1g.5gb@6 and 7g.40gb@0 overlap"},
		{"A30-24", "2g.12gb+me@0,1g.6gb+me@2", "the media engines that 1g.6gb+me@2 needs are taken"},
		{"RTXPRO6000-96", "1g.24gb+me.all@0,1g.24gb-me@3", ""},
		{"RTXPRO6000-96", "1g.24gb+me.all@0,1g.24gb@3", "the media engines that 1g.24gb+me.all@0 needs are taken"},
	} {
		c := chip(t, k.model)
		w, err := mig.ParseWant(c, k.layout)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		var no mig.Illegal
		if errors.As(mig.Legal(c, w.Placed), &no) {
			got = no.Reason
		}
		if got != k.reason {
			t.Errorf("%s: %s: %q, want %q", k.model, k.layout, got, k.reason)
		}
	}
}

// TestLegalByDriver: R510 allows 4g beside 3g, R470 and R525 bring profiles.
func TestLegalByDriver(t *testing.T) {
	for driver, want := range map[int]struct {
		profiles int
		together bool
	}{450: {5, false}, 470: {6, false}, 510: {6, true}, 525: {7, true}} {
		c, err := mig.Model("a100-40gb", driver)
		if err != nil {
			t.Fatal(err)
		}
		together := mig.Legal(c, gpu.NewLayout(gpu.Place{Profile: 5, Start: 0}, gpu.Place{Profile: 9, Start: 4})) == nil
		if len(c.Profiles) != want.profiles || together != want.together {
			t.Errorf("R%d: %d profiles, 4g beside 3g %t; want %v", driver, len(c.Profiles), together, want)
		}
	}
	c, _ := mig.Model("A100-40", 470)
	if err := mig.Legal(c, gpu.Layout{{Profile: 5, Start: 0}, {Profile: 9, Start: 4}}); err == nil || err.Error() != "no such layout: this driver does not make 3g.20gb beside 4g.20gb" {
		t.Errorf("R470: %v", err)
	}
}

func TestLegalUnknown(t *testing.T) {
	c := chip(t, "A100-40")
	for _, l := range []gpu.Layout{{{Profile: 99}}, {{Profile: 9, Start: 2}}, {{Profile: 19, Start: -1}}} {
		if mig.Legal(c, l) == nil {
			t.Errorf("%v is legal", l)
		}
	}
	if _, err := mig.Model("RTXPRO5000-48", 0); !errors.Is(err, mig.ErrUnpublished) {
		t.Errorf("RTX PRO 5000: %v", err)
	}
}

// TestLegalIsEnumerated: any set of places is legal exactly if it is one of the
// enumerated.
func TestLegalIsEnumerated(t *testing.T) {
	for _, model := range mig.Models() {
		c := chip(t, model)
		ls := enumerate(t, c)
		rapid.Check(t, func(t *rapid.T) {
			set := map[gpu.Place]bool{}
			for range rapid.IntRange(0, 5).Draw(t, "instances") {
				p := rapid.SampledFrom(c.Profiles).Draw(t, "profile")
				set[gpu.Place{Profile: p.ID, Start: rapid.SampledFrom(p.Starts).Draw(t, "start")}] = true
			}
			var places []gpu.Place
			for p := range set {
				places = append(places, p)
			}
			l := gpu.NewLayout(places...)
			if legal, known := mig.Legal(c, l) == nil, flexibility(ls, l) > 0; legal != known {
				t.Fatalf("%s: %s: legal %t, enumerated %t", model, c.Format(l), legal, known)
			}
		})
	}
}

// TestCheck: what no driver can mean is refused before anything is computed.
func TestCheck(t *testing.T) {
	ok := gpu.Profile{ID: 1, Name: "1g.5gb", Slices: 1, Size: 1, Starts: []int{0}, Max: 1}
	for name, spoil := range map[string]func(*gpu.Profile){
		"no slices": func(p *gpu.Profile) { p.Slices = 0 }, "no size": func(p *gpu.Profile) { p.Size = 0 },
		"huge": func(p *gpu.Profile) { p.Size = 65 }, "negative start": func(p *gpu.Profile) { p.Starts = []int{-1} },
		"twice": func(p *gpu.Profile) { p.Starts = []int{0, 0} }, "no max": func(p *gpu.Profile) { p.Max = 0 },
		"no places": func(p *gpu.Profile) { p.Starts = nil },
	} {
		p := ok
		spoil(&p)
		if _, err := mig.Enumerate(gpu.Chip{Profiles: []gpu.Profile{p}}); err == nil {
			t.Errorf("%s: enumerated", name)
		}
	}
	if _, err := mig.Enumerate(gpu.Chip{Profiles: []gpu.Profile{ok, ok}}); err == nil {
		t.Error("one id twice: enumerated")
	}
	many := ok
	many.Max, many.Starts = 64, nil
	for i := range 64 {
		many.Starts = append(many.Starts, i)
	}
	if _, err := mig.Enumerate(gpu.Chip{Profiles: []gpu.Profile{many, ok}}); err == nil {
		t.Error("65 places: enumerated")
	}
}

func BenchmarkEnumerate(b *testing.B) {
	c := chip(b, "A100-40")
	for b.Loop() {
		if _, err := mig.Enumerate(c); err != nil {
			b.Fatal(err)
		}
	}
}
