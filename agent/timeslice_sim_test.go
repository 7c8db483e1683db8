//go:build cgo

package agent

import (
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// TestTimeSlicesSimulated: jobs share a GPU of driver 615 without MPS, each with the driver's limit.
// The fault of one ends no other.
func TestTimeSlicesSimulated(t *testing.T) {
	onSimulatedCgroups(t, "[sharing]\nmode = \"time-slice\"\n", (*simulatedCgroups).slices)
}

// slices is the life of two jobs of two accounts.
func (s *simulatedCgroups) slices() {
	t := s.t
	s.verdict()
	g := s.status().GPUs[0]
	if !g.Accept || g.EnforcedBy != jobs.EnforcedByCgroup || g.ComputeMode != string(gpu.ComputeModeDefault) || g.DaemonPID != 0 {
		t.Fatalf("accepts %t (%s), wall %s, compute mode %s", g.Accept, g.Reason, g.EnforcedBy, g.ComputeMode)
	}
	first, second := s.slice(100, 1000, "slot1_1", 4096), s.slice(200, 1001, "slot1_2", 8192)

	// The limit is there before the program runs, as its supervisor asks.
	one := s.process(first, "info alloc 2000 fault illegal_address")
	two := s.process(second, "go on alloc 5000 alloc 4000 load 10 200ms sync")
	for _, st := range []starter.Starter{first, second} {
		if reply := s.start(st); reply.Started == nil || !reply.Started.Reserved || !reply.Started.Supervise {
			t.Fatalf("%+v", reply)
		}
	}
	two.goOn()
	two.says("alloc 5000 MiB: ok")
	if got := two.says("alloc 4000"); !strings.Contains(got, "CUDA_ERROR_OUT_OF_MEMORY") {
		t.Errorf("beyond its budget a job got %q", got)
	}
	one.goOn()
	if got := one.says("info"); !strings.Contains(got, " of 4096 MiB: ok") {
		t.Errorf("CUDA shows %q, not the budget", got)
	}
	if got := one.says("fault"); !strings.Contains(got, "ILLEGAL_ADDRESS") {
		t.Fatalf("the fault: %q", got)
	}
	if got := two.says("sync"); !strings.HasSuffix(got, ": ok") {
		t.Errorf("beside a job with a fault: %q", got)
	}
	s.round()
	for _, j := range s.status().GPUs[0].Jobs {
		if j.EnforcedBy != jobs.EnforcedByCgroup {
			t.Errorf("wall %s of %s", j.EnforcedBy, j.Slot)
		}
	}
	s.verdict()

	// A job whose limit cannot be set does not start, and keeps others away for a while.
	third, fourth := s.slice(300, 1000, "slot1_3", 4096), s.slice(400, 1000, "slot1_4", 4096)
	s.process(third, "info")
	s.simgpu("fail", "0", "nvmlDeviceSetMemoryLimits_v1", "3")
	if reply := s.start(third); reply.Refusal == nil || reply.Refusal.Code != api.CodeClosed {
		t.Errorf("without its limit a job starts: %+v", reply)
	}
	if g := s.status().GPUs[0]; g.Accept || !strings.Contains(g.Reason, "did not limit the VRAM of its last job") {
		t.Errorf("accepts %t: %s", g.Accept, g.Reason)
	}
	s.simgpu("release", "0")
	s.process(fourth, "info")
	if reply := s.start(fourth); reply.Started == nil {
		t.Errorf("%+v", reply)
	}
	s.verdict()
}

// slice admits a job of an account, without anything of MPS in its environment.
func (s *simulatedCgroups) slice(pid int, uid uint32, slot string, mib int64) starter.Starter {
	s.t.Helper()
	st := s.proc.starter(pid, slot)
	reply := s.admission.Prepare(s.t.Context(), hookOf(st, uid), jobOn(st, "alice", s.gpu, mib))
	if reply.Grant == nil {
		s.t.Fatalf("%+v %s", reply.Refusal, reply.Error)
	}
	for name := range reply.Grant.Environment {
		if strings.HasPrefix(name, "CUDA_MPS_") || name == "GPUSLOT_BIND" {
			s.t.Errorf("%s is in the environment", name)
		}
	}
	return st
}

// start asks as the supervisor of a job does.
func (s *simulatedCgroups) start(st starter.Starter) api.Reply {
	s.t.Helper()
	const supervisor = 5000
	s.proc.Add(proctree.Process{PID: supervisor + st.PID, Parent: st.PID, Comm: "supervise", Cgroup: s.leaf(st)})
	return s.admission.Start(s.t.Context(), s.proc.caller(1000, supervisor+st.PID, st))
}

// verdict wants the GPU open.
func (s *simulatedCgroups) verdict() {
	s.t.Helper()
	if g := s.status().GPUs[0]; !g.Accept {
		s.t.Errorf("closed: %s", g.Reason)
	}
	if word := s.view.Load().startWord(false); word != api.StartRequired {
		s.t.Errorf("supervisors read %q", word)
	}
}
