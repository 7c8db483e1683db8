package agent

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/instances"
)

// atOnce are rules that do not wait.
const atOnce = "\n[repartition]\ndwell = \"0s\"\nreserve_after = \"0s\"\n"

// followAgent is a node whose first GPU has two layouts and a setting.
func followAgent(t *testing.T, setting, more string) (*testAgent, *instances.GPU) {
	t.Helper()
	ta, f := migAgent(t, `["1g.5gb*7", "3g.20gb@4, 2g.10gb@2, 1g.5gb*2"]`, "repartition = \""+setting+"\"\n"+more)
	ta.restart()
	ta.apply(false) // the next round finds it made
	return ta, f
}

// look lets the pool tell what waits, and the agent decide.
func (ta *testAgent) look(waiting ...condor.Waiting) *view {
	ta.t.Helper()
	ta.startd.mu.Lock()
	ta.startd.demand = condor.Demand{At: time.Now(), Nodes: 1, Waiting: waiting}
	ta.startd.mu.Unlock()
	ta.hear()
	return ta.apply(false)
}

// hear asks the pool once.
func (ta *testAgent) hear() {
	interest, _ := ta.view.Load().interest()
	ta.layouts.Answered(ta.queue.Ask(ta.t.Context(), ta.startd, *interest))
}

// place is the slot of a place.
func (ta *testAgent) place(name string) plan.GPU {
	ta.t.Helper()
	for _, g := range ta.view.Load().plan.GPUs {
		if g.Place == name {
			return g
		}
	}
	ta.t.Fatalf("there is no slot for %s", name)
	return plan.GPU{}
}

func (ta *testAgent) accepts(name string) api.Acceptance {
	ta.t.Helper()
	u := ta.place(name).UUID
	for _, a := range ta.answers.acceptances() {
		if a.UUID == string(u) {
			return a
		}
	}
	ta.t.Fatalf("nothing is said of %s", name)
	return api.Acceptance{}
}

var (
	wantsThree = condor.Waiting{GPUs: 1, VRAM: 15360, Jobs: 1, Waits: 7200}
	wantsOnes  = condor.Waiting{GPUs: 1, VRAM: 2048, Jobs: 7, Waits: 60}
)

// Work that waits for a large device gets it from idle ones, jobs run on, the
// slots stay those that the startd knows; it outlives the agent; and when small
// jobs wait the idle large one is split again.
func TestLayoutsFollowTheWork(t *testing.T) {
	ta, _ := followAgent(t, "auto", atOnce)
	condorConfig := ta.read(ta.view.Load().config.Paths.CondorConfig())
	if !strings.Contains(condorConfig, `GPUSlotRepartition = "auto"`) || !strings.Contains(condorConfig, "&& $(GPUSLOT_LARGE)") {
		t.Errorf("HTCondor's configuration lacks what following needs:\n%s", condorConfig)
	}
	stays := ta.place("1g.5gb@0")
	ta.grant(ta.proc.starter(100, "slot1_1"), 1000, "alice", stays.UUID, 2048)
	if v := ta.look(wantsThree); ta.profiles() != strings.TrimSpace(strings.Repeat("1g.5gb ", 7)) {
		t.Fatalf("one look is enough for a change: %s, %+v", ta.profiles(), v.repartition)
	}
	v := ta.look(wantsThree)
	if ta.place("3g.20gb@4").Device == "" || ta.place("1g.5gb@0").Device != stays.Device || !ta.accepts("3g.20gb@4").Accept {
		t.Fatalf("the plan has %s: %+v", ta.profiles(), v.repartition)
	}
	if s := ta.status().Repartition; len(s) != 1 || s[0].Act != "change" || len(s[0].Steps) == 0 || len(s[0].Demand) != 1 || s[0].Demand[0] != (api.StatusDemand{Profile: "3g.20gb", Jobs: 1, Here: 1, WaitsSeconds: 7200}) {
		t.Errorf("status says %+v", s)
	}
	if now := ta.read(ta.view.Load().config.Paths.CondorConfig()); condor.ConfigOf([]byte(now)) != condor.ConfigOf([]byte(condorConfig)) {
		t.Error("the startd would have to be restarted")
	}

	got := ta.profiles()
	ta.restart()
	ta.jobs.Settle(jobs.Ads{Slots: map[string]condor.Slot{"slot1_1": slotAd("slot1_1", "1.0", "alice", 2048, stays.UUID)}, EnforcedBy: func(gpu.UUID, gpu.MiB) string { return jobs.EnforcedByMIG }})
	ta.apply(false)
	if ta.profiles() != got {
		t.Errorf("after a restart of the agent the plan has %s", ta.profiles())
	}
	ta.look(wantsOnes)
	if ta.look(wantsOnes); ta.place("3g.20gb@4").Device != "" || ta.place("1g.5gb@6").Device == "" || ta.place("1g.5gb@0").Device != stays.Device {
		t.Errorf("with small jobs waiting the plan has %s: %+v", ta.profiles(), ta.status().Repartition)
	}

	ta.writeConfig(migConfig(`["3g.20gb@4, 2g.10gb@2, 1g.5gb*2", "1g.5gb*7"]`, ""))
	if ta.apply(true); ta.place("3g.20gb@4").Device == "" {
		t.Errorf("static again, the plan has %s", ta.profiles())
	}
}

// What jobs use is waited for: its idle neighbours are kept free, and when the
// last job has ended the device is made.
func TestLayoutsWaitAndFuse(t *testing.T) {
	ta, f := followAgent(t, "auto", atOnce)
	for i, at := range []string{"1g.5gb@0", "1g.5gb@1", "1g.5gb@2", "1g.5gb@3", "1g.5gb@5"} {
		ta.grant(ta.proc.starter(100+i, "slot1_"+at[7:]), 1000, "alice", ta.place(at).UUID, 2048)
	}
	f.Happens = func(what string) { t.Errorf("%s while jobs stand in the way", what) }
	for range 3 {
		ta.look(wantsThree)
	}
	for _, at := range []string{"1g.5gb@4", "1g.5gb@5", "1g.5gb@6"} {
		if a := ta.accepts(at); a.Accept || !strings.Contains(a.Reason, "kept free for 3g.20gb@4") {
			t.Errorf("%s: %+v", at, a)
		}
	}
	if r := ta.refuse(ta.proc.starter(110, "slot9_1"), 1000, "bob", ta.place("1g.5gb@6").UUID, 2048); r.Code != api.CodeClosed || !strings.Contains(r.Reason, "kept free") {
		t.Errorf("a job on a device that is kept free got %+v", r)
	}
	if s := ta.status().Repartition[0]; s.Act != "reserve" || len(s.Reserved) != 3 || !strings.Contains(s.Why, "1g.5gb@5 is used by slot1_5") {
		t.Errorf("status says %+v", s)
	}
	ta.startd.set(nil, errors.New("no collector"))
	ta.hear()
	if v := ta.apply(false); ta.accepts("1g.5gb@6").Accept || !strings.Contains(v.repartition[0].Error, "no collector") {
		t.Errorf("without the collector: %+v", v.repartition)
	}
	ta.startd.set(nil, nil)
	f.Happens = func(string) {}
	ta.proc.End(104)
	ta.look(wantsThree)
	if v := ta.look(wantsThree); ta.place("3g.20gb@4").Device == "" {
		t.Errorf("when the job has ended the plan has %s: %+v", ta.profiles(), v.repartition)
	}
}

// suggest says what auto would do, once in the history, and does nothing.
func TestLayoutsAreSuggested(t *testing.T) {
	ta, f := followAgent(t, "suggest", atOnce)
	f.Happens = func(what string) { t.Error(what) }
	for range 4 {
		ta.look(wantsThree)
	}
	s := ta.status().Repartition
	if len(s) != 1 || s[0].Act != "suggest" || !strings.Contains(s[0].Why, "auto would serve 1 of 3g.20gb more") || len(s[0].Steps) < 2 || len(s[0].Reserved) > 0 {
		t.Errorf("status says %+v", s)
	}
	if a := ta.accepts("1g.5gb@6"); !a.Accept || a.AboveMiB != 0 {
		t.Errorf("a suggestion binds: %+v", a)
	}
	if m := ta.reader.Take(time.Now()).Repartition; len(m) != 1 || m[0].Act != "suggest" || m[0].Demand[0].Jobs != 1 {
		t.Errorf("metrics say %+v", m)
	}
}

// While a large job waits no small one takes a large device.
func TestSmallJobsLeaveLargeDevices(t *testing.T) {
	ta, _ := followAgent(t, "auto", "\n[repartition]\ndwell = \"1h\"\n")
	ta.look(wantsThree, condor.Waiting{GPUs: 1, VRAM: 2048, Jobs: 3})
	three, two, one := ta.accepts("3g.20gb@4"), ta.accepts("2g.10gb@2"), ta.accepts("1g.5gb@0")
	below := ta.place("2g.10gb@2")
	if three.AboveMiB != int64(below.Pool) || three.AboveCPUs != below.Resources.CPUs || three.AboveMemoryMiB != int64(below.Resources.Memory/128*128) || two.AboveMiB != 0 || one.AboveMiB != 0 {
		t.Errorf("3g takes above %d, 2g above %d, 1g above %d", three.AboveMiB, two.AboveMiB, one.AboveMiB)
	}
	if ta.look(condor.Waiting{GPUs: 1, VRAM: 2048, Jobs: 3}); ta.accepts("3g.20gb@4").AboveMiB != 0 {
		t.Error("with small jobs alone waiting a large device is kept from them")
	}
}
