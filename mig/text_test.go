package mig_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

func TestParseWant(t *testing.T) {
	c := chip(t, "A100-80")
	for text, want := range map[string]mig.Want{
		"3g.40gb, 2g.20gb, 1g.10gb@6":        {Placed: gpu.Layout{{Profile: 19, Start: 6}}, Counts: []mig.Count{{Profile: 9, N: 1}, {Profile: 14, N: 1}}},
		"1g.10gb*7":                          {Counts: []mig.Count{{Profile: 19, N: 7}}},
		"1g.10gb 1g.10gb*2":                  {Counts: []mig.Count{{Profile: 19, N: 3}}},
		"7g.79gb":                            {Counts: []mig.Count{{Profile: 0, N: 1}}},
		"7g.81gb":                            {Counts: []mig.Count{{Profile: 0, N: 1}}},
		"7g.78gb":                            {},
		"7g.82gb":                            {},
		"1g.10gb.me":                         {Counts: []mig.Count{{Profile: 20, N: 1}}},
		"MIG 1g.10gb+me":                     {},
		"19,9@4":                             {Placed: gpu.Layout{{Profile: 9, Start: 4}}, Counts: []mig.Count{{Profile: 19, N: 1}}},
		"none":                               {},
		"":                                   {},
		"5g.40gb":                            {},
		"1g.5gb":                             {},
		"1g.10gb@7":                          {},
		"1g.10gb@2*2":                        {},
		"1g.10gb*0":                          {},
		"1g.10gb*65":                         {},
		"1g.10gb*-1":                         {},
		"1g.10gb@+1":                         {},
		"99":                                 {},
		"3g.40gb@4,none":                     {},
		"1g.10gb*60,1g.10gb+me*3,2g.20gb*60": {},
	} {
		got, err := mig.ParseWant(c, text)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%q (-want +got):\n%s", text, d)
		}
		if bad := want.Total() == 0 && text != "none"; bad != (err != nil) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestFormat: every layout is read back as printed.
func TestFormat(t *testing.T) {
	for _, model := range mig.Models() {
		c := chip(t, model)
		for l := range enumerate(t, c).All() {
			w, err := mig.ParseWant(c, c.Format(l))
			if err != nil || !w.Placed.Equal(l) || len(w.Counts) > 0 {
				t.Fatalf("%s: %s is read as %v: %v", model, c.Format(l), w, err)
			}
		}
	}
	if got := chip(t, "A100-40").FormatPlace(gpu.Place{Profile: 99, Start: 3}); got != "99@3" {
		t.Errorf("an unknown profile prints as %s", got)
	}
}

// FuzzParseWant: what is accepted is bounded, has profiles of the chip at their
// starts, and is read back from its own printing.
func FuzzParseWant(f *testing.F) {
	for _, s := range []string{"3g.20gb, 2g.10gb, 1g.5gb@6", "1g.5gb*7", "none", "1g.5gb.me", "19@6,7g.41gb", "1g.5gb@@", "*", "1g.5gb*", "-1@0"} {
		f.Add(s)
	}
	c := chip(f, "A100-40")
	f.Fuzz(func(t *testing.T, s string) {
		w, err := mig.ParseWant(c, s)
		if err != nil {
			return
		}
		if err := mig.CheckWant(s); err != nil {
			t.Fatalf("%q is read, but no chip could have it: %v", s, err)
		}
		if w.Total() > 64 {
			t.Fatalf("%q asks for %d instances", s, w.Total())
		}
		for _, p := range w.Placed {
			if no := mig.Legal(c, gpu.Layout{p}); no != nil {
				t.Fatalf("%q: %v", s, no)
			}
		}
		again, err := mig.ParseWant(c, mig.FormatWant(c, w))
		if d := cmp.Diff(w, again); err != nil || d != "" {
			t.Fatalf("%q prints as %q: %v\n%s", s, mig.FormatWant(c, w), err, d)
		}
	})
}

// TestWantOrder: the order in which a layout is written says nothing.
func TestWantOrder(t *testing.T) {
	c := chip(t, "H100-80")
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(rapid.SampledFrom([]string{"1g.10gb", "2g.20gb", "3g.40gb@4", "1g.10gb@6"}), 1, 6).Draw(t, "words")
		text, back := "", ""
		for _, w := range words {
			text, back = text+w+",", w+" "+back
		}
		a, errA := mig.ParseWant(c, text)
		b, errB := mig.ParseWant(c, back)
		if d := cmp.Diff(a, b); d != "" || errA != nil || errB != nil {
			t.Fatalf("%q and %q: %v %v\n%s", text, back, errA, errB, d)
		}
	})
}
