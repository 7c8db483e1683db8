package main

import "testing"

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
