package agent

import (
	"strings"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/gpu"
)

func vram(n int64) *int64 { return &n }

// jobOn is a job as a hook tells of it.
func jobOn(s Starter, owner string, u gpu.UUID, mib int64) *api.Job {
	return &api.Job{ID: strings.TrimPrefix(s.Slot, "slot") + ".0", Owner: owner, AssignedGPUs: []string{string(u)}, ProvisionedVRAM: vram(mib), RequestVRAM: vram(mib), RequestGPUs: vram(1)}
}

func hookOf(s Starter, uid uint32) Caller { return Caller{UID: uid, PID: 4000, Hook: true, Starter: s} }

// grant has a job admitted, or fails the test.
func (ta *testAgent) grant(s Starter, uid uint32, owner string, u gpu.UUID, mib int64) *api.Grant {
	ta.t.Helper()
	reply := ta.prepare(hookOf(s, uid), jobOn(s, owner, u, mib))
	if reply.Grant == nil {
		ta.t.Fatalf("%s was not admitted: %+v %s", s.Slot, reply.Refusal, reply.Error)
	}
	return reply.Grant
}

func (ta *testAgent) refuse(s Starter, uid uint32, owner string, u gpu.UUID, mib int64) *api.Refusal {
	ta.t.Helper()
	reply := ta.prepare(hookOf(s, uid), jobOn(s, owner, u, mib))
	if reply.Refusal == nil {
		ta.t.Fatalf("%s was not refused: %+v %s", s.Slot, reply.Grant, reply.Error)
	}
	return reply.Refusal
}
