package agent

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// TestStartdsWordCounts: a hook that told too little does not get a larger pool.
func TestStartdsWordCounts(t *testing.T) {
	ta := newTestAgent(t, 2, "")
	s := ta.proc.starter(100, "slot1_1")
	ta.grant(s, 1000, "alice", uuid(0), 1536)
	if ta.entry("slot1_1").Confirmed {
		t.Error("confirmed before anybody asked")
	}
	ta.startd.set([]condor.Slot{slotAd("slot1_1", "1_1.0", "alice", 30720, uuid(0))}, nil)
	if !ta.startds.Ask(t.Context()) {
		t.Error("the question is open though the startd has answered")
	}
	if r := ta.entry("slot1_1"); r.Budget != 30720 || !r.Confirmed {
		t.Errorf("entry = %+v", r)
	}
	if n := ta.count("gpuslot_slot_mismatches_total"); n != 1 {
		t.Errorf("%g mismatches counted", n)
	}
	if r := ta.refuse(ta.proc.starter(101, "slot1_2"), 1000, "alice", uuid(0), 4096); r.Code != api.CodeNotPlanned {
		t.Errorf("refusal = %+v", r)
	}
	// Asked again, nothing differs any more.
	ta.startds.Ask(t.Context())
	if n := ta.count("gpuslot_slot_mismatches_total"); n != 1 {
		t.Errorf("%g mismatches counted", n)
	}
}

func TestStartdsWordOnTheGPU(t *testing.T) {
	ta := newTestAgent(t, 2, "")
	s := ta.proc.starter(100, "slot1_1")
	ta.grant(s, 1000, "alice", uuid(0), 4096)
	ta.startd.set([]condor.Slot{slotAd("slot1_1", "1_1.0", "alice", 4096, uuid(1))}, nil)
	ta.startds.Ask(t.Context())
	if r := ta.entry("slot1_1"); r.GPU != uuid(1) {
		t.Errorf("entry = %+v", r)
	}
	if r := ta.refuse(s, 1000, "alice", uuid(0), 4096); r.Code != api.CodeNotPlanned || !strings.Contains(r.Reason, string(uuid(1))) {
		t.Errorf("claiming the other GPU again: %+v", r)
	}
}

// TestStartdOfAnotherJob: a slot's name is used again; another job's ad says
// nothing of this one.
func TestStartdOfAnotherJob(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	ta.grant(ta.proc.starter(100, "slot1_1"), 1000, "alice", uuid(0), 4096)
	ta.startd.set([]condor.Slot{slotAd("slot1_1", "99.0", "bob", 8192, uuid(0))}, nil)
	if ta.startds.Ask(t.Context()) {
		t.Error("the question counts as settled")
	}
	if r := ta.entry("slot1_1"); r.Budget != 4096 || r.Confirmed {
		t.Errorf("entry = %+v", r)
	}
	// A slot between two jobs: claimed, with the next job's VRAM, no job yet.
	ta.startd.set([]condor.Slot{slotAd("slot1_1", "", "alice", 8192, uuid(0))}, nil)
	ta.startds.Ask(t.Context())
	if r := ta.entry("slot1_1"); r.Budget != 4096 || r.Confirmed {
		t.Errorf("entry = %+v", r)
	}
	// Not even where the hook did not tell the job's id.
	other := ta.proc.starter(101, "slot1_2")
	nameless := jobOn(other, "alice", uuid(0), 4096)
	nameless.ID = ""
	if r := ta.prepare(hookOf(other, 1000), nameless); r.Grant == nil {
		t.Fatalf("%+v", r)
	}
	ta.startd.set([]condor.Slot{slotAd("slot1_2", "", "alice", 8192, uuid(0))}, nil)
	ta.startds.Ask(t.Context())
	if r := ta.entry("slot1_2"); r.Budget != 4096 || r.Confirmed {
		t.Errorf("entry = %+v", r)
	}
	ta.startd.set(nil, errors.New("no startd"))
	if ta.startds.Ask(t.Context()) {
		t.Error("a startd that does not answer settles a question")
	}
	if s := strings.Join(ta.status().Warnings, "\n"); !strings.Contains(s, "no startd") {
		t.Errorf("status does not tell: %s", s)
	}
}

// A second startd of the node has a slot of the same name: its starter is not the one
// that the slot's ad tells of, and gets none of that slot's GPU.
func TestOtherStartdsStarter(t *testing.T) {
	ta := bareTestAgent(t, 1, "")
	ta.proc.starter(100, "slot1_1")
	ta.restart()
	ad := slotAd("slot1_1", "1.0", "alice", 4096, uuid(0))
	ad.StarterPID = 200
	ta.startd.set([]condor.Slot{ad}, nil)
	for range jobs.MostAsked {
		ta.startds.Ask(t.Context())
	}
	if ta.jobs.Busy(uuid(0)) {
		t.Error("the starter of another startd got the slot's GPU")
	}
	ta.restart()
	ad.StarterPID = 100
	ta.startd.set([]condor.Slot{ad}, nil)
	ta.startds.Ask(t.Context())
	if !ta.jobs.Busy(uuid(0)) {
		t.Error("the slot's own starter did not get its GPU")
	}
}

// TestStartdKnowsNoRequest: the startd says 0 MiB of such a job. Its budget is a share
// in the job table all the same, also after a restart of the agent.
func TestStartdKnowsNoRequest(t *testing.T) {
	ta := newTestAgent(t, 1, "[request_vram]\nwithout_request = \"share\"\n")
	share := ta.view.Load().plan.GPUs[0].DefaultRequest
	s := ta.proc.starter(100, "slot1_1")
	ta.grant(s, 1000, "alice", uuid(0), 0)
	without := jobOn(ta.proc.starter(102, "slot1_3"), "alice", uuid(0), 0)
	without.ProvisionedVRAM, without.RequestVRAM = nil, nil
	if r := ta.prepare(hookOf(starter.Starter{ID: process.ID{PID: 102, Started: proctree.StartOf(102)}, Slot: "slot1_3"}, 1000), without); r.Grant == nil || ta.entry("slot1_3").Budget != share {
		t.Errorf("%+v %+v", r, r.Refusal)
	}
	ta.startd.set([]condor.Slot{slotAd("slot1_1", "1_1.0", "alice", 0, uuid(0)), slotAd("slot1_2", "2.0", "alice", 0, uuid(0))}, nil)
	ta.jobs.Await([]starter.Starter{ta.proc.starter(101, "slot1_2")})
	ta.startds.Ask(t.Context())
	for _, slot := range []string{"slot1_1", "slot1_2"} {
		if r := ta.entry(slot); r.Budget != share || !r.Confirmed {
			t.Errorf("%s: %+v", slot, r)
		}
	}
	if n := ta.count("gpuslot_slot_mismatches_total"); n != 0 {
		t.Errorf("%g mismatches counted", n)
	}
}

// TestStatusAsksAgain: who looks after a restart of the startd does not see the time before
// it for a minute, and a look at a node in order costs the startd no question.
func TestStatusAsksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ta := newTestAgent(t, 1, "[htcondor]\nchanges = \"never\"\n")
		v := ta.view.Load()
		says := func(plan string) {
			text, err := condor.ExecutionPoint(ta.htcondor.node(v))
			if err != nil {
				t.Fatal(err)
			}
			var slots []condor.Slot
			for i, layout := range condor.Startds(ta.htcondor.node(v))[0].Layout {
				slots = append(slots, condor.Slot{
					Name: fmt.Sprintf("slot%d@x", i+1), Type: "Partitionable", Plan: plan,
					Config: condor.ConfigOf(text), Layout: layout,
				})
			}
			ta.startd.set(slots, nil)
			ta.startds.Ask(t.Context())
		}
		looks := func() int {
			t.Helper()
			time.Sleep(10 * time.Second) // what an earlier look asked for is done
			synctest.Wait()
			before := ta.startd.questions()
			ta.status()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			return ta.startd.questions() - before
		}
		background(t, ta.startds.Run)
		says("0123456789abcdef")
		if n := looks(); n != 1 {
			t.Errorf("%d questions after a look at an older layout", n)
		}
		says(condor.Startds(ta.htcondor.node(v))[0].Plan)
		if n := looks(); n != 0 {
			t.Errorf("%d questions after a look at the right layout", n)
		}
	})
}
