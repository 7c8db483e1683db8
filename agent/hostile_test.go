package agent

import (
	"errors"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// TestCgroupsOfAUser: whoever has a service manager of his own makes cgroups of
// any name below it, HTCondor's too.
func TestCgroupsOfAUser(t *testing.T) {
	f := newFakeProc(t)
	s := f.starter(1000, "slot1_1")
	for i, below := range []string{
		"/user.slice/user-1001.slice/user@1001.service/app.slice",
		"/user.slice/user-1001.slice/user@1001.service",
		"/machine.slice/m.scope/user.slice/user-1001.slice/user@1001.service/user.slice/user@0.service",
	} {
		f.add(proc{pid: 2000 + i, parent: 1, comm: "x", uid: 1001, cgroup: below + cgroupOf("slot1_1")})
		if c, err := f.fs().identify(1001, 2000+i, rootOnly); !errors.Is(err, errNoSlot) {
			t.Errorf("below %s a process is taken for one of %s (%v)", below, c.Starter.Slot, err)
		}
		f.add(proc{pid: 3000 + i, parent: s.PID, comm: "x", uid: 1001, cgroup: below + cgroupOf("slot1_1")})
	}
	b := newBooks(f.fs(), newFakeDoors())
	if leaf := b.jobCgroup(s, rootOnly); leaf != "" {
		t.Errorf("the job's cgroup is %s", leaf)
	}
}

// TestAnotherAccountInASlot: where a site's own service gives a user cgroups, the
// account still tells.
func TestAnotherAccountInASlot(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	ta.grant(ta.proc.starter(100, "slot1_1"), 1000, "alice", uuid(0), 4096)
	mallory := Caller{UID: 1001, PID: 4000, Starter: Starter{Slot: "slot1_1@wn1.example.org"}}
	reply := ta.prepare(mallory, jobOn(Starter{Slot: "slot1_1"}, "alice", uuid(0), 4096))
	if !strings.Contains(reply.Error, "runs as uid 1000 and the caller as uid 1001") || ta.doors.has(uuid(0), 1001) {
		t.Errorf("%+v", reply)
	}
	if _, err := ta.end(t.Context(), mallory); err == nil {
		t.Error("it may end alice's clients")
	}
}

// TestForgedClaim: a job asks for a GPU that its slot does not have. At once
// nothing contradicts it; the startd's word takes it back for good.
func TestForgedClaim(t *testing.T) {
	const second = "[gpu.\"00000001\"]\nmode = \"whole\"\n"
	for name, tt := range map[string]struct {
		gpu gpu.UUID
		id  string
		ad  condor.Slot
	}{
		"a share, without a GPU":          {uuid(0), "9.0", condor.Slot{JobID: "9.0"}},
		"a share, as another job":         {uuid(0), "1.0", condor.Slot{JobID: "9.0", StarterPID: 1000}},
		"a share, as nobody":              {uuid(0), "", condor.Slot{JobID: "9.0"}},
		"a whole GPU, without a GPU":      {uuid(1), "9.0", condor.Slot{JobID: "9.0"}},
		"a whole GPU, with another":       {uuid(1), "9.0", condor.Slot{JobID: "9.0", AssignedGPUs: []string{string(uuid(2))}}},
		"a whole GPU, as another job":     {uuid(1), "1.0", condor.Slot{JobID: "9.0", StarterPID: 1000}},
		"a whole GPU, with a shared one":  {uuid(1), "9.0", slotAd("slot9_1", "9.0", "mallory", 4096, uuid(0))},
		"a whole GPU, between two starts": {uuid(1), "1.0", condor.Slot{JobID: "9.0", StarterPID: 1000, GPUs: 0}},
	} {
		t.Run(name, func(t *testing.T) {
			ta := newTestAgent(t, 3, strings.ReplaceAll(second, "00000001", string(uuid(1))))
			s := ta.proc.starter(1000, "slot9_1")
			job := jobOn(s, "mallory", tt.gpu, 4096)
			job.ID = tt.id
			mallory := Caller{UID: 1001, PID: 4000, Starter: s}
			if reply := ta.prepare(mallory, job); reply.Grant == nil {
				t.Fatalf("%+v", reply)
			}
			tt.ad.Name = "slot9_1@wn1.example.org"
			ta.startd.set([]condor.Slot{tt.ad}, nil)
			if !ta.ask(t.Context()) {
				t.Error("the question is still open")
			}
			ta.sweepNow()
			if all := ta.books.all(); len(all) != 0 || ta.doors.has(tt.gpu, 1001) {
				t.Errorf("it holds %+v", all)
			}
			if n := ta.count("gpuslot_slot_mismatches_total"); n != 1 {
				t.Errorf("%g mismatches counted", n)
			}
			if reply := ta.prepare(mallory, job); reply.Refusal == nil || reply.Refusal.Code != api.CodeNotPlanned {
				t.Errorf("asked again: %+v", reply)
			}
			ta.proc.end(s.PID)
			ta.sweepNow()
			ta.grant(ta.proc.starter(1001, "slot9_1"), 1001, "mallory", uuid(0), 4096)
		})
	}
}

// TestPlugin: what runs in a hook's place, and asks and asks, leaves a few lines
// in the history, and no GPU counts as full for it.
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
	ta.keeper.write()
	events, err := Events(ta.view.Load().config.Paths)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if e.Kind == EventRefused {
			n++
		}
	}
	if n == 0 || n > hookAsks {
		t.Errorf("%d refusals in the history", n)
	}
	if reply := ta.prepare(hookOf(s, 1000), jobOn(s, "alice", uuid(0), 8192)); reply.Refusal == nil || ta.reason(0) != "" {
		t.Errorf("%+v, and the GPU is closed: %s", reply.Refusal, ta.reason(0))
	}
	if _, err := ta.end(t.Context(), hookOf(s, 1000)); err != nil || len(ta.books.turns) != 0 {
		t.Errorf("%v, %d turns are kept of a starter without a GPU", err, len(ta.books.turns))
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
	asks := func(c Caller) {
		t.Helper()
		if reply := ta.prepare(c, forged); reply.Grant == nil {
			t.Fatalf("%+v", reply)
		}
		if r := ta.entry("slot1_1"); r.Job != "1_1.0" || r.Owner != "alice" || r.Group != "" || r.VO != "" {
			t.Errorf("the job of %s in the books is %q, %q, %q, %q", s.Slot, r.Job, r.Owner, r.Group, r.VO)
		}
	}
	asks(Caller{UID: 1000, PID: 4000, Starter: s})
	ta.startd.set([]condor.Slot{slotAd("slot1_1", "1_1.0", "alice", 4096, uuid(0))}, nil)
	ta.ask(t.Context())
	asks(Caller{UID: 1000, PID: 4000, Starter: s})
	asks(hookOf(s, 1000)) // a file transfer plugin, at the job's end

	// What came before the hook does not stand against it.
	ta.proc.end(s.PID)
	ta.sweepNow()
	s = ta.proc.starter(101, "slot1_1")
	if reply := ta.prepare(hookOf(s, 1000), forged); reply.Grant == nil {
		t.Fatalf("%+v", reply)
	}
	ta.grant(s, 1000, "alice", uuid(0), 4096)
	asks(Caller{UID: 1000, PID: 4000, Starter: s})
}

// TestAskingForMore: a job that is in and asks for more, again and again, does not
// make the agent look at every starter of the node each time.
func TestAskingForMore(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	s, ended := ta.proc.starter(100, "slot1_1"), ta.proc.starter(101, "slot1_2")
	ta.grant(s, 1000, "alice", uuid(0), 4096)
	ta.grant(ended, 1000, "alice", uuid(0), 4096)
	ta.proc.end(ended.PID)
	reply := ta.prepare(Caller{UID: 1000, PID: 4000, Starter: s}, jobOn(s, "alice", uuid(0), 8192))
	if reply.Refusal == nil || len(ta.books.all()) != 2 {
		t.Errorf("%+v, and the books have %d entries", reply, len(ta.books.all()))
	}
}

// TestClaimOfASecondGPU: the hook has told what a slot has.
func TestClaimOfASecondGPU(t *testing.T) {
	ta := newTestAgent(t, 2, "[gpu.\""+string(uuid(1))+"\"]\nmode = \"whole\"\n")
	for i, own := range []gpu.UUID{uuid(0), uuid(1)} {
		s := ta.proc.starter(100+i, "slot1_1")
		ta.grant(s, 1000, "alice", own, 4096)
		other := uuid(1 - i)
		reply := ta.prepare(Caller{UID: 1000, PID: 4000, Starter: s}, jobOn(s, "alice", other, 4096))
		if reply.Refusal == nil || reply.Refusal.Code != api.CodeNotPlanned {
			t.Errorf("a job on %s gets %s: %+v", own, other, reply)
		}
		if reply := ta.prepare(Caller{UID: 1000, PID: 4000, Starter: s}, jobOn(s, "alice", own, 4096)); reply.Grant == nil {
			t.Errorf("the wrapper after the hook: %+v", reply.Refusal)
		}
		ta.proc.end(s.PID)
		ta.sweepNow()
	}
}
