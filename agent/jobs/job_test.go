package jobs

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/record"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
)

// What a record says of a job comes from the hook or the startd, never from the
// job itself; what neither says is absent.
func TestWork(t *testing.T) {
	n := func(v int64) *int64 { return &v }
	f := func(v float64) *float64 { return &v }
	job := &api.Job{Program: "train.py", Batch: "night", Schedd: "ap.test", Docker: true, RequestGPUs: n(1), RequestCPUs: n(2), RequestMemory: n(4000)}
	hook := Work{"train.py", "night", "ap.test", true, record.Requested{GPUs: f(1), CPUs: f(2), MemoryMiB: n(4000)}}
	dynamic := condor.Slot{Type: "Dynamic", Schedd: "ap.test", GPUs: 1, Cpus: 3, Memory: 4096, VRAM: n(6144)}
	published := dynamic
	published.Program, published.RequestGPUs, published.RequestMemory = "train.py", n(1), n(4000)
	static := dynamic
	static.Type = "Static"
	made := record.Requested{GPUs: f(1), CPUs: f(3), MemoryMiB: n(4096), VRAMMiB: n(6144)}
	for name, tt := range map[string]struct{ got, want Work }{
		"the hook":              {WorkOf(starter.Caller{Hook: true}, job), hook},
		"the job itself":        {WorkOf(starter.Caller{}, job), Work{}},
		"a dynamic slot":        {workIn(dynamic), Work{Schedd: "ap.test", Requested: made}},
		"STARTD_JOB_ATTRS":      {workIn(published), Work{Program: "train.py", Schedd: "ap.test", Requested: record.Requested{GPUs: f(1), MemoryMiB: n(4000)}}},
		"a static slot":         {workIn(static), Work{Schedd: "ap.test"}},
		"the hook goes first":   {hook.or(workIn(dynamic)), hook},
		"the startd fills gaps": {Work{Batch: "night"}.or(workIn(dynamic)), Work{Batch: "night", Schedd: "ap.test", Requested: made}},
	} {
		if d := cmp.Diff(tt.want, tt.got); d != "" {
			t.Errorf("%s: (-want +got)\n%s", name, d)
		}
	}
}
