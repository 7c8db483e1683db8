package dcgm

import (
	"net/http"
	"strings"
	"testing"
)

// TestLargestExposition: as many bytes as may be are read, and one more is refused.
func TestLargestExposition(t *testing.T) {
	const line = smActive + `{UUID="GPU-45984919-9e67-f2ec-9b84-a96fefa525ff"} 0.5` + "\n"
	for more, want := range map[int]bool{0: true, 1: false} {
		d := exporter(t, func(w http.ResponseWriter, _ *http.Request) {
			rest := largestExposition + more - len(line)
			_, _ = w.Write([]byte(strings.Repeat("#\n", rest/2) + strings.Repeat("\n", rest%2) + line))
		})
		a, err := d.Activities(t.Context())
		if (err == nil) != want || want && len(a) != 1 {
			t.Errorf("%d more: %v, %v", more, a, err)
		}
	}
}

// TestLargestParsed: so it is with the lines that are parsed.
func TestLargestParsed(t *testing.T) {
	line := func(bytes int) string {
		const begin, end = smActive + `{UUID="GPU-45984919-9e67-f2ec-9b84-a96fefa525ff",x="`, `"} 0.5` + "\n"
		return begin + strings.Repeat("x", bytes-len(begin)-len(end)) + end
	}
	for more, want := range map[int]bool{0: true, 1: false} {
		a, err := parse(strings.NewReader(strings.Repeat(line(1<<10), largestParsed>>10-1) + line(1<<10+more)))
		if (err == nil) != want || want && len(a) != 1 {
			t.Errorf("%d more: %v, %v", more, a, err)
		}
	}
}
