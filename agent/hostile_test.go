package agent

import (
	"errors"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// TestAnotherAccountInASlot: where a site's own service gives a user cgroups, the
// account still tells.
func TestAnotherAccountInASlot(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	ta.grant(ta.proc.starter(100, "slot1_1"), 1000, "alice", uuid(0), 4096)
	mallory := starter.Caller{UID: 1001, PID: 4000, Starter: starter.Starter{Slot: "slot1_1@wn1.example.org"}}
	reply := ta.prepare(mallory, jobOn(starter.Starter{Slot: "slot1_1"}, "alice", uuid(0), 4096))
	if !strings.Contains(reply.Error, "runs as uid 1000 and the caller as uid 1001") || ta.access.has(uuid(0), 1001) {
		t.Errorf("%+v", reply)
	}
	if _, err := ta.end(t.Context(), mallory); err == nil {
		t.Error("it may end alice's clients")
	}
}

// TestForgedClaim: a job asks for a GPU that its slot does not have. Nothing opens
// before the startd has said what the slot has, and it is asked once for each job.
func TestForgedClaim(t *testing.T) {
	const second = "[gpu.\"00000001\"]\nmode = \"whole\"\n"
	for name, tt := range map[string]struct {
		gpu gpu.UUID
		id  string
		ad  condor.Slot
	}{
		"a share, without a GPU":         {uuid(0), "9.0", condor.Slot{JobID: "9.0"}},
		"a share, as another job":        {uuid(0), "1.0", condor.Slot{JobID: "9.0", StarterPID: 1000}},
		"a share, as nobody":             {uuid(0), "", condor.Slot{JobID: "9.0"}},
		"a share of another GPU":         {uuid(0), "9.0", slotAd("slot9_1", "9.0", "mallory", 4096, uuid(2))},
		"a whole GPU, without a GPU":     {uuid(1), "9.0", condor.Slot{JobID: "9.0"}},
		"a whole GPU, with another":      {uuid(1), "9.0", condor.Slot{JobID: "9.0", AssignedGPUs: []string{string(uuid(2))}}},
		"a whole GPU, as another job":    {uuid(1), "1.0", condor.Slot{JobID: "9.0", StarterPID: 1000}},
		"a whole GPU, with a shared one": {uuid(1), "9.0", slotAd("slot9_1", "9.0", "mallory", 4096, uuid(0))},
	} {
		t.Run(name, func(t *testing.T) {
			ta := newTestAgent(t, 3, strings.ReplaceAll(second, "00000001", string(uuid(1))))
			s := ta.proc.starter(1000, "slot9_1")
			job := jobOn(s, "mallory", tt.gpu, 4096)
			job.ID = tt.id
			mallory := starter.Caller{UID: 1001, PID: 4000, Starter: s}
			tt.ad.Name = "slot9_1@wn1.example.org"
			ta.startd.set([]condor.Slot{tt.ad}, nil)
			before := ta.startd.questions()
			for range 3 {
				if reply := ta.prepare(mallory, job); reply.Refusal == nil || reply.Refusal.Code != api.CodeNotPlanned {
					t.Fatalf("%+v", reply)
				}
			}
			if all := ta.jobs.Running(); len(all) != 0 || ta.access.calls != 0 {
				t.Errorf("it holds %+v, and pipe directories were opened or closed %d times", all, ta.access.calls)
			}
			if n, m := ta.startd.questions()-before, ta.count("gpuslot_slot_mismatches_total"); n != 1 || m != 1 {
				t.Errorf("the startd was asked %d times, and %g mismatches counted", n, m)
			}
			ta.proc.End(s.PID)
			ta.sweepNow()
			ta.grant(ta.proc.starter(1001, "slot9_1"), 1001, "mallory", uuid(0), 4096)
		})
	}
}

// TestWithoutHook: where only a job wrapper asks, the startd says what the slot has.
// Its word counts and not the job's; without it nobody is admitted.
func TestWithoutHook(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	s := ta.proc.starter(1000, "slot1_1")
	ad := slotAd("slot1_1", "9.0", "alice", 4096, uuid(0))
	of := ad
	of.StarterPID = 999
	wrapper := starter.Caller{UID: 1000, PID: 4000, Starter: s}
	forged := jobOn(s, "bob", uuid(0), 28672)
	for name, say := range map[string]func(){
		"it does not answer":            func() { ta.startd.set(nil, errors.New("it does not answer")) },
		"it knows no such slot":         func() { ta.startd.set(nil, nil) },
		"its ad is of the job before":   func() { ta.startd.set([]condor.Slot{of}, nil) },
		"its slot is between two jobs":  func() { ta.startd.set([]condor.Slot{{Name: ad.Name}}, nil) },
		"it knows another slot's alone": func() { ta.startd.set([]condor.Slot{slotAd("slot1_11", "9.0", "alice", 4096, uuid(0))}, nil) },
	} {
		say()
		if reply := ta.prepare(wrapper, forged); reply.Refusal == nil || reply.Refusal.Code != api.CodeClosed || !strings.Contains(reply.Refusal.Reason, "does not confirm") {
			t.Errorf("%s: %+v", name, reply)
		}
	}
	ta.startd.set([]condor.Slot{ad}, nil)
	reply := ta.prepare(wrapper, forged)
	if reply.Grant == nil || reply.Grant.Environment["GPUSLOT_VRAM_MIB"] != "4096" {
		t.Fatalf("%+v", reply)
	}
	if r := ta.entry("slot1_1"); r.Owner != "alice" || r.ID != "9.0" || r.Budget != 4096 || !r.Confirmed {
		t.Errorf("the job table has %+v", r)
	}
	// What it has it may hear again, without another question; more it does not get.
	n := ta.startd.questions()
	if reply := ta.prepare(wrapper, jobOn(s, "alice", uuid(0), 4096)); reply.Grant == nil {
		t.Errorf("%+v", reply)
	}
	if reply := ta.prepare(wrapper, forged); reply.Refusal == nil || ta.startd.questions() != n {
		t.Errorf("%+v, and the startd was asked again", reply)
	}
}

// TestQuestionsAreBounded: a job that is not confirmed costs the startd a few questions.
func TestQuestionsAreBounded(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	s, before := ta.proc.starter(1000, "slot1_1"), ta.startd.questions()
	for range 100 {
		if reply := ta.prepare(starter.Caller{UID: 1000, PID: 4000, Starter: s}, jobOn(s, "alice", uuid(0), 4096)); reply.Refusal == nil {
			t.Fatalf("%+v", reply)
		}
	}
	if n := ta.startd.questions() - before; n != mostConfirmed {
		t.Errorf("the startd was asked %d times", n)
	}
}

// TestTakenBack: what a slot does not have is closed, and the connections that its
// job made meanwhile end. Those of other jobs stay.
func TestTakenBack(t *testing.T) {
	for name, ad := range map[string]condor.Slot{
		"no GPU":      {Name: "slot1_1@wn1.example.org", JobID: "1_1.0"},
		"another GPU": slotAd("slot1_1", "1_1.0", "alice", 4096, uuid(1)),
	} {
		t.Run(name, func(t *testing.T) {
			ta := newTestAgent(t, 2, "")
			var ended []string
			ta.daemons.happens = func(what string) { ended = append(ended, what) }
			s, other := ta.proc.starter(1000, "slot1_1"), ta.proc.starter(1001, "slot1_2")
			ta.grant(s, 1000, "alice", uuid(0), 4096)
			ta.grant(other, 1000, "alice", uuid(0), 4096)
			ta.proc.Add(proctree.Process{PID: 2000, Parent: s.PID, Comm: "x", UID: 1000, Cgroup: proctree.CgroupOf("slot1_1")})
			ta.proc.Add(proctree.Process{PID: 2001, Parent: 1, Comm: "x", UID: 1000, Cgroup: proctree.CgroupOf("slot1_1")})
			ta.proc.Add(proctree.Process{PID: 2002, Parent: other.PID, Comm: "x", UID: 1000, Cgroup: proctree.CgroupOf("slot1_2")})
			ta.daemons.change(uuid(0), func(d *fakeDaemon) {
				d.servers = []mps.Server{{ID: process.ID{PID: 5000, Started: 1}, UID: 1000, Clients: []int{2000, 2001, 2002}}}
			})
			ta.startd.set([]condor.Slot{ad, slotAd("slot1_2", "1_2.0", "alice", 4096, uuid(0))}, nil)
			ta.ask(t.Context())
			ta.ends.Wait()
			if got := strings.Join(ended, ", "); got != "end [2000 2001]" {
				t.Errorf("the control daemon was told: %s", got)
			}
			ta.proc.End(other.PID)
			ta.sweepNow()
			if ta.access.has(uuid(0), 1000) {
				t.Error("the pipe directory is still open")
			}
		})
	}
}

// TestStranger: MPS lets the jobs of another account wait without a word while a
// server has clients. So no account is admitted to a GPU while another's computes
// there, by the proof or, where that is older than the last job, by the daemon's word.
func TestStranger(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	serve := func(uid uint32, clients ...int) {
		ta.daemons.change(uuid(0), func(d *fakeDaemon) {
			d.servers = []mps.Server{{ID: process.ID{PID: 5000, Started: 1}, UID: uid, ThreadPercentage: "100.0", Clients: clients}}
		})
	}
	s := ta.proc.starter(100, "slot1_1")
	ta.grant(s, 1000, "alice", uuid(0), 4096)
	serve(1000, 4711)
	ta.apply(false)
	if why := ta.reason(0); why != "" {
		t.Fatalf("closed while its job runs: %s", why)
	}
	ta.proc.End(s.PID)
	pid := 200
	refused := func(when string) {
		t.Helper()
		pid++
		bob := ta.proc.starter(pid, "slot1_2")
		r := ta.refuse(bob, 1001, "bob", uuid(0), 4096)
		if r.Code != api.CodeOtherTenant || !r.Requeue || !strings.Contains(r.Reason, "process 4711 of uid 1000") {
			t.Errorf("%s: %+v", when, r)
		}
		if ta.access.has(uuid(0), 1001) {
			t.Errorf("%s: its pipe directory is open", when)
		}
		ta.proc.End(bob.PID)
	}
	refused("before the next proof")
	ta.apply(false)
	refused("after it")
	if why := ta.reason(0); !strings.Contains(why, "process 4711 of uid 1000") || !strings.Contains(why, "is still a client") {
		t.Errorf("START hears %q", why)
	}
	ta.daemons.change(uuid(0), func(d *fakeDaemon) { d.wedged = true })
	bob := ta.proc.starter(301, "slot1_3")
	if r := ta.refuse(bob, 1001, "bob", uuid(0), 4096); !strings.Contains(r.Reason, "is not known") {
		t.Errorf("a daemon that does not answer: %+v", r)
	}
	ta.daemons.change(uuid(0), func(d *fakeDaemon) { d.wedged = false })
	serve(1000)
	// Nobody waits for the next proof.
	ta.grant(ta.proc.starter(302, "slot1_4"), 1001, "bob", uuid(0), 4096)
	ta.apply(false)
	if why := ta.reason(0); why != "" {
		t.Errorf("still closed: %s", why)
	}
}

// TestPlugin: what asks and asks leaves one line in the history, and no GPU counts
// as full for it.
func TestPlugin(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	ta.grant(ta.proc.starter(100, "slot1_1"), 1000, "alice", uuid(0), 28672)
	s := ta.proc.starter(101, "slot1_2")
	for range 1000 {
		if reply := ta.prepare(hookOf(s, 1000), jobOn(s, "alice", uuid(0), 99999)); reply.Refusal == nil {
			t.Fatalf("%+v", reply)
		}
	}
	n := 0
	ta.history.Flush()
	events, err := history.Events(ta.view.Load().config.Paths)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if e.Kind == history.EventRefused {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d refusals in the history", n)
	}
	if reply := ta.prepare(hookOf(s, 1000), jobOn(s, "alice", uuid(0), 8192)); reply.Refusal == nil || ta.reason(0) != "" {
		t.Errorf("%+v, and the GPU is closed: %s", reply.Refusal, ta.reason(0))
	}
	if _, err := ta.end(t.Context(), hookOf(s, 1000)); err != nil || len(ta.endTurns.by) != 0 {
		t.Errorf("%v, %d turns are kept of a starter without a GPU", err, len(ta.endTurns.by))
	}
}

// TestJobUnderAnotherName: HTCondor holds a job by its id, so a job must not be
// able to change what the hook, or the startd, has said that it is.
func TestJobUnderAnotherName(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	s := ta.proc.starter(100, "slot1_1")
	ta.grant(s, 1000, "alice", uuid(0), 4096)
	forged := jobOn(s, "bob", uuid(0), 4096)
	forged.ID, forged.Group, forged.VO = "999.0", "cms", "cms"
	for _, confirmed := range []bool{false, true} {
		if confirmed {
			ta.startd.set([]condor.Slot{slotAd("slot1_1", "1_1.0", "alice", 4096, uuid(0))}, nil)
			ta.ask(t.Context())
		}
		for who, c := range map[string]starter.Caller{
			"the job":                                  {UID: 1000, PID: 4000, Starter: s},
			"a process that left its parents":          {UID: 1000, PID: 4000, Starter: starter.Starter{Slot: s.Slot}},
			"a second hook, or what looks like it":     hookOf(s, 1000),
			"a site's own hook, or a plugin, after it": {UID: 1000, PID: 4001, Starter: s},
		} {
			if reply := ta.prepare(c, forged); reply.Refusal == nil || !strings.Contains(reply.Refusal.Reason, "only its first question is answered") {
				t.Errorf("%s: %+v", who, reply)
			}
			if r := ta.entry("slot1_1"); r.ID != "1_1.0" || r.Owner != "alice" || r.Group != "" || r.VO != "" {
				t.Errorf("%s: the job of %s in the job table is %q, %q, %q, %q", who, s.Slot, r.ID, r.Owner, r.Group, r.VO)
			}
		}
	}
}

// TestAskingForMore: a job that is in and asks for more, again and again, does not
// make the agent look at every starter of the node each time.
func TestAskingForMore(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	s, ended := ta.proc.starter(100, "slot1_1"), ta.proc.starter(101, "slot1_2")
	ta.grant(s, 1000, "alice", uuid(0), 4096)
	ta.grant(ended, 1000, "alice", uuid(0), 4096)
	ta.proc.End(ended.PID)
	reply := ta.prepare(starter.Caller{UID: 1000, PID: 4000, Starter: s}, jobOn(s, "alice", uuid(0), 8192))
	if reply.Refusal == nil || len(ta.jobs.Running()) != 2 {
		t.Errorf("%+v, and the job table has %d entries", reply, len(ta.jobs.Running()))
	}
}

// TestClaimOfASecondGPU: the hook has told what a slot has.
func TestClaimOfASecondGPU(t *testing.T) {
	ta := newTestAgent(t, 2, "[gpu.\""+string(uuid(1))+"\"]\nmode = \"whole\"\n")
	for i, own := range []gpu.UUID{uuid(0), uuid(1)} {
		s := ta.proc.starter(100+i, "slot1_1")
		ta.grant(s, 1000, "alice", own, 4096)
		other := uuid(1 - i)
		reply := ta.prepare(starter.Caller{UID: 1000, PID: 4000, Starter: s}, jobOn(s, "alice", other, 4096))
		if reply.Refusal == nil || reply.Refusal.Code != api.CodeNotPlanned {
			t.Errorf("a job on %s gets %s: %+v", own, other, reply)
		}
		ta.proc.End(s.PID)
		ta.sweepNow()
	}
}
