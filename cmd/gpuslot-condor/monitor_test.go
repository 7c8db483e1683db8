package main

import (
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/condor"
)

// A following monitor prints what changed at once, everything now and then, and
// takes back a hold that is over.
func TestNews(t *testing.T) {
	now := time.Now()
	a := condor.GPUState{UUID: "GPU-a", Accept: true, Time: now}
	b := condor.GPUState{UUID: "GPU-b", Accept: true, Time: now}
	shut := b
	shut.Accept, shut.Reason = false, "lost"
	hold := condor.Hold{SlotID: 1, DSlotID: 2, JobID: "7.0", Code: 76, Reason: "used 2 MiB of 1 MiB requested"}
	other := hold
	other.DSlotID, other.Reason = 3, "used 3 MiB of 1 MiB requested"
	for name, tt := range map[string]struct {
		last, now said
		want      []string // lines that say what, in order
	}{
		"first":      {said{}, said{states: []condor.GPUState{a, b}}, []string{"GPUAccept = true", "GPUAccept = true"}},
		"no news":    {said{states: []condor.GPUState{a, b}, printed: now}, said{states: []condor.GPUState{a, b}}, nil},
		"again":      {said{states: []condor.GPUState{a}, printed: now.Add(-printEvery)}, said{states: []condor.GPUState{a}}, []string{"GPUAccept = true"}},
		"one closed": {said{states: []condor.GPUState{a, b}, printed: now}, said{states: []condor.GPUState{a, shut}}, []string{"GPUAccept = false"}},
		"hold":       {said{printed: now}, said{holds: []condor.Hold{hold}}, []string{`GPUSlotHoldReason = "used 2 MiB of 1 MiB requested"`}},
		"still held": {said{holds: []condor.Hold{hold}, printed: now}, said{holds: []condor.Hold{hold}}, nil},
		"taken back": {said{holds: []condor.Hold{hold}, printed: now}, said{}, []string{"GPUSlotHoldReason = undefined"}},
		"one taken back": {said{holds: []condor.Hold{hold, other}, printed: now}, said{holds: []condor.Hold{other}},
			[]string{"GPUSlotHoldReason = undefined"}},
		"starts":     {said{printed: now}, said{starts: &condor.StartsState{}}, []string{"GPUSlotStarts = true"}},
		"starts yet": {said{starts: &condor.StartsState{}, printed: now}, said{starts: &condor.StartsState{Time: now}}, nil},
		"starts not": {said{starts: &condor.StartsState{}, printed: now}, said{starts: &condor.StartsState{Reason: "dead"}}, []string{"GPUSlotStarts = false"}},
		"starts still": {said{starts: &condor.StartsState{}, printed: now.Add(-printEvery)}, said{starts: &condor.StartsState{}},
			[]string{"GPUSlotStarts = true"}},
	} {
		var got []string
		for line := range strings.Lines(string(tt.now.news(tt.last))) {
			if strings.HasPrefix(line, "GPUAccept =") || strings.HasPrefix(line, "GPUSlotHoldReason") || strings.HasPrefix(line, "GPUSlotStarts =") {
				got = append(got, strings.TrimSpace(line))
			}
		}
		if strings.Join(got, "|") != strings.Join(tt.want, "|") {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
