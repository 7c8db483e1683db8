package agent

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// TestHere: a process of a job hears what its own slot holds, and of its
// neighbour nothing but that there is one.
func TestHere(t *testing.T) {
	s := serveTestAgent(t, 2)
	mine := s.in("slot1_1", false)
	s.grant(mine, uint32(os.Getuid()), "alice", uuid(0), 4096)
	s.grant(s.proc.starter(1001, "slot1_2"), uint32(os.Getuid()), "bob-secret", uuid(0), 8192)
	s.grant(s.proc.starter(1002, "slot2_1"), uint32(os.Getuid()), "bob-secret", uuid(1), 2048)
	reply, err := s.call(api.Request{Op: api.OpHere})
	if err != nil || reply.Here == nil {
		t.Fatalf("%+v, %v", reply, err)
	}
	want := &api.Here{Slot: "slot1_1", Job: jobOn(mine, "alice", uuid(0), 4096).ID, GPUs: []api.HereGPU{{
		UUID: string(uuid(0)), Name: "Tesla V100S-PCIE-32GB", BudgetMiB: 4096, EnforcedBy: reply.Here.GPUs[0].EnforcedBy, Neighbours: 1}}}
	if diff := cmp.Diff(want, reply.Here); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if w := reply.Here.GPUs[0].EnforcedBy; w != jobs.EnforcedByNone { // this test does not sample
		t.Errorf("wall %q", w)
	}
	s.proc.Add(proctree.Process{PID: 200, Parent: 1, Comm: "train", Cgroup: proctree.CgroupOf("slot1_1")})
	s.sampled(gpu.DeviceProcess{PID: 200, Memory: gpu.Known(gpu.Bytes(300 * mib)), MPSClient: true})
	reply, err = s.call(api.Request{Op: api.OpHere})
	if err != nil || reply.Here.GPUs[0].UseMiB == nil || *reply.Here.GPUs[0].UseMiB != 300 {
		t.Errorf("%+v, %v", reply.Here, err)
	}
	s.jobs.Hold(mine, api.Hold{Slot: "slot1_1", Job: want.Job, Code: api.CodeOverBudget, Reason: "too much"})
	if gone := (starter.Starter{ID: process.ID{PID: 9, Started: 9}, Slot: "slot9_9"}); s.jobs.Hold(gone, api.Hold{Slot: "slot9_9"}) || len(s.jobs.Holds()) != 1 {
		t.Errorf("a job that has ended is held: %+v", s.jobs.Holds())
	}
	if reply, err = s.call(api.Request{Op: api.OpHere}); err != nil || reply.Here.Hold != "too much" {
		t.Errorf("%+v, %v", reply.Here, err)
	}
}

// sampled makes one sample of the first GPU, with these processes.
func (s *served) sampled(all ...gpu.DeviceProcess) {
	s.t.Helper()
	r := gpu.Reading{GPU: uuid(0), At: s.view.Load().applied}
	r.Processes = gpu.Known(all)
	s.reads(&fakeUsage{[]gpu.Reading{r}})
	s.sampling.Round(s.t.Context())
}

// TestHereWithoutAGPU: a job without one, one that left its parents behind, and
// a caller that is no job's.
func TestHereWithoutAGPU(t *testing.T) {
	s := serveTestAgent(t, 1)
	s.in("slot9_1", false)
	reply, err := s.call(api.Request{Op: api.OpHere})
	if err != nil || reply.Here == nil || reply.Here.Slot != "slot9_1" || len(reply.Here.GPUs) > 0 {
		t.Errorf("a CPU-only job: %+v, %v", reply.Here, err)
	}
	s.proc.Add(proctree.Process{PID: os.Getpid(), Parent: 1, Comm: "left", UID: uint32(os.Getuid()), Cgroup: proctree.CgroupOf("slot9_1")})
	if reply, err = s.call(api.Request{Op: api.OpHere}); err != nil || reply.Here == nil || len(reply.Here.GPUs) > 0 || reply.Here.Slot != "slot9_1" {
		t.Errorf("its daemon: %+v, %v", reply.Here, err)
	}
	s.proc.Add(proctree.Process{PID: os.Getpid(), Parent: 1, Comm: "bash", Cgroup: "/user.slice"})
	if reply, err = s.call(api.Request{Op: api.OpHere}); err != nil || !reply.NoJob || reply.Here != nil {
		t.Errorf("no job's process: %+v, %v", reply, err)
	}
}
