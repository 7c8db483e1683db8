package admission

import (
	"errors"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// TestAnotherAccountInASlot: where a site's own service gives a user cgroups, the
// account still tells.
func TestAnotherAccountInASlot(t *testing.T) {
	n := newNode(t)
	n.grant(n.starter(100, "slot1_1"), 1000, "alice", uuid(0), 4096)
	mallory := starter.Caller{UID: 1001, PID: 4000, Starter: starter.Starter{Slot: "slot1_1@wn1.example.org"}}
	reply := n.prepare(mallory, jobOn(starter.Starter{Slot: "slot1_1"}, "alice", uuid(0), 4096))
	if !strings.Contains(reply.Error, "runs as uid 1000 and the caller as uid 1001") || n.access.in[account{uuid(0), 1001}] {
		t.Errorf("%+v", reply)
	}
}

// TestForgedClaim: a job asks for a GPU that its slot does not have. Nothing opens
// before the startd has said what the slot has, and it is asked once for each job.
func TestForgedClaim(t *testing.T) {
	for name, tt := range map[string]struct {
		gpu gpu.UUID
		id  string
		ad  condor.Slot
	}{
		"a share, without a GPU":         {uuid(0), "9.0", condor.Slot{JobID: "9.0"}},
		"a share, as another job":        {uuid(0), "1.0", condor.Slot{JobID: "9.0", StarterPID: 1000}},
		"a share, of no owner":           {uuid(0), "", condor.Slot{JobID: "9.0"}},
		"a share of another GPU":         {uuid(0), "9.0", slotAd("slot9_1", "9.0", "mallory", 4096, uuid(2))},
		"a whole GPU, without a GPU":     {uuid(1), "9.0", condor.Slot{JobID: "9.0"}},
		"a whole GPU, with another":      {uuid(1), "9.0", condor.Slot{JobID: "9.0", AssignedGPUs: []string{string(uuid(2))}}},
		"a whole GPU, as another job":    {uuid(1), "1.0", condor.Slot{JobID: "9.0", StarterPID: 1000}},
		"a whole GPU, with a shared one": {uuid(1), "9.0", slotAd("slot9_1", "9.0", "mallory", 4096, uuid(0))},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			s := n.starter(1000, "slot9_1")
			job := jobOn(s, "mallory", tt.gpu, 4096)
			job.ID = tt.id
			mallory := starter.Caller{UID: 1001, PID: 4000, Starter: s}
			tt.ad.Name = "slot9_1@wn1.example.org"
			n.startds.slots, n.startds.err = []condor.Slot{tt.ad}, nil
			before := n.startds.asked
			for range 3 {
				if reply := n.prepare(mallory, job); reply.Refusal == nil || reply.Refusal.Code != api.CodeNotPlanned {
					t.Fatalf("%+v", reply)
				}
			}
			if all := n.Jobs.Running(); len(all) != 0 || n.access.changes != 0 {
				t.Errorf("it holds %+v, and pipe directories were opened or closed %d times", all, n.access.changes)
			}
			if asked, m := n.startds.asked-before, n.counts.mismatches; asked != 1 || m != 1 {
				t.Errorf("the startd was asked %d times, and %d mismatches counted", asked, m)
			}
			n.proc.End(s.PID)
			n.sweep()
			n.grant(n.starter(1001, "slot9_1"), 1001, "mallory", uuid(0), 4096)
		})
	}
}

// TestWithoutHook: where only a job wrapper asks, the startd says what the slot has.
// The startd decides what a job has, not the job. Without the startd's answer no job is admitted.
func TestWithoutHook(t *testing.T) {
	n := newNode(t)
	s := n.starter(1000, "slot1_1")
	ad := slotAd("slot1_1", "9.0", "alice", 4096, uuid(0))
	of := ad
	of.StarterPID = 999
	wrapper := starter.Caller{UID: 1000, PID: 4000, Starter: s}
	forged := jobOn(s, "bob", uuid(0), 28672)
	for name, say := range map[string]func(){
		"it does not answer":           func() { n.startds.slots, n.startds.err = nil, errors.New("it does not answer") },
		"it knows no such slot":        func() { n.startds.slots, n.startds.err = nil, nil },
		"its ad is of the job before":  func() { n.startds.slots, n.startds.err = []condor.Slot{of}, nil },
		"its slot is between two jobs": func() { n.startds.slots, n.startds.err = []condor.Slot{{Name: ad.Name}}, nil },
		"it knows another slot's alone": func() {
			n.startds.slots, n.startds.err = []condor.Slot{slotAd("slot1_11", "9.0", "alice", 4096, uuid(0))}, nil
		},
	} {
		say()
		if reply := n.prepare(wrapper, forged); reply.Refusal == nil || reply.Refusal.Code != api.CodeClosed || !strings.Contains(reply.Refusal.Reason, "does not confirm") {
			t.Errorf("%s: %+v", name, reply)
		}
	}
	n.startds.slots, n.startds.err = []condor.Slot{ad}, nil
	reply := n.prepare(wrapper, forged)
	if reply.Grant == nil || reply.Grant.Environment["GPUSLOT_VRAM_MIB"] != "4096" {
		t.Fatalf("%+v", reply)
	}
	if r := n.entry("slot1_1"); r.Owner != "alice" || r.ID != "9.0" || r.Budget != 4096 || !r.Confirmed {
		t.Errorf("the job table has %+v", r)
	}
	// What it has it may hear again, without another question; more it does not get.
	asked := n.startds.asked
	if reply := n.prepare(wrapper, jobOn(s, "alice", uuid(0), 4096)); reply.Grant == nil {
		t.Errorf("%+v", reply)
	}
	if reply := n.prepare(wrapper, forged); reply.Refusal == nil || n.startds.asked != asked {
		t.Errorf("%+v, and the startd was asked again", reply)
	}
}

// TestQuestionsAreBounded: a job that is not confirmed costs the startd a few questions.
func TestQuestionsAreBounded(t *testing.T) {
	n := newNode(t)
	s, before := n.starter(1000, "slot1_1"), n.startds.asked
	for range 100 {
		if reply := n.prepare(starter.Caller{UID: 1000, PID: 4000, Starter: s}, jobOn(s, "alice", uuid(0), 4096)); reply.Refusal == nil {
			t.Fatalf("%+v", reply)
		}
	}
	if asked := n.startds.asked - before; asked != mostConfirmed {
		t.Errorf("the startd was asked %d times", asked)
	}
}

// TestPlugin: what asks and asks leaves one line in the history, and no GPU counts
// as full for it.
func TestPlugin(t *testing.T) {
	n := newNode(t)
	n.state.Plan.GPUs[0].LargestRequest = 28672
	n.grant(n.starter(100, "slot1_1"), 1000, "alice", uuid(0), 28672)
	s := n.starter(101, "slot1_2")
	for range 1000 {
		if reply := n.prepare(hookOf(s, 1000), jobOn(s, "alice", uuid(0), 99999)); reply.Refusal == nil {
			t.Fatalf("%+v", reply)
		}
	}
	if len(n.events) != 2 || n.events[1].Kind != history.EventRefused {
		t.Errorf("the history has %+v", n.events)
	}
	if reply := n.prepare(hookOf(s, 1000), jobOn(s, "alice", uuid(0), 8192)); reply.Refusal == nil {
		t.Errorf("%+v", reply)
	}
	n.Jobs.Look(func(v *jobs.View) {
		if v.IsFull(uuid(0)) {
			t.Error("the GPU counts as full")
		}
	})
}

// TestJobUnderAnotherName: HTCondor holds a job by its id, so a job must not be
// able to change what the hook, or the startd, has said that it is.
func TestJobUnderAnotherName(t *testing.T) {
	n := newNode(t)
	s := n.starter(100, "slot1_1")
	n.grant(s, 1000, "alice", uuid(0), 4096)
	forged := jobOn(s, "bob", uuid(0), 4096)
	forged.ID, forged.Group, forged.VO = "999.0", "cms", "cms"
	for _, confirmed := range []bool{false, true} {
		if confirmed {
			n.startds.slots, n.startds.err = []condor.Slot{slotAd("slot1_1", "1_1.0", "alice", 4096, uuid(0))}, nil
			n.settle()
		}
		for who, c := range map[string]starter.Caller{
			"the job":                                  {UID: 1000, PID: 4000, Starter: s},
			"a process that left its parents":          {UID: 1000, PID: 4000, Starter: starter.Starter{Slot: s.Slot}},
			"a second hook, or what looks like it":     hookOf(s, 1000),
			"a site's own hook, or a plugin, after it": {UID: 1000, PID: 4001, Starter: s},
		} {
			if reply := n.prepare(c, forged); reply.Refusal == nil || !strings.Contains(reply.Refusal.Reason, "only its first question is answered") {
				t.Errorf("%s: %+v", who, reply)
			}
			if r := n.entry("slot1_1"); r.ID != "1_1.0" || r.Owner != "alice" || r.Group != "" || r.VO != "" {
				t.Errorf("%s: the job of %s in the job table is %q, %q, %q, %q", who, s.Slot, r.ID, r.Owner, r.Group, r.VO)
			}
		}
	}
}

// TestAskingForMore: a job that is in and asks for more, again and again, does not
// make the agent look at every starter of the node each time.
func TestAskingForMore(t *testing.T) {
	n := newNode(t)
	s, ended := n.starter(100, "slot1_1"), n.starter(101, "slot1_2")
	n.grant(s, 1000, "alice", uuid(0), 4096)
	n.grant(ended, 1000, "alice", uuid(0), 4096)
	n.proc.End(ended.PID)
	reply := n.prepare(starter.Caller{UID: 1000, PID: 4000, Starter: s}, jobOn(s, "alice", uuid(0), 8192))
	if reply.Refusal == nil || len(n.Jobs.Running()) != 2 {
		t.Errorf("%+v, and the job table has %d entries", reply, len(n.Jobs.Running()))
	}
}

// TestClaimOfASecondGPU: the hook has told what a slot has.
func TestClaimOfASecondGPU(t *testing.T) {
	n := newNode(t)
	for i, own := range []gpu.UUID{uuid(0), uuid(1)} {
		s := n.starter(100+i, "slot1_1")
		n.grant(s, 1000, "alice", own, 4096)
		other := uuid(1 - i)
		reply := n.prepare(starter.Caller{UID: 1000, PID: 4000, Starter: s}, jobOn(s, "alice", other, 4096))
		if reply.Refusal == nil || reply.Refusal.Code != api.CodeNotPlanned {
			t.Errorf("a job on %s gets %s: %+v", own, other, reply)
		}
		n.proc.End(s.PID)
		n.sweep()
	}
}

// TestForgedGroup: a job that asks itself has the group that the startd says, also none.
func TestForgedGroup(t *testing.T) {
	n := newNode(t)
	n.state.Plan.GPUs[0].Tenancy = plan.Tenancy{Policy: config.TenancyMultiUser, Tenant: config.TenantGroup}
	s := n.starter(100, "slot1_1")
	wrapper := starter.Caller{UID: 1000, PID: 4000, Starter: s}
	job := jobOn(s, "alice", uuid(0), 4096)
	job.Group = "cms"
	ad := slotAd("slot1_1", "1.0", "alice", 4096, uuid(0))
	ad.Unsaid = "too long"
	n.startds.slots, n.startds.err = []condor.Slot{ad}, nil
	if r := n.prepare(wrapper, job); r.Refusal == nil || !strings.Contains(r.Refusal.Reason, "does not say whose job slot1_1 has: too long") {
		t.Errorf("%+v", r)
	}
	ad.Unsaid = ""
	n.startds.slots, n.startds.err = []condor.Slot{ad}, nil
	if r := n.prepare(wrapper, job); r.Grant == nil {
		t.Fatalf("%+v", r.Refusal)
	}
	if r := n.entry("slot1_1"); r.Group != "" || r.Tenant(config.TenantGroup) != "owner:alice" {
		t.Errorf("the job table has %+v", r)
	}
}
