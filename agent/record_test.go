package agent

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
)

// A record has what is known, and no zero for what is not.
func TestRecordOf(t *testing.T) {
	begin := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	end := begin.Add(time.Hour)
	r := Running{Starter: Starter{PID: 7, Started: 8, Slot: "slot1_2@wn1"}, GPU: uuid(0), Budget: 4096, Owner: "alice", Job: "12.0", Group: "atlas", Wall: wallWatch, Since: begin}
	p := &plan.Plan{GPUs: []plan.GPU{{UUID: uuid(0), Name: "Tesla V100S", Mode: config.ModeMPS, Memory: 32768, Pool: 32768}}}
	used := usage.SlotUsage{Slot: slotKey(r.Starter), Device: usage.Device{GPU: uuid(0)}, Method: usage.MethodMPS, Peak: gpu.Known(gpu.Bytes(gpu.MiB(800).Bytes())),
		Job: usage.SlotTotals{SM: usage.Spread{Upper: gpu.Known(12.3456)}}}
	head := `{"slot":"slot1_2","job":"12.0","owner":"alice","group":"atlas","mode":"mps","gpu":"GPU-00000000-0000-4000-8000-000000000000","model":"Tesla V100S","memory_mib":32768,"share":0.125,"budget_mib":4096,"wall":"watch","begin":"2026-11-21T12:00:00Z","end":"2026-11-21T13:00:00Z"`
	next := used
	next.Slot.Starter = 9
	held := r
	held.Hold = api.Hold{Code: 76, Reason: "used 5000 MiB"}
	adopted := r
	adopted.Adopted = true
	for name, tt := range map[string]struct {
		running Running
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

// The share is of the GPU, also on a MIG device: by compute slices where they are
// published, else by memory.
func TestRecordOfMIGDevice(t *testing.T) {
	device := plan.GPU{UUID: migUUID, Parent: uuid(0), Name: "A100", Mode: config.ModeMIG, Memory: 9856, Pool: 9856, Slices: 2}
	p := &plan.Plan{GPUs: []plan.GPU{device}, MIG: []plan.MIGGPU{{UUID: uuid(0), Memory: 40960, Slices: 7}}}
	r := Running{Starter: Starter{Slot: "slot1_1@wn1"}, GPU: migUUID, Budget: 4928}
	share := func(change func()) float64 {
		change()
		return recordOf(r, &usage.Snapshot{}, p, time.Now()).Share
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

// What was written is read in order, over rotations, within the bound, and past
// a torn line.
func TestLines(t *testing.T) {
	l := lines{dir: t.TempDir() + "/new", name: "events", most: 100, kept: 2}
	for i := range 40 {
		if err := l.add(fmt.Appendf(nil, "{\"n\":%d}\n", i)); err != nil {
			t.Fatal(err)
		}
	}
	numbers := func() (all []int) {
		var v struct{ N *int }
		err := l.read(func(line []byte) {
			v.N = nil
			if json.Unmarshal(line, &v) == nil && v.N != nil {
				all = append(all, *v.N)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	got := numbers()
	for i, n := range got {
		if n != 40-len(got)+i {
			t.Fatalf("read %v: not the last ones in order", got)
		}
	}
	if len(got) < 20 || len(got) > 34 {
		t.Errorf("%d lines are left; 3 files of 100 bytes hold 20 to 34", len(got))
	}
	files, err := os.ReadDir(l.dir)
	if err != nil || len(files) != 3 {
		t.Errorf("%d files, want 3 (%v)", len(files), err)
	}
	f, err := os.OpenFile(l.path(0), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = f.WriteString(`{"n":9`)
	_ = f.Close()
	if err := l.add([]byte("{\"n\":40}\n")); err != nil {
		t.Fatal(err)
	}
	if got := numbers(); got[len(got)-1] != 40 || got[len(got)-2] != 39 {
		t.Errorf("after a torn line: %v", got)
	}
	if info, err := os.Stat(l.path(0)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: lines name users, only root may read them", info.Mode(), err)
	}
}

// Any file is read without an error, and what is accepted is a whole record.
func FuzzRecords(f *testing.F) {
	f.Add([]byte(`{"slot":"slot1_1","gpu":"GPU-5a1e0c11-7d02-4b6a-9c31-0e84a2d1f001","begin":"2026-11-21T12:00:00Z","end":"2026-11-21T13:00:00Z"}` + "\n"))
	f.Add([]byte("{\n\n\x00"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p := config.Paths{State: t.TempDir()}
		if err := recordsOf(p).add(text); err != nil {
			t.Fatal(err)
		}
		all, err := Records(p, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range all {
			if r.Slot == "" || r.End.IsZero() {
				t.Errorf("accepted %+v", r)
			}
		}
	})
}
