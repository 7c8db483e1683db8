package sampling

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/rules"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// A record has what is known, and no zero for what is not.
func TestRecordOf(t *testing.T) {
	begin := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	end := begin.Add(time.Hour)
	r := jobs.Job{Starter: starter.Starter{ID: process.ID{PID: 7, Started: 8}, Slot: "slot1_2@wn1"}, GPU: uuid(0), Budget: 4096, Owner: "alice", ID: "12.0", Group: "atlas", EnforcedBy: jobs.EnforcedByWatch, Since: begin}
	p := &plan.Plan{GPUs: []plan.GPU{{UUID: uuid(0), Name: "Tesla V100S", Mode: config.ModeMPS, Memory: 32768, Pool: 32768}}}
	used := usage.SlotUsage{Slot: rules.SlotKey(r.Starter), Device: usage.Device{GPU: uuid(0)}, Method: usage.MethodMPS, Peak: gpu.Known(gpu.Bytes(gpu.MiB(800).Bytes())),
		Job: usage.SlotTotals{SM: usage.Spread{Upper: gpu.Known(12.3456)}}}
	head := `{"slot":"slot1_2","job":"12.0","owner":"alice","group":"atlas","mode":"mps","gpu":"GPU-00000000-0000-4000-8000-000000000000","model":"Tesla V100S","memory_mib":32768,"share":0.125,"budget_mib":4096,"wall":"watch","begin":"2026-11-21T12:00:00Z","end":"2026-11-21T13:00:00Z"`
	next := used
	next.Slot.Starter = 9
	held := r
	held.Hold = api.Hold{Code: 76, Reason: "used 5000 MiB"}
	adopted := r
	adopted.Adopted = true
	for name, tt := range map[string]struct {
		running jobs.Job
		snap    usage.Snapshot
		want    string
	}{
		"not sampled":    {r, usage.Snapshot{}, head + "}"},
		"still sampled":  {r, usage.Snapshot{Slots: []usage.SlotUsage{used}}, head + `,"vram_peak_mib":800,"method":"mps","sm_seconds":{"max":12.346}}`},
		"ended":          {r, usage.Snapshot{Ended: []usage.SlotUsage{used}}, head + `,"vram_peak_mib":800,"method":"mps","sm_seconds":{"max":12.346}}`},
		"another's":      {r, usage.Snapshot{Slots: []usage.SlotUsage{next}, Ended: []usage.SlotUsage{next}}, head + "}"},
		"held":           {held, usage.Snapshot{}, head + `,"hold_code":76,"hold_reason":"used 5000 MiB"}`},
		"from before us": {adopted, usage.Snapshot{}, head + `,"partial":true}`},
	} {
		got, err := json.Marshal(recordOf(tt.running, &tt.snap, p, end))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(tt.want, string(got)); d != "" {
			t.Errorf("%s: (-want +got)\n%s", name, d)
		}
	}
}
