package bench

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

// Bounds of requests, beyond which a number is a mistake.
const (
	maxRate     = 1e5
	maxRequests = 1 << 24
	maxServed   = 1 << 12
)

// Served is what copies of a command that answers requests did at one rate.
type Served struct {
	Mode    Mode   `json:"mode"`
	Copies  int    `json:"copies"`
	Profile string `json:"profile,omitempty"`
	// ThreadPercentage is the cap of each copy; of mode mps-capped only.
	ThreadPercentage *float64 `json:"active_thread_percentage,omitempty"`
	// Rate is how many requests came in a second for all copies together, at random times.
	Rate float64 `json:"rate"`
	// Sent requests came, Answered of them were answered, in Seconds from the first request
	// to the last answer.
	Sent     int     `json:"sent"`
	Answered int     `json:"answered"`
	Seconds  float64 `json:"seconds"`
	// P50, P95 and P99 are quantiles of the seconds from the time at which a request came to
	// its answer. Absent: so many requests were not answered that nobody knows it.
	P50 *float64 `json:"p50_seconds,omitempty"`
	P95 *float64 `json:"p95_seconds,omitempty"`
	P99 *float64 `json:"p99_seconds,omitempty"`
}

// Latencies fills the quantiles from the seconds of those that were answered; requests
// without an answer take longer than all of them.
func (s *Served) Latencies(answered []float64) {
	slices.Sort(answered)
	s.Answered = len(answered)
	at := func(q float64) *float64 {
		i := q * float64(s.Sent-1)
		below, above := int(i), int(math.Ceil(i))
		if above >= len(answered) {
			return nil
		}
		v := answered[below] + (i-float64(below))*(answered[above]-answered[below])
		return &v
	}
	s.P50, s.P95, s.P99 = at(0.5), at(0.95), at(0.99)
}

func (s Served) check(c *checker) {
	c.must(s.Mode.Known() && s.Copies >= 1 && s.Copies <= MaxCopies, "its mode is %q with %d copies", s.Mode, s.Copies)
	c.must((s.Mode == MIG) == (s.Profile != ""), "a MIG profile belongs to mode mig")
	c.must(s.Rate > 0 && s.Rate <= maxRate, "its rate is %g", s.Rate)
	c.must(s.Answered >= 0 && s.Answered <= s.Sent && s.Sent <= maxRequests,
		"%d of %d requests were answered", s.Answered, s.Sent)
	c.number("active_thread_percentage", s.ThreadPercentage, 100)
	c.number("seconds", &s.Seconds, maxSeconds)
	for name, v := range map[string]*float64{"p50_seconds": s.P50, "p95_seconds": s.P95, "p99_seconds": s.P99} {
		c.number(name, v, maxSeconds)
	}
}

// point is the same without what was measured.
func (s Served) point() Point {
	return Point{Mode: s.Mode, Copies: s.Copies, Profile: s.Profile, ThreadPercentage: s.ThreadPercentage}
}

// printServed is latency against load for each mode, and who is best at each rate.
func printServed(b *strings.Builder, all []Served) {
	t := &show.Table{}
	t.Row("MODE", "COPIES", "RATE/s", "ANSWERED/s", "P50/ms", "P95/ms", "P99/ms")
	var rates []float64
	for _, s := range all {
		answered := 0.0
		if s.Seconds > 0 {
			answered = float64(s.Answered) / s.Seconds
		}
		t.Row(s.point().label(), strconv.Itoa(s.Copies), fmt.Sprintf("%g", s.Rate), fmt.Sprintf("%.1f", answered),
			milliseconds(s.P50), milliseconds(s.P95), milliseconds(s.P99))
		if !slices.Contains(rates, s.Rate) {
			rates = append(rates, s.Rate)
		}
	}
	t.Print(b)
	b.WriteByte('\n')
	for _, r := range rates {
		best := -1
		for i, s := range all {
			if s.Rate == r && s.P95 != nil && (best < 0 || *s.P95 < *all[best].P95) {
				best = i
			}
		}
		if best < 0 {
			fmt.Fprintf(b, "At %g requests a second no mode answers 95 of 100.\n", r)
			continue
		}
		fmt.Fprintf(b, "At %g requests a second the lowest p95 latency has %s: %s ms.\n",
			r, all[best].point().name(), milliseconds(all[best].P95))
	}
}

func milliseconds(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f", *v*1000)
}
