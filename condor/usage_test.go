package condor

import (
	"strings"
	"testing"
)

// The ads name the slot and never the job (facts: the startd keeps the first
// report's constraint), and say nothing of what is not known.
func TestUsageAds(t *testing.T) {
	mib, seconds, least := int64(800), 12.5, 9.0
	got := string(UsageAds([]Use{
		{SlotID: 1, DSlotID: 2, VRAM: &mib, GPUSeconds: &seconds, GPUSecondsMin: &least},
		{SlotID: 3, DSlotID: 10},
	}))
	want := `SlotMergeConstraint = SlotID == 1 && DSlotID == 2
UptimeVRAMPeakUsage = 800.000
UptimeGPUTimePeakUsage = 12.500
UptimeGPUTimeMinPeakUsage = 9.000
- use_slot1_2 update:true
SlotMergeConstraint = SlotID == 3 && DSlotID == 10
- use_slot3_10 update:true
`
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// A node without shared GPUs has nobody to tell.
func TestUsageJob(t *testing.T) {
	for name, want := range map[string]bool{"shared": true, "mixed": true, "only-whole": false, "none": false} {
		text, err := ExecutionPoint(examples()[name])
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(text), "STARTD_CRON_GPUSLOT_USAGE_METRICS = PEAK:VRAM, PEAK:GPUTime, PEAK:GPUTimeMin, PEAK:GPUTimeMax, PEAK:GPUEnergy\n"); got != want {
			t.Errorf("%s: has the job: %v, want %v", name, got, want)
		}
	}
}
