package admission

import (
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// What a job with 7680 of 30720 MiB asks for, and what it gets.
func TestThreads(t *testing.T) {
	equal := plan.Threads{Policy: config.ThreadsEqual}
	for _, c := range []struct {
		name    string
		threads plan.Threads
		asks    string
		want    string // CUDA_MPS_ACTIVE_THREAD_PERCENTAGE; empty if not set
		refused string
	}{
		{"no cap, nothing asked", plan.Threads{Policy: config.ThreadsUncapped}, "", "", ""},
		{"no cap, less", plan.Threads{Policy: config.ThreadsUncapped}, "30", "30", ""},
		{"no cap, all", plan.Threads{Policy: config.ThreadsUncapped}, "100", "", ""},
		{"an eighth, nothing asked", equal, "", "12.5", ""},
		{"an eighth, less", equal, "5.55", "5.5", ""},
		{"an eighth, the same", equal, "12.5", "12.5", ""},
		{"an eighth, more", equal, "13", "", "write +RequestGPUThreads = 12.5 or less, or leave it out"},
		{"on request up to a half", plan.Threads{Policy: config.ThreadsEqual, Most: 50}, "50", "50", ""},
		{"but not by itself", plan.Threads{Policy: config.ThreadsEqual, Most: 50}, "", "12.5", ""},
		{"above the bound", plan.Threads{Policy: config.ThreadsEqual, Most: 50}, "50.1", "", "write +RequestGPUThreads = 50 or less, or leave it out"},
		{"by VRAM", plan.Threads{Policy: config.ThreadsByVRAM}, "", "25", ""},
		{"by VRAM, more", plan.Threads{Policy: config.ThreadsByVRAM}, "30", "", "write +RequestGPUThreads = 25 or less, or leave it out"},
		{"a number for all", plan.Threads{Policy: config.ThreadsFixed, Percent: 33.3}, "", "33.3", ""},
		{"nothing", equal, "0", "", "such as +RequestGPUThreads = 12.5, or leave it out"},
		{"less than nothing", equal, "-1", "", "is no percentage"},
		{"next to nothing", equal, "0.09", "", "is no percentage"},
		{"the least", equal, "0.1", "0.1", ""},
		{"too much", plan.Threads{Policy: config.ThreadsUncapped}, "101", "", "RequestGPUThreads = 101 is no percentage"},
		{"text", equal, `"30"`, "", "write a number without quotes"},
		{"an expression", equal, "10 * 3", "", "is no percentage"},
		{"no number", equal, "NaN", "", "is no percentage"},
		{"infinity", equal, "inf", "", "is no percentage"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := admitState()
			s.Plan.GPUs[0].Threads = c.threads
			job := &api.Job{AssignedGPUs: []string{string(uuid(0))}, ProvisionedVRAM: vram(7680), RequestThreads: c.asks}
			grant, r := Decide(s, starter.Caller{UID: 1000, Starter: starter.Starter{ID: process.ID{PID: 100, Started: 1}}}, job)
			if c.refused != "" {
				if r == nil || r.Code != api.CodeBadThreads || r.Requeue || !strings.Contains(r.Reason, c.refused) {
					t.Errorf("refusal %+v", r)
				}
				return
			}
			if r != nil {
				t.Fatalf("refused: %s", r.Reason)
			}
			if got := grant.Environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"]; got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// FuzzThreads: whatever a user writes, a job gets a percentage within the
// bound or is held.
func FuzzThreads(f *testing.F) {
	for _, s := range []string{"30", "1e2", "0x1p3", "-0", "", "1_0", "12.5000001"} {
		f.Add(s, 40.0)
	}
	f.Fuzz(func(t *testing.T, asks string, most float64) {
		g := &plan.GPU{UUID: uuid(0), Shares: 8, Pool: 30720, Threads: plan.Threads{Policy: config.ThreadsEqual, Most: most}}
		if !(most >= 0 && most <= 100) {
			return // config refuses it
		}
		percent, r := threadsOf(g, 4096, &api.Job{RequestThreads: asks})
		if r != nil {
			if r.Code != api.CodeBadThreads || strings.ContainsAny(percentText(percent), "-Ne") {
				t.Errorf("%q: %+v", asks, r)
			}
			return
		}
		if percent < leastThreads || percent > max(12.5, most) {
			t.Errorf("%q of at most %v: %v", asks, most, percent)
		}
	})
}
