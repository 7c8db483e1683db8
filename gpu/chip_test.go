package gpu

import "testing"

// a30 has the profiles of an A30 as nvidia-smi mig -lgip prints them for 24 GB.
var a30 = Chip{Model: "A30", Multiprocessors: 56, Profiles: []Profile{
	{ID: 14, Name: "1g.6gb", Slices: 1, Starts: []int{0, 1, 2, 3}, Size: 1, Max: 4},
	{ID: 21, Name: "1g.6gb+me", Slices: 1, Starts: []int{0, 1, 2, 3}, Size: 1, Max: 1,
		Engines: Engines{Decoders: 1, JPEG: 1, OFA: 1}},
	{ID: 5, Name: "2g.12gb", Slices: 2, Starts: []int{0, 2}, Size: 2, Max: 2, Engines: Engines{Decoders: 2}},
	{ID: 6, Name: "2g.12gb+me", Slices: 2, Starts: []int{0, 2}, Size: 2, Max: 1,
		Engines: Engines{Decoders: 2, JPEG: 1, OFA: 1}},
	{ID: 0, Name: "4g.24gb", Slices: 4, Starts: []int{0}, Size: 4, Max: 1, Engines: Engines{Decoders: 4, JPEG: 1, OFA: 1}},
}}

func TestChip(t *testing.T) {
	if u, s := a30.Units(), a30.Slices(); u != 4 || s != 4 {
		t.Errorf("%d units, %d slices, want 4 and 4", u, s)
	}
	if e, want := a30.Engines(), (Engines{Decoders: 4, JPEG: 1, OFA: 1}); e != want {
		t.Errorf("engines %+v, want %+v", e, want)
	}
	if p, ok := a30.Whole(); !ok || p.Name != "4g.24gb" {
		t.Errorf("the whole profile is %+v, %v", p, ok)
	}
	if p, ok := a30.Profile(5); !ok || p.Name != "2g.12gb" {
		t.Errorf("profile 5 is %+v, %v", p, ok)
	}
	if u, s := (Chip{}).Units(), (Chip{}).Slices(); u != 0 || s != 0 {
		t.Errorf("%d units and %d slices of no profiles", u, s)
	}
	if _, ok := a30.Profile(19); ok {
		t.Error("an A30 has the profile 19 of another chip")
	}
}

func TestLayout(t *testing.T) {
	first, second, third := Place{14, 2}, Place{14, 3}, Place{5, 0}
	l := NewLayout(first, second, third)
	if !l.Equal(Layout{third, first, second}) {
		t.Errorf("%v is not ordered by profile, then start", l)
	}
	if !l.Contains(second) || l.Contains(Place{14, 0}) {
		t.Errorf("%v contains the wrong places", l)
	}
	if rest := l.Without(Layout{first}); !rest.Equal(Layout{third, second}) {
		t.Errorf("%v without %v is %v", l, first, rest)
	}
	if l.Compare(Layout{third}) <= 0 || l.Compare(l) != 0 || l.Compare(Layout{first}) >= 0 {
		t.Error("layouts are not compared place by place")
	}
	if got := a30.Format(l); got != "2g.12gb@0,1g.6gb@2,1g.6gb@3" {
		t.Errorf("printed as %s", got)
	}
	if got := a30.Format(append(l, Place{99, 1})); got != "2g.12gb@0,99@1,1g.6gb@2,1g.6gb@3" {
		t.Errorf("printed as %s", got)
	}
	if got := a30.Format(nil); got != "none" {
		t.Errorf("printed as %s", got)
	}
}
