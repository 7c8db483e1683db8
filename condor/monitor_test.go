package condor

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// TestMonitorNumbers: what a slot must be larger than, and the least request, are in the ad
// where they are set; on a MIG device an old bound is taken back.
func TestMonitorNumbers(t *testing.T) {
	const device = "MIG-00000000-5be4-11f1-9c2d-0242ac120002"
	for name, c := range map[string]struct {
		state GPUState
		want  []string
	}{
		"bounds": {
			GPUState{UUID: uuid(0), Least: 8192, Above: 16384, AboveHost: Share{CPUs: 4, Memory: 2048}},
			[]string{"GPUVRAMLeast = 8192", "GPUVRAMUnlisted = undefined", "GPUVRAMTaken = undefined", "GPUAbove = 16384", "GPUAboveCpus = 4", "GPUAboveMemory = 2048"},
		},
		"unlisted VRAM": {
			GPUState{UUID: uuid(0), Unlisted: 1, Taken: 200},
			[]string{"GPUVRAMLeast = undefined", "GPUVRAMUnlisted = 1", "GPUVRAMTaken = 200"},
		},
		"a GPU without": {
			GPUState{UUID: uuid(0), Taken: 200},
			[]string{"GPUVRAMLeast = undefined", "GPUVRAMUnlisted = undefined", "GPUVRAMTaken = undefined"},
		},
		"a MIG device without": {
			GPUState{UUID: gpu.UUID(device)},
			[]string{"GPUVRAMLeast = undefined", "GPUVRAMUnlisted = undefined", "GPUVRAMTaken = undefined", "GPUAbove = undefined", "GPUAboveCpus = undefined", "GPUAboveMemory = undefined"},
		},
	} {
		c.state.Time = time.Unix(1795254170, 0)
		var got []string
		for line := range strings.Lines(string(MonitorAds([]GPUState{c.state}))) {
			if strings.HasPrefix(line, "GPUAbove") || strings.HasPrefix(line, "GPUVRAM") {
				got = append(got, strings.TrimSpace(line))
			}
		}
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestSaysTheSame: only the times may differ.
func TestSaysTheSame(t *testing.T) {
	state := GPUState{UUID: uuid(0), Reason: "why", ClosedBy: []string{"agent"}, Tenant: "alice", Verified: new(true)}
	later := state
	later.Time, later.Since, later.ClosedBy, later.Verified = time.Unix(9, 0), time.Unix(8, 0), []string{"agent"}, new(true)
	if !state.SaysTheSame(later) {
		t.Error("a later answer of the same is another one")
	}
	for name, change := range map[string]func(*GPUState){
		"UUID":      func(s *GPUState) { s.UUID = uuid(1) },
		"Whole":     func(s *GPUState) { s.Whole = true },
		"Accept":    func(s *GPUState) { s.Accept = true },
		"Reason":    func(s *GPUState) { s.Reason = "" },
		"ClosedBy":  func(s *GPUState) { s.ClosedBy = append(s.ClosedBy, "operator") },
		"Tenant":    func(s *GPUState) { s.Tenant = "bob" },
		"Least":     func(s *GPUState) { s.Least = 1 },
		"Unlisted":  func(s *GPUState) { s.Unlisted = 1 },
		"Taken":     func(s *GPUState) { s.Taken = 1 },
		"unknown":   func(s *GPUState) { s.Verified = nil },
		"Verified":  func(s *GPUState) { s.Verified = new(false) },
		"Above":     func(s *GPUState) { s.Above = 1 },
		"AboveHost": func(s *GPUState) { s.AboveHost.CPUs = 1 },
		"Pending":   func(s *GPUState) { s.Pending = "slots" },
	} {
		o := later
		if change(&o); state.SaysTheSame(o) || o.SaysTheSame(state) {
			t.Errorf("another %s is the same", name)
		}
	}
}

// TestPushed: a change is sent to the collector at once for so long, and one of unknown time always.
func TestPushed(t *testing.T) {
	at := time.Unix(1795254170, 0)
	for name, c := range map[string]struct {
		changed time.Time
		want    bool
	}{"now": {at, true}, "until then": {at.Add(1 - pushFor), true}, "later": {at.Add(-pushFor), false}, "unknown": {time.Time{}, true}} {
		if got := pushed(at, c.changed); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
