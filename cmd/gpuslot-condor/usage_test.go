package main

import (
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
)

// What is printed, and when: at once what is new and has VRAM, a peak that grew,
// and otherwise after a twentieth of the job's life.
func TestReports(t *testing.T) {
	begin := time.Now()
	use := func(job string, age float64, mib int64) api.Use {
		return api.Use{Slot: "slot1_2", Job: job, Seconds: age, PeakMiB: &mib}
	}
	unknown := api.Use{Slot: "slot1_2", Job: "7.0", Seconds: 100}
	for name, tt := range map[string]struct {
		before api.Use
		now    api.Use
		after  time.Duration
		want   bool
	}{
		"the same, too soon":          {use("7.0", 100, 800), use("7.0", 104, 800), 4 * time.Second, false},
		"the same, in time":           {use("7.0", 100, 800), use("7.0", 105.3, 800), 5300 * time.Millisecond, true},
		"a young job":                 {use("7.0", 5, 0), use("7.0", 7, 0), 2 * time.Second, true},
		"a young job, too soon":       {use("7.0", 5, 0), use("7.0", 6, 0), time.Second, false},
		"an old job":                  {use("7.0", 90000, 800), use("7.0", 90060, 800), time.Minute, true},
		"an old job, too soon":        {use("7.0", 90000, 800), use("7.0", 90059, 800), 59 * time.Second, false},
		"a little more":               {use("7.0", 100, 800), use("7.0", 101, 850), time.Second, false},
		"much more":                   {use("7.0", 100, 800), use("7.0", 101, 851), time.Second, true},
		"from nothing":                {use("7.0", 100, 0), use("7.0", 101, 1), time.Second, true},
		"known at last":               {unknown, use("7.0", 101, 0), time.Second, true},
		"the next job":                {use("7.0", 100, 800), use("7.1", 1, 1), time.Second, true},
		"the next, not begun":         {use("7.0", 100, 800), use("7.1", 4, 0), 4 * time.Second, false},
		"the next, never begun":       {use("7.0", 100, 800), use("7.1", 5, 0), 5 * time.Second, true},
		"the same job, started again": {use("7.0", 100, 800), use("7.0", 1, 800), time.Second, true},
	} {
		told, first := reports{}.next([]api.Use{tt.before, {Slot: "slot1"}}, begin)
		if len(first) != 1 || first[0].SlotID != 1 || first[0].DSlotID != 2 {
			t.Fatalf("%s: first %v", name, first)
		}
		told, news := told.next([]api.Use{tt.now}, begin.Add(tt.after))
		if got := len(news) == 1; got != tt.want {
			t.Errorf("%s: printed %v, want %v", name, got, tt.want)
		}
		if left, _ := told.next(nil, begin); len(left) != 0 {
			t.Errorf("%s: %v is remembered after its end", name, left)
		}
	}
}
