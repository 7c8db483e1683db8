package agent

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

const elasticTwo = "[sharing]\nmode = \"elastic\"\n[elastic]\npatience = \"5s\"\nstay = \"20s\"\noffer = \"30s\"\n"

// turns lets the loop go on for some seconds, with the startd's monitor listening.
func (ta *testAgent) turns(seconds int) {
	for range seconds {
		ta.elastic.Open()
		time.Sleep(time.Second)
		ta.sweeper.now()
		if ta.turnElastic(ta.t.Context()) {
			ta.apply(false)
		}
	}
}

// asks lets the pool say what waits.
func (ta *testAgent) asks(waiting ...condor.Waiting) {
	for i := range waiting {
		waiting[i].At, waiting[i].Jobs = time.Now(), 1
	}
	ta.startd.demand = condor.Demand{At: time.Now(), Nodes: 1, Waiting: waiting}
	ta.hear()
}

func (ta *testAgent) modes() string {
	var all []string
	for _, g := range ta.hw.inv.GPUs {
		all = append(all, string(g.ComputeMode))
	}
	return strings.Join(all, " ")
}

// whole asks for GPUs as the hook of a whole job does.
func (ta *testAgent) whole(s starter.Starter, gpus ...gpu.UUID) api.Reply {
	j := &api.Job{ID: "9.0", Owner: "bob"}
	for _, u := range gpus {
		j.AssignedGPUs = append(j.AssignedGPUs, string(u))
	}
	ta.forgetQuestions(s)
	return ta.prepare(starter.Caller{Starter: s, UID: 1002, Hook: true}, j)
}

// A job for two GPUs waits: the GPU with a shared job goes when that has ended, its
// control daemon is stopped and its compute mode given back before it is opened, the
// job gets both, and when it has ended they are as they were.
func TestElasticTurnAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ta := newTestAgent(t, 2, elasticTwo)
		shared, two := ta.proc.starter(50, "slot1_1"), ta.proc.starter(51, "slot600_1")
		if r := ta.whole(two, uuid(0), uuid(1)); r.Refusal == nil || !strings.Contains(r.Refusal.Reason, "serves shared jobs now") {
			t.Fatalf("a whole job on idle GPUs of the shared side: %+v", r)
		}
		ta.grant(shared, 1001, "alice", uuid(0), 4096)
		ta.startd.set([]condor.Slot{slotAd("slot1_1", "7.0", "alice", 4096, uuid(0))}, nil)
		if r := ta.whole(two, uuid(0), uuid(1)); r.Refusal == nil || r.Refusal.Code != api.CodeClosed {
			t.Fatalf("a whole job on shared GPUs: %+v", r)
		}
		ta.asks(condor.Waiting{GPUs: 1, VRAM: 32500, Waits: 60}, condor.Waiting{GPUs: 2, Waits: 3600})
		ta.turns(10)
		if w := ta.elastic.Open(); w.Open != 0 || w.Least != 2 || !strings.Contains(w.Reason, "being made free") {
			t.Errorf("while a shared job runs: %+v", w)
		}
		if why := ta.reason(0); !strings.Contains(why, "goes to whole jobs") {
			t.Errorf("GPU 0: %q", why)
		}
		if r := ta.whole(two, uuid(0), uuid(1)); r.Refusal == nil {
			t.Fatal("a whole job was let in beside a shared one")
		}
		if got := ta.modes(); got != "exclusive-process default" || len(ta.daemons.running) != 1 {
			t.Errorf("the idle GPU goes first: modes %s, daemons %v", got, ta.daemons.running)
		}
		ta.proc.End(50)
		ta.turns(5) // the startd still has the slot
		if ta.elastic.Open().Open != 0 {
			t.Error("it was opened although the startd has a slot of shared jobs there")
		}
		ta.startd.set(nil, nil)
		ta.turns(5)
		if w := ta.elastic.Open(); w.Open != 2 || len(w.GPUs) != 2 || w.Reason != "" {
			t.Fatalf("drained: %+v, modes %s", w, ta.modes())
		}
		if got := ta.modes(); got != "default default" || len(ta.daemons.running) != 0 {
			t.Errorf("opened with modes %s and daemons %v", got, ta.daemons.running)
		}
		if r := ta.refuse(shared, 1001, "alice", uuid(0), 4096); r == nil || r.Code != api.CodeClosed {
			t.Errorf("a shared job on a whole GPU: %+v", r)
		}
		r := ta.whole(two, uuid(1), uuid(0))
		if r.Grant == nil || r.Grant.EnforcedBy != jobs.EnforcedByWhole || r.Grant.Environment["CUDA_VISIBLE_DEVICES"] != string(uuid(1))+","+string(uuid(0)) || r.Grant.Environment["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] != "" {
			t.Fatalf("the job for both: %+v", r)
		}
		ta.asks(condor.Waiting{GPUs: 1, VRAM: 2048, Waits: 60})
		ta.turns(60)
		if w := ta.elastic.Open(); w.Open != 0 || len(ta.daemons.running) != 0 {
			t.Errorf("while it runs no more come, and none of its GPUs goes back: %+v, daemons %v", w, ta.daemons.running)
		}
		ta.proc.End(51)
		ta.turns(5)
		if got := ta.modes(); got != "exclusive-process exclusive-process" || len(ta.daemons.running) != 2 || ta.reason(0) != "" {
			t.Errorf("back: modes %s, daemons %v, %q", got, ta.daemons.running, ta.reason(0))
		}
	})
}

// A GPU whose compute mode cannot be given back is not opened to whole jobs.
func TestElasticIsNotOpenedHalfDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ta := newTestAgent(t, 1, elasticTwo)
		ta.hw.refuse = errors.New("not now")
		ta.asks(condor.Waiting{GPUs: 1, VRAM: 32768, Waits: 60})
		ta.turns(20)
		if w := ta.elastic.Open(); w.Open != 0 || w.Reason == "" {
			t.Errorf("in compute mode %s: %+v", ta.modes(), w)
		}
		ta.hw.refuse = nil
		ta.apply(false)
		ta.turns(2)
		if w := ta.elastic.Open(); w.Open != 1 {
			t.Errorf("in compute mode %s: %+v", ta.modes(), w)
		}
	})
}

// An agent that comes back finds whole jobs where they are, and no control daemon is
// started under them.
func TestElasticSurvivesRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ta := newTestAgent(t, 1, elasticTwo)
		ta.asks(condor.Waiting{GPUs: 1, VRAM: 32768, Waits: 60})
		ta.turns(10)
		if r := ta.prepare(starter.Caller{Starter: ta.proc.starter(51, "slot600_1"), UID: 1002, Hook: true}, &api.Job{ID: "9.0", AssignedGPUs: []string{string(uuid(0))}, ProvisionedVRAM: vram(int64(ta.view.Load().plan.GPUs[0].Memory))}); r.Grant == nil {
			t.Fatalf("%+v", r)
		}
		ta.restart()
		ta.startd.set([]condor.Slot{slotAd("slot600_1", "9.0", "bob", 32768, uuid(0))}, nil)
		ta.startds.Ask(t.Context())
		ta.turns(60)
		if got := ta.modes(); got != "default" || len(ta.daemons.running) != 0 {
			t.Errorf("under a whole job: mode %s, daemons %v", got, ta.daemons.running)
		}
		if e := ta.entry("slot600_1"); e.EnforcedBy != jobs.EnforcedByWhole {
			t.Errorf("its wall is %q", e.EnforcedBy)
		}
	})
}

// A large request that has waited closes one GPU to smaller ones until it is gone.
func TestLargeRequestGetsRoom(t *testing.T) {
	ta := newTestAgent(t, 2, "[placement]\nlarge_after = \"1m\"\n")
	least := func() (all []int64) {
		for _, a := range ta.answers.acceptances() {
			all = append(all, a.LeastMiB)
		}
		return all
	}
	ta.grant(ta.proc.starter(50, "slot1_1"), 1001, "alice", uuid(0), 4096)
	if got := least(); !slices.Equal(got, []int64{0, 0}) {
		t.Errorf("nothing waits: %v", got)
	}
	ta.asks(condor.Waiting{GPUs: 1, VRAM: 20480, Waits: 3600})
	if got := least(); !slices.Equal(got, []int64{0, 20480}) {
		t.Errorf("a large request waits: %v", got)
	}
	ta.asks()
	if got := least(); !slices.Equal(got, []int64{0, 0}) {
		t.Errorf("it runs: %v", got)
	}
}

// TestInterest: the pool is asked where something on the node changes by what waits, as
// often as the shortest wait demands, and no more than once a minute.
func TestInterest(t *testing.T) {
	for _, c := range []struct {
		name, config string
		asks         bool
		again        time.Duration
	}{
		{"shared GPUs", "", false, time.Minute},
		{"elastic GPUs", elasticTwo, true, 5 * time.Second},
		{"patience", "[sharing]\nmode = \"elastic\"\n[elastic]\npatience = \"20m\"\n", true, time.Minute},
		{"no patience", "[sharing]\nmode = \"elastic\"\n[elastic]\npatience = \"1s\"\n", true, 2 * time.Second},
		{"large requests", "[placement]\nlarge_after = \"30s\"\n", true, 30 * time.Second},
	} {
		ta := newTestAgent(t, 2, c.config)
		i, again := ta.view.Load().interest()
		if (i != nil) != c.asks || again != c.again {
			t.Errorf("%s: asks %t, again after %s", c.name, i != nil, again)
		}
	}
}
