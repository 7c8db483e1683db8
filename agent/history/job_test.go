package history

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/record"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
)

const (
	aGPU   = gpu.UUID("GPU-00000000-0000-4000-8000-000000000000")
	device = gpu.UUID("MIG-00000000-0000-5000-8000-000000000000")
)

// TestComplete: a record has what is known, and no zero for what is not.
func TestComplete(t *testing.T) {
	begin := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	r := record.Job{Slot: "slot1_2", GPU: aGPU, BudgetMiB: 4096, Begin: begin, End: begin.Add(time.Hour)}
	p := &plan.Plan{GPUs: []plan.GPU{{UUID: aGPU, Name: "Tesla V100S", Mode: config.ModeMPS, Memory: 32768, Pool: 32768}}}
	slot := usage.SlotKey{Slot: "slot1_2", Starter: 7, Started: 8}
	used := usage.SlotUsage{Slot: slot, Device: usage.Device{GPU: aGPU}, Method: usage.MethodMPS,
		Peak: gpu.Known(gpu.Bytes(gpu.MiB(800).Bytes())),
		Job:  usage.SlotTotals{SM: usage.Spread{Upper: gpu.Known(12.3456)}}}
	next := used
	next.Slot.Starter = 9
	const known = `{"slot":"slot1_2","mode":"mps","gpu":"GPU-00000000-0000-4000-8000-000000000000",` +
		`"model":"Tesla V100S","memory_mib":32768,"share":0.125,"budget_mib":4096,"begin":"2026-11-21T12:00:00Z","end":"2026-11-21T13:00:00Z"`
	const sampled = known + `,"vram_peak_mib":800,"method":"mps","sm_seconds":{"max":12.346}}`
	for name, tt := range map[string]struct {
		plan *plan.Plan
		snap usage.Snapshot
		want string
	}{
		"not sampled":   {p, usage.Snapshot{}, known + "}"},
		"still sampled": {p, usage.Snapshot{Slots: []usage.SlotUsage{used}}, sampled},
		"ended":         {p, usage.Snapshot{Ended: []usage.SlotUsage{used}}, sampled},
		"another's":     {p, usage.Snapshot{Slots: []usage.SlotUsage{next}, Ended: []usage.SlotUsage{next}}, known + "}"},
		"not planned": {&plan.Plan{}, usage.Snapshot{}, `{"slot":"slot1_2","gpu":"GPU-00000000-0000-4000-8000-000000000000",` +
			`"budget_mib":4096,"begin":"2026-11-21T12:00:00Z","end":"2026-11-21T13:00:00Z"}`},
	} {
		got, err := json.Marshal(Complete(r, slot, tt.plan, &tt.snap))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(tt.want, string(got)); d != "" {
			t.Errorf("%s: (-want +got)\n%s", name, d)
		}
	}
}

// TestShareOfMIGDevice: the share is of the GPU, also on a MIG device: by compute
// slices where they are published, else by memory.
func TestShareOfMIGDevice(t *testing.T) {
	mig := plan.GPU{UUID: device, Parent: aGPU, Name: "A100", Mode: config.ModeMIG, Memory: 9856, Pool: 9856, Slices: 2}
	p := &plan.Plan{GPUs: []plan.GPU{mig}, MIG: []plan.MIGGPU{{UUID: aGPU, Memory: 40960, Slices: 7}}}
	share := func(change func()) float64 {
		change()
		r := record.Job{Slot: "slot1_1", GPU: device, BudgetMiB: 4928}
		return Complete(r, usage.SlotKey{}, p, &usage.Snapshot{}).Share
	}
	for _, tt := range []struct {
		change func()
		want   float64
	}{
		{func() {}, 2.0 / 7},
		{func() { p.GPUs[0].Slices, p.MIG[0].Slices = 0, 0 }, 9856.0 / 40960},
		{func() { p.GPUs[0].Mode = config.ModeMPS }, 9856.0 / 40960 / 2}, // a device that two jobs share
	} {
		if got := share(tt.change); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%v, want %v", got, tt.want)
		}
	}
}

func TestEndText(t *testing.T) {
	begin, peak := time.Unix(1760000000, 0), int64(6000)
	r := record.Job{Begin: begin, End: begin.Add(90*time.Second + time.Millisecond)}
	if got, want := EndText(r), "The job ended after 1m30s."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	r.PeakMiB, r.MemoryMiB, r.HoldReason = &peak, 16384, "used too much"
	const held = "The job ended after 1m30s; its VRAM peaked at 6000 MiB of 16384 MiB; gpuslot had it held: used too much."
	if got := EndText(r); got != held {
		t.Errorf("%q, want %q", got, held)
	}
	r.BudgetMiB, r.HoldReason = 4096, ""
	if got, want := EndText(r), "The job ended after 1m30s; its VRAM peaked at 6000 MiB of 4096 MiB."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
