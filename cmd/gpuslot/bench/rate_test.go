package bench

import (
	"strings"
	"testing"
)

// TestLatencies: requests without an answer take longer than all others, so that quantiles
// that reach them are not known.
func TestLatencies(t *testing.T) {
	s := Served{Sent: 101}
	var answered []float64
	for i := range 97 {
		answered = append(answered, float64(96-i))
	}
	if s.Latencies(answered); s.Answered != 97 || *s.P50 != 50 || *s.P95 != 95 || s.P99 != nil {
		t.Errorf("%+v", s)
	}
	if s := (Served{Sent: 3}); true {
		if s.Latencies(nil); s.P50 != nil || s.Answered != 0 {
			t.Errorf("%+v", s)
		}
	}
}

// TestPrintServed: each rate has its winner, or none.
func TestPrintServed(t *testing.T) {
	p := func(v float64) *float64 { return &v }
	r := result()
	r.Runs, r.Skipped = nil, nil
	r.Served = []Served{
		{Mode: TimeSlice, Copies: 2, Rate: 5, Sent: 50, Answered: 50, Seconds: 10, P50: p(0.01), P95: p(0.03), P99: p(0.04)},
		{Mode: MPS, Copies: 2, Rate: 5, Sent: 50, Answered: 50, Seconds: 10, P50: p(0.01), P95: p(0.02), P99: p(0.05)},
		{Mode: MPS, Copies: 2, Rate: 50, Sent: 500, Answered: 300, Seconds: 40, P50: p(20)},
	}
	text, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Decode(strings.NewReader(string(text)))
	if err != nil || len(again.Served) != 3 {
		t.Errorf("%v %+v", err, again.Served)
	}
	var b strings.Builder
	if err := Print(&b, again); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"timeslice  2       5       5.0         10.0    30.0    40.0", "mps        2       50      7.5         20000.0  -       -",
		"At 5 requests a second the lowest p95 latency has mps, 2 copies: 20.0 ms.", "At 50 requests a second no mode answers 95 of 100.",
	} {
		if !strings.Contains(strings.Join(strings.Fields(b.String()), " "), strings.Join(strings.Fields(want), " ")) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	again.Served[0].Answered = 51
	if again.Check() == nil {
		t.Error("more answers than requests")
	}
}
