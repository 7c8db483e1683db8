package main

import (
	"slices"
	"testing"
)

// TestCheck: what is too large is found, and an exception that is not needed any more.
func TestCheck(t *testing.T) {
	small := &pkg{path: "agent/small", files: 15, lines: 1500, methods: map[string]int{"T": 25}, interfaces: map[string]int{"I": 3}}
	large := &pkg{
		path: "agent/large", files: 16, lines: 1501, long: []string{"agent/large/x.go:7"},
		methods: map[string]int{"T": 26}, interfaces: map[string]int{"I": 4},
	}
	all := []*pkg{small, large}
	reason := "one table"
	for name, c := range map[string]struct {
		rules rules
		want  []string
	}{
		"no exception": {rules{}, []string{
			"agent/large has 16 files and 1501 lines, at most 15 and 1500 are allowed: cut it",
			"1 lines have more than 120 columns, at most 0 are allowed",
			"agent/large.T has 26 methods, at most 25 are allowed: cut it",
			"agent/large.I has 4 methods as an interface, at most 3 are allowed: cut it",
		}},
		"exceptions": {rules{
			packages:   map[string]size{"agent/large": {16, 1501, reason}},
			methods:    map[string]count{"agent/large.T": {26, reason}},
			interfaces: map[string]count{"agent/large.I": {4, reason}},
			long:       1,
		}, nil},
		"exceptions that are not needed, or of nothing": {rules{
			packages: map[string]size{"agent/large": {16, 1501, ""}, "agent/small": {16, 1600, reason}, "agent/gone": {16, 1600, reason}},
			methods:  map[string]count{"agent/large.T": {26, reason}, "agent/small.T": {26, reason}, "agent/gone.T": {26, ""}},
			interfaces: map[string]count{
				"agent/large.I": {4, reason},
			},
		}, []string{
			"agent/small has 15 files and 1500 lines: it needs no exception any more",
			"1 lines have more than 120 columns, at most 0 are allowed",
			"agent/gone has an exception and does not exist",
			"agent/large has an exception without a reason",
			"agent/small.T has 25 methods: it needs no exception any more",
			"agent/gone.T has an exception and does not exist",
			"agent/gone.T has an exception without a reason",
		}},
	} {
		if got := c.rules.check(all); !slices.Equal(got, c.want) {
			t.Errorf("%s: got\n%q, want\n%q", name, got, c.want)
		}
	}
}

// TestAdmission: each step on the way of a job's admission has the name that leads to the next.
func TestAdmission(t *testing.T) {
	for i, s := range admission {
		follows, err := s.follows("../..")
		if err != nil || !follows {
			t.Errorf("%s: %s does not lead on by %s: %v", s.file, s.function, s.leads, err)
		}
		lost := s
		lost.leads = "elsewhere"
		if follows, _ := lost.follows("../.."); follows {
			t.Errorf("%s: %s leads elsewhere", s.file, s.function)
		}
		if i > 0 && admission[i-1].file == s.file {
			t.Errorf("%s is there twice in a row", s.file)
		}
	}
}

// TestLargest: a circle has the files that reach each other, and no file beside it.
func TestLargest(t *testing.T) {
	needs := map[string]map[string]bool{
		"a": {"b": true}, "b": {"c": true, "d": true}, "c": {"a": true}, "d": {"e": true}, "e": {"d": true}, "f": {"a": true},
	}
	if n := largest(needs); n != 3 {
		t.Errorf("%d files, want 3", n)
	}
	if n := largest(map[string]map[string]bool{"a": {"a": true, "b": true}}); n != 1 {
		t.Errorf("%d files in no circle", n)
	}
}
