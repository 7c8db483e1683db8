package main

import (
	"fmt"
	"strings"
	"testing"
)

// FuzzParseDemand: what is read can be written and read again, the same.
func FuzzParseDemand(f *testing.F) {
	f.Add("1g.5gb=4,3g.20gb=1")
	f.Add(" =0, a=1=2")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseDemand(text)
		if err != nil {
			return
		}
		var words []string
		for _, d := range all {
			if d.Count < 0 || d.Count > maxDemand {
				t.Errorf("%+v from %q", d, text)
			}
			words = append(words, fmt.Sprintf("%s=%d", d.Profile, d.Count))
		}
		again, err := parseDemand(strings.Join(words, ","))
		if err != nil || fmt.Sprint(again) != fmt.Sprint(all) {
			t.Errorf("%q: %v, then %v (%v)", text, all, again, err)
		}
	})
}

// FuzzParseAgo: a time ago is longer than none.
func FuzzParseAgo(f *testing.F) {
	for _, s := range []string{"24h", "7d", "0d", "-1h", "65536d", "1e9h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if d, err := parseAgo(s); err == nil && d <= 0 {
			t.Errorf("%q is %v", s, d)
		}
	})
}
