package sampling

import (
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/rules"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
)

func TestUsesOf(t *testing.T) {
	now := time.Now()
	first := starter.Starter{ID: process.ID{PID: 11, Started: 100}, Slot: "slot1_1@wn1"}
	next := starter.Starter{ID: process.ID{PID: 12, Started: 200}, Slot: "slot1_1@wn1"}
	on := func(s starter.Starter, d string, mib gpu.MiB, seconds float64) usage.SlotUsage {
		return usage.SlotUsage{Slot: rules.SlotKey(s), Device: usage.Device{GPU: gpu.UUID(d)}, Peak: gpu.Known(gpu.Bytes(mib.Bytes())),
			Job: usage.SlotTotals{SM: usage.Spread{Estimate: gpu.Known(seconds), Upper: gpu.Known(2 * seconds)}}}
	}
	runs := func(s starter.Starter, job string, gpus ...string) (out []jobs.Job) {
		for _, g := range gpus {
			out = append(out, jobs.Job{Starter: s, ID: job, GPU: gpu.UUID(g), Since: now.Add(-time.Minute)})
		}
		return out
	}
	both := append(runs(first, "1.0", "GPU-a"), runs(next, "1.1", "GPU-a")...)
	samples := []usage.SlotUsage{on(first, "GPU-a", 800, 12.3456), on(next, "GPU-a", 300, 1)}
	two := []usage.SlotUsage{on(first, "GPU-a", 800, 1), on(first, "GPU-b", 100, 2)}
	half := []usage.SlotUsage{on(first, "GPU-a", 800, 1), {Slot: rules.SlotKey(first), Device: usage.Device{GPU: "GPU-b"}}}
	for name, tt := range map[string]struct {
		slots   []usage.SlotUsage
		running []jobs.Job
		age     time.Duration
		mib     int64   // of the one use; -1 unknown
		seconds float64 // -1 unknown
		none    bool
	}{
		"one":                        {slots: samples, running: runs(first, "1.0", "GPU-a"), mib: 800, seconds: 12.346},
		"the next in its slot":       {slots: samples, running: runs(next, "1.1", "GPU-a"), mib: 300, seconds: 1},
		"not sampled yet":            {slots: samples[:1], running: runs(next, "1.1", "GPU-a"), none: true},
		"both are there":             {slots: samples, running: both, none: true},
		"old samples":                {slots: samples, running: runs(first, "1.0", "GPU-a"), age: 4 * time.Second, none: true},
		"on two GPUs":                {slots: two, running: runs(first, "1.0", "GPU-a", "GPU-b"), mib: 900, seconds: 3},
		"on two, one of them unread": {slots: half, running: runs(first, "1.0", "GPU-a", "GPU-b"), mib: -1, seconds: -1},
	} {
		got := usesOf(&usage.Snapshot{At: now.Add(-tt.age), Slots: tt.slots}, tt.running, time.Second, now)
		if tt.none {
			if len(got) != 0 {
				t.Errorf("%s: %+v, want none", name, got)
			}
			continue
		}
		if len(got) != 1 || got[0].Slot != "slot1_1" || got[0].Job != tt.running[0].ID || got[0].Seconds != 60 {
			t.Fatalf("%s: %+v", name, got)
		}
		if mib := orElse(got[0].PeakMiB, -1); mib != tt.mib {
			t.Errorf("%s: %d MiB, want %d", name, mib, tt.mib)
		}
		if s := orElse(got[0].GPUSeconds, -1); s != tt.seconds {
			t.Errorf("%s: %v s, want %v", name, s, tt.seconds)
		}
		if got[0].GPUSecondsMin != nil {
			t.Errorf("%s: a lower bound of %v, which is not known", name, *got[0].GPUSecondsMin)
		}
	}
}

func orElse[T any](p *T, unknown T) T {
	if p == nil {
		return unknown
	}
	return *p
}
