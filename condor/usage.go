package condor

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/condor/classad"
)

// Use is what the job in one dynamic slot used up to now. What is not known is
// nil.
type Use struct {
	// SlotID and DSlotID are those of its slot.
	SlotID, DSlotID int
	// VRAM is the largest use that was seen, in MiB.
	VRAM *int64
	// GPUSeconds are physical GPU-seconds, GPUSecondsMin and GPUSecondsMax their
	// bounds; Joules is the job's part of the energy.
	GPUSeconds, GPUSecondsMin, GPUSecondsMax, Joules *float64
}

// usageMetrics are the names in STARTD_CRON_…_METRICS. "VRAM" becomes VRAMUsage
// in slot ad and job ad and the VRAM line of the event log. All are peaks: of
// a sum that only grows the largest value is the last one. The startd forgets
// it when the slot's next job begins. No name holds "Seconds": the startd takes
// that for another kind of metric and ignores it (seen on 25.14.1).
var usageMetrics = []struct {
	name string
	of   func(Use) *float64
}{
	{"VRAM", func(u Use) *float64 {
		if u.VRAM == nil {
			return nil
		}
		mib := float64(*u.VRAM)
		return &mib
	}},
	{"GPUTime", func(u Use) *float64 { return u.GPUSeconds }},
	{"GPUTimeMin", func(u Use) *float64 { return u.GPUSecondsMin }},
	{"GPUTimeMax", func(u Use) *float64 { return u.GPUSecondsMax }},
	{"GPUEnergy", func(u Use) *float64 { return u.Joules }},
}

// UsageAds prints one ad per slot for the STARTD_CRON job with METRICS. The
// constraint names the slot and not the job: the startd keeps that of the
// first report for ever (startd_named_classad.cpp). Only a slot's update of the
// collector brings the values to its job, so each ad asks for one.
func UsageAds(uses []Use) []byte {
	var out []byte
	for _, u := range uses {
		var ad classad.Ad
		ad.SetExpr("SlotMergeConstraint", fmt.Sprintf("SlotID == %d && DSlotID == %d", u.SlotID, u.DSlotID))
		for _, m := range usageMetrics {
			if v := m.of(u); v != nil {
				ad.SetExpr("Uptime"+m.name+"PeakUsage", strconv.FormatFloat(*v, 'f', 3, 64))
			}
		}
		out = append(out, ad.Print()...)
		out = append(out, fmt.Sprintf("- use_slot%d_%d update:true\n", u.SlotID, u.DSlotID)...)
	}
	return out
}

// usage lets the startd tell each job what it used.
func (t *text) usage(n Node) {
	if len(n.shared()) == 0 {
		return
	}
	var metrics []string
	for _, m := range usageMetrics {
		metrics = append(metrics, "PEAK:"+m.name)
	}
	t.line("")
	t.comment("What each job used: VRAMUsage (MiB), GPUTimeUsage (GPU-seconds), GPUEnergyUsage (joules) in its ad.")
	t.set("STARTD_CRON_JOBLIST", "$(STARTD_CRON_JOBLIST) GPUSLOT_USAGE")
	t.set("STARTD_CRON_GPUSLOT_USAGE_EXECUTABLE", "%s/gpuslot-condor", n.Libexec)
	t.set("STARTD_CRON_GPUSLOT_USAGE_ARGS", "usage -follow")
	t.set("STARTD_CRON_GPUSLOT_USAGE_MODE", "WaitForExit")
	t.set("STARTD_CRON_GPUSLOT_USAGE_PERIOD", "3s")
	t.set("STARTD_CRON_GPUSLOT_USAGE_KILL", "true")
	t.set("STARTD_CRON_GPUSLOT_USAGE_METRICS", "%s", strings.Join(metrics, ", "))
}
