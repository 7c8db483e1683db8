package agent

import (
	"strings"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
)

func vram(n int64) *int64 { return &n }

// jobOn is a job as a hook tells of it.
func jobOn(s starter.Starter, owner string, u gpu.UUID, mib int64) *api.Job {
	return &api.Job{ID: strings.TrimPrefix(s.Slot, "slot") + ".0", Owner: owner, AssignedGPUs: []string{string(u)}, ProvisionedVRAM: vram(mib), RequestVRAM: vram(mib), RequestGPUs: vram(1)}
}

// prepare asks as a test does, with no end but the test's.
func (ta *testAgent) prepare(c starter.Caller, job *api.Job) api.Reply {
	ta.t.Helper()
	return ta.admission.Prepare(ta.t.Context(), c, job)
}

// forgetQuestions lets a starter's hook ask as if the starter were another one:
// a refused job comes back with a new starter.
func (ta *testAgent) forgetQuestions(s starter.Starter) {
	ta.admission.Forget(s)
}

func hookOf(s starter.Starter, uid uint32) starter.Caller {
	return starter.Caller{UID: uid, PID: 4000, Hook: true, Starter: s}
}

// grant has a job admitted, or fails the test.
func (ta *testAgent) grant(s starter.Starter, uid uint32, owner string, u gpu.UUID, mib int64) *api.Grant {
	ta.t.Helper()
	ta.forgetQuestions(s)
	reply := ta.prepare(hookOf(s, uid), jobOn(s, owner, u, mib))
	if reply.Grant == nil {
		ta.t.Fatalf("%s was not admitted: %+v %s", s.Slot, reply.Refusal, reply.Error)
	}
	return reply.Grant
}

func (ta *testAgent) refuse(s starter.Starter, uid uint32, owner string, u gpu.UUID, mib int64) *api.Refusal {
	ta.t.Helper()
	ta.forgetQuestions(s)
	reply := ta.prepare(hookOf(s, uid), jobOn(s, owner, u, mib))
	if reply.Refusal == nil {
		ta.t.Fatalf("%s was not refused: %+v %s", s.Slot, reply.Grant, reply.Error)
	}
	return reply.Refusal
}
