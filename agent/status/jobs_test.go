package status

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// jobIn is a job of a slot, with 4096 MiB of the GPU.
func jobIn(slot string) jobs.Job {
	return jobs.Job{Starter: starter.Starter{ID: process.ID{PID: 100, Started: 1}, Slot: slot}, GPU: one, Budget: 4096, ID: "7.0",
		EnforcedBy: jobs.EnforcedByDaemon}
}

// TestJobsOfEachMode: the jobs of shared and of whole GPUs are in the status; who has a GPU whole has its memory.
func TestJobsOfEachMode(t *testing.T) {
	now := time.Now()
	for mode, budget := range map[config.Mode]int64{config.ModeMPS: 4096, config.ModeWhole: 32768, config.ModeMIG: 32768} {
		f := newFake(now)
		g := &f.node.Plan.GPUs[0]
		g.Mode, g.Memory, g.Name = mode, 32768, "Tesla V100S-PCIE-32GB"
		f.table.Admit(starter.Caller{}, func(*jobs.View) []jobs.Job { return []jobs.Job{jobIn("slot1_1")} })
		got := f.take(now).Status().GPUs[0]
		if len(got.Jobs) != 1 || got.Jobs[0].ID != "7.0" || got.Jobs[0].BudgetMiB != budget || got.UsedMiB != budget {
			t.Errorf("%s: %+v", mode, got)
		}
		here := f.reader().part(&f.node, jobIn("slot1_1"), 3, now)
		want := api.HereGPU{UUID: string(one), Name: got.Name, BudgetMiB: budget, EnforcedBy: jobs.EnforcedByDaemon, Neighbours: 3}
		if mode == config.ModeMPS { // no job is held by more than what is in force now
			want.EnforcedBy = jobs.EnforcedByNone
		}
		if d := cmp.Diff(want, here); d != "" || got.Jobs[0].EnforcedBy != want.EnforcedBy {
			t.Errorf("%s: the status says %q (-want +got):\n%s", mode, got.Jobs[0].EnforcedBy, d)
		}
	}
	f := newFake(now)
	f.node.Plan.GPUs = nil
	j := jobIn("slot1_1")
	j.Device = gpu.UUID("MIG-1")
	want := api.HereGPU{UUID: "MIG-1", BudgetMiB: 4096, EnforcedBy: jobs.EnforcedByDaemon}
	if d := cmp.Diff(want, f.reader().part(&f.node, j, 0, now)); d != "" {
		t.Errorf("of no GPU of the plan (-want +got):\n%s", d)
	}
}

// TestJobTable: each entry is in the status, also of a GPU that the plan lacks, and so is a job whose GPU is not known.
// It is there without jobs, too.
func TestJobTable(t *testing.T) {
	now := time.Now()
	f := newFake(now)
	if got := f.take(now).Status(); got.JobTable == nil || got.UnknownJob != "" {
		t.Errorf("without jobs: %+v, %q", got.JobTable, got.UnknownJob)
	}
	j := jobIn("slot1_1")
	left := jobIn("slot1_2")
	left.Starter.PID, left.GPU, left.Device = 101, "MIG-place", "MIG-1"
	f.table.Admit(starter.Caller{}, func(*jobs.View) []jobs.Job { return []jobs.Job{j, left} })
	f.table.Await([]starter.Starter{{ID: process.ID{PID: 102, Started: 1}, Slot: "slot1_3"}})
	got := f.take(now).Status()
	want := []api.StatusEntry{{Slot: "slot1_1", GPU: string(one)}, {Slot: "slot1_2", GPU: "MIG-place", Device: "MIG-1"}}
	if d := cmp.Diff(want, got.JobTable); d != "" || !strings.HasPrefix(got.UnknownJob, "slot1_3 runs since before") {
		t.Errorf("%q (-want +got):\n%s", got.UnknownJob, d)
	}
}

// TestSilence: from the first moment of the startd's silence no GPU takes jobs, and the reason of a closed one stays.
func TestSilence(t *testing.T) {
	f := newFake(time.Now())
	s := f.take(time.Now())
	hot := s.GPUs[0]
	hot.Reason = "too hot"
	s.Silent, s.GPUs = 1, append(s.GPUs, hot)
	got := s.Status().GPUs
	if got[0].Accept || got[0].Reason == "" || got[1].Accept || got[1].Reason != "too hot" {
		t.Errorf("%+v", got)
	}
	if s.Silent = 0; !s.Status().GPUs[0].Accept {
		t.Error("a startd that asks")
	}
}

func TestWeaker(t *testing.T) {
	order := []string{jobs.EnforcedByNone, jobs.EnforcedByWatch, jobs.EnforcedByDaemon, jobs.EnforcedByCgroup, jobs.EnforcedByWhole}
	for i, a := range order {
		for j, b := range order {
			if weaker(a, b) != (i < j) {
				t.Errorf("%s is weaker than %s: %t", a, b, i >= j)
			}
		}
	}
	if weaker(jobs.EnforcedByMIG, jobs.EnforcedByWhole) || weaker(jobs.EnforcedByWhole, jobs.EnforcedByMIG) {
		t.Error("a MIG device is as strong as a whole GPU")
	}
}
