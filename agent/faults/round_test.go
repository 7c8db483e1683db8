package faults

import (
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// TestAsksAgain: a driver that asks again during the pause after a reset tells
// of the same fault, and the GPU waits for another reset.
func TestAsksAgain(t *testing.T) {
	var x Tracker
	now := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	look := func(after time.Duration, r gpu.RecoveryAction) Verdict {
		now = now.Add(after)
		x.Round(now, []Sight{{Condition: gpu.Condition{GPU: gpuA, Recovery: &r}}})
		return x.Verdict(gpuA, now)
	}
	look(0, gpu.RecoveryNone)
	look(time.Second, gpu.RecoveryGPUReset)
	look(time.Second, gpu.RecoveryNone) // the first fault has no pause
	second := look(time.Second, gpu.RecoveryGPUReset)
	if v := look(time.Second, gpu.RecoveryNone); !v.Closed() || v.Until.IsZero() {
		t.Fatalf("no pause after the second fault: %+v", v)
	}
	again := look(time.Second, gpu.RecoveryGPUReset)
	if !again.Since.Equal(second.Since) || strings.Contains(again.Reason, "fault number 3") {
		t.Errorf("the same fault counts twice: %+v", again)
	}
	if v := look(flapPause.Longest, gpu.RecoveryGPUReset); !v.Closed() {
		t.Error("it opened while the driver asks for a reset")
	}
}
