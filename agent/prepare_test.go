package agent

import (
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/jobs"
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
	return ta.Agent.prepare(ta.t.Context(), c, job)
}

// forgetQuestions lets a starter's hook ask as if the starter were another one:
// a refused job comes back with a new starter.
func (ta *testAgent) forgetQuestions(s starter.Starter) {
	ta.questions.forget(s)
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

// TestRefused: a closed GPU wakes the loop, so that START hears of it. That a GPU is
// full counts from a hook alone, and of a starter without a GPU.
func TestRefused(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	g := &ta.view.Load().plan.GPUs[0]
	with := ta.proc.starter(100, "slot1_1")
	ta.grant(with, 1000, "alice", uuid(0), 4096)
	hook := hookOf(ta.proc.starter(101, "slot1_2"), 1000)
	job := hook
	job.Hook = false
	for _, c := range []struct {
		name        string
		caller      starter.Caller
		code        int
		wakes, full bool
	}{
		{"closed", hook, api.CodeClosed, true, false},
		{"full, by a hook", hook, api.CodeNotPlanned, false, true},
		{"full, by a job", job, api.CodeNotPlanned, false, false},
		{"full, by who has a GPU", hookOf(with, 1000), api.CodeNotPlanned, false, false},
		{"the job's fault", hook, api.CodeTooLarge, false, false},
	} {
		ta.jobs.NewPlan()
		select {
		case <-ta.wake:
		default:
		}
		var full bool
		ta.jobs.Look(func(running *jobs.View) {
			ta.refused(running, c.caller, g, api.Refuse(c.code, ""))
			full = running.IsFull(g.UUID)
		})
		if wakes := len(ta.wake) > 0; wakes != c.wakes || full != c.full {
			t.Errorf("%s: it wakes %t, full %t", c.name, wakes, full)
		}
	}
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
