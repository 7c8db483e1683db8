package record

import "testing"

// TestParseLine: a line without a slot or an end, or that ends before it begins, is no record.
func TestParseLine(t *testing.T) {
	for line, want := range map[string]bool{
		`{"slot":"s","begin":"2026-11-01T00:00:00Z","end":"2026-11-01T00:00:00Z"}`: true,
		`{"slot":"s","end":"2026-11-01T00:00:00Z"}`:                                true,
		`{"begin":"2026-11-01T00:00:00Z","end":"2026-11-01T00:00:01Z"}`:            false,
		`{"slot":"s","begin":"2026-11-01T00:00:00Z"}`:                              false,
		`{"slot":"s"}`: false,
		`{"slot":"s","begin":"2026-11-01T00:00:01Z","end":"2026-11-01T00:00:00Z"}`:      false,
		`{"slot":"s","begin":"2026-11-01T00:00:00+24:00","end":"2026-11-01T00:00:01Z"}`: false,
		`{"slot":"s","begin":"2026-10-01T00:00:00Z","end":"2026-11-01T00:00:00+24:00"}`: false,
		`{"slot":1,"end":"2026-11-01T00:00:00Z"}`:                                       false,
		``: false,
	} {
		if j, ok := Parse([]byte(line)); ok != want || !ok && j.Slot != "" {
			t.Errorf("%s: %t", line, ok)
		}
	}
}
