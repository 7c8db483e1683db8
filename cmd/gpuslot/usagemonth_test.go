package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/agent/record"
)

// TestMonths: the fields of the EGI record by month, organisation and model. A
// job belongs to the month of its end, in UTC; what is not known adds nothing.
func TestMonths(t *testing.T) {
	at := func(text string) time.Time {
		v, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	v := func(f float64) *float64 { return &f }
	quarter := func(end string, hours float64, active *float64) record.Job {
		return record.Job{VO: "atlas", Model: "H100", Share: 0.25, End: at(end), Begin: at(end).Add(-time.Duration(hours * float64(time.Hour))),
			SM: record.Bounds{Min: v(0), Estimate: active, Max: v(3600)}}
	}
	whole := quarter("2026-11-02T12:00:00Z", 2, v(3600))
	whole.Share = 0.75
	other := record.Job{Model: "H100", Begin: at("2026-11-01T00:00:00Z"), End: at("2026-11-01T01:00:00Z")}
	got := monthsOf([]record.Job{
		other, whole,
		quarter("2026-11-03T12:00:00Z", 1, v(450)), // half of its share
		quarter("2026-11-01T01:00:00+02:00", 3, nil),
	})
	want := []monthSum{
		{Month: "2026-10", VO: "atlas", Model: "H100", Jobs: 1, Count: v(0.25), Available: 3, Unknown: 1},
		{Month: "2026-11", Model: "H100", Jobs: 1, Available: 1, Unknown: 1},
		{Month: "2026-11", VO: "atlas", Model: "H100", Jobs: 2, Count: v(0.5), Available: 3,
			Active: v(3600/(0.75*3600) + 0.5), Least: v(0), Most: v(3600/(0.75*3600) + 4)},
	}
	if d := cmp.Diff(want, got, cmp.FilterPath(func(p cmp.Path) bool {
		return p.Last().String() == ".shares" || p.Last().String() == ".shared"
	}, cmp.Ignore()), cmp.AllowUnexported(monthSum{})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	var text strings.Builder
	egiText(&text, "EXAMPLE-LCG2", got)
	for _, line := range []string{"2026-10 EXAMPLE-LCG2 /atlas H100 1 0.250 3.000 - - - 1", "2026-11 EXAMPLE-LCG2 - H100 1 - 1.000 - - - 1", "2026-11 EXAMPLE-LCG2 /atlas H100 2 0.500 3.000 1.833 0.000 5.333 0"} {
		if !strings.Contains(strings.Join(strings.Fields(text.String()), " "), line) {
			t.Errorf("no %q in\n%s", line, text.String())
		}
	}
}
