package layouts

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// atOnce are rules that do not wait.
const atOnce = "\n[repartition]\ndwell = \"0s\"\nreserve_after = \"0s\"\n"

// following is a node whose layout follows the work by a setting.
func followingNode(t *testing.T, setting, more string) *node {
	t.Helper()
	return newNode(t, `["1g.5gb*7", "3g.20gb@4, 2g.10gb@2, 1g.5gb*2"]`, "repartition = \""+setting+"\"\n"+more)
}

var wantsThree = condor.Waiting{GPUs: 1, VRAM: 15360, Jobs: 1, Waits: 7200}

// Work that waits gets a device from idle ones after a second look, and another agent goes
// on with the layout.
func TestFollows(t *testing.T) {
	n := followingNode(t, "auto", atOnce)
	n.job("slot1_1", "1g.5gb@0")
	if n.ask(wantsThree); strings.Contains(n.has(), "3g") {
		t.Fatalf("one look is enough for a change: %s", n.has())
	}
	out := n.ask(wantsThree)
	if !strings.HasPrefix(n.has(), "1g.5gb@0 ") || !strings.HasSuffix(n.has(), "3g.20gb@4") || n.followed != 1 {
		t.Fatalf("there is %s, %+v", n.has(), out)
	}
	want := api.StatusDemand{Profile: "3g.20gb", Jobs: 1, Here: 1, WaitsSeconds: 7200}
	if s := out.Repartition; len(s) != 1 || s[0].Act != "change" || len(s[0].Steps) == 0 || len(s[0].Demand) != 1 || s[0].Demand[0] != want {
		t.Errorf("%+v", s)
	}
	if len(n.noted) != 1 || !strings.HasPrefix(n.noted[0], "repartition = auto: ") {
		t.Errorf("%q", n.noted)
	}
	had := n.has()
	n.Layouts = New(Options{
		Executor: n.executor, Paths: n.paths, Jobs: n, Daemons: n, Metrics: n, Events: n, Log: n.Layouts.log,
		Beat: func() {},
	})
	if err := n.Read(); err != nil {
		t.Fatal(err)
	}
	if n.round(); n.has() != had {
		t.Errorf("the next agent has %s", n.has())
	}
	n.divide(`["1g.5gb*7", "3g.20gb@4, 2g.10gb@2, 1g.5gb*2"]`, "")
	n.round()
	if n.round(); n.has() == had || len(n.saved.Chosen) > 0 {
		t.Errorf("static again there is %s, %+v", n.has(), n.saved)
	}
}

// What jobs use is waited for: idle neighbours are kept free, also while the pool does not
// answer.
func TestReserves(t *testing.T) {
	n := followingNode(t, "auto", atOnce)
	n.job("slot1_5", "1g.5gb@5")
	for _, at := range []string{"1g.5gb@0", "1g.5gb@1", "1g.5gb@2", "1g.5gb@3"} {
		n.job("slot1_"+at[7:], at)
	}
	n.gpu.Happens = func(what string) { t.Error(what) }
	var out Outcome
	for range 3 {
		out = n.ask(wantsThree)
	}
	if s := out.Repartition[0]; s.Act != "reserve" || len(s.Reserved) != 3 || !strings.Contains(s.Why, "1g.5gb@5 is used by slot1_5") {
		t.Errorf("%+v", s)
	}
	n.err = errNo
	for i, want := range []int{0, 1} { // HTCondor starts after the agent: one failure is no problem
		out = n.ask()
		if why := n.Leaving()[n.place("1g.5gb@6").UUID]; !strings.Contains(why, "kept free for 3g.20gb@4") {
			t.Errorf("1g.5gb@6: %q", why)
		}
		if !strings.Contains(out.Repartition[0].Error, errNo.Error()) || len(out.Problems) != want {
			t.Errorf("failure %d: %+v", i, out)
		}
	}
}

// suggest says what auto would do, once in the history, and does nothing.
func TestSuggests(t *testing.T) {
	n := followingNode(t, "suggest", atOnce)
	n.gpu.Happens = func(what string) { t.Error(what) }
	var out Outcome
	for range 4 {
		out = n.ask(wantsThree)
	}
	s := out.Repartition
	if len(s) != 1 || s[0].Act != "suggest" || !strings.Contains(s[0].Why, "auto would serve 1 of 3g.20gb more") || len(s[0].Steps) < 2 {
		t.Errorf("%+v", s)
	}
	if len(n.noted) != 1 || len(n.Leaving()) > 0 || len(out.Below) > 0 {
		t.Errorf("%q, %v leaves, %v", n.noted, n.Leaving(), out.Below)
	}
	n.divide(`"1g.5gb*7"`, "")
	if out := n.round(); len(out.Repartition) > 0 {
		t.Errorf("without the setting: %+v", out.Repartition)
	}
}

// Which profile a job means: by its VRAM, by what it requires, or none here.
func TestWaitsByProfile(t *testing.T) {
	n := followingNode(t, "suggest", "")
	w := waitsHere(&n.plan, "suggest", condor.Demand{Nodes: 1, Waiting: []condor.Waiting{
		{GPUs: 1, VRAM: 2048, Jobs: 5, Waits: 10}, {GPUs: 1, VRAM: 4096, Jobs: 2, Waits: 50}, {GPUs: 1, VRAM: 9000, Jobs: 1},
		{GPUs: 1, VRAM: 2048, Require: `MIGProfile == "3g.20gb"`, Jobs: 4},
		{GPUs: 1, Require: "GlobalMemoryMb >= 16000 && Capability >= 8.0", Jobs: 1},
		{GPUs: 1, VRAM: 2048, Require: `regexp("A100", DeviceName)`, Jobs: 100}, {GPUs: 1, VRAM: 70000, Jobs: 10},
		{GPUs: 1, VRAM: 2048, Require: "MIGProfile is undefined", Jobs: 7},
	}})
	got := map[string]int{}
	for _, s := range w.by {
		got[s.Profile] = s.Jobs
	}
	if len(got) != 3 || got["1g.5gb"] != 7 || got["2g.10gb"] != 1 || got["3g.20gb"] != 5 || w.other != 117 {
		t.Errorf("%v and %d others", got, w.other)
	}
}

// A job counts for a profile whose slot has its CPUs and memory too, and is let onto it. It
// does not count where no slot has them, and the log says so once.
func TestWaitsNeedTheHost(t *testing.T) {
	n := followingNode(t, "auto", "\n[repartition]\ndwell = \"1h\"\n")
	one, two, three := n.place("1g.5gb@0"), n.place("2g.10gb@2"), n.place("3g.20gb@4")
	if one.Resources.CPUs < 2 || two.Resources.CPUs <= one.Resources.CPUs || three.Resources.Memory <= two.Resources.Memory {
		t.Fatalf("places have %s, %s, %s", one.Resources, two.Resources, three.Resources)
	}
	for _, c := range []struct {
		name   string
		cpus   int
		memory gpu.MiB
		want   string
	}{
		{"not said", 0, 0, "1g.5gb"},
		{"as much as the smallest", one.Resources.CPUs, one.Resources.Memory / 128 * 128, "1g.5gb"},
		{"a CPU more", one.Resources.CPUs + 1, 128, "2g.10gb"},
		{"more memory", 1, one.Resources.Memory/128*128 + 128, "2g.10gb"},
		{"the largest's CPUs", three.Resources.CPUs, 128, "3g.20gb"},
		{"more CPUs than any", three.Resources.CPUs + 1, 128, ""},
		{"more memory than any", 1, three.Resources.Memory + 128, ""},
	} {
		out := n.ask(condor.Waiting{GPUs: 1, VRAM: 2048, CPUs: c.cpus, Memory: c.memory, Jobs: 4})
		status := out.Repartition[0]
		if c.want == "" {
			if len(status.Demand) != 0 || status.Other != 4 || len(status.Unserved) != 1 || status.Unserved[0].Jobs != 4 || status.Unserved[0].CPUs != c.cpus {
				t.Errorf("%s: %+v", c.name, status)
			}
			continue
		}
		if len(status.Demand) != 1 || status.Demand[0].Profile != c.want || len(status.Unserved) != 0 {
			t.Errorf("%s counts for %+v, want %s", c.name, status.Demand, c.want)
		}
		for _, g := range n.plan.GPUs {
			below := out.Below[g.UUID]
			if g.Profile == c.want && 2048 <= below.Pool && c.cpus <= below.Resources.CPUs && c.memory <= below.Resources.Memory {
				t.Errorf("%s is kept off %s, which leaves all that %+v has", c.name, g.Place, below)
			}
		}
	}
	n.log.Reset()
	n.ask(condor.Waiting{GPUs: 1, VRAM: 2048, CPUs: 99, Jobs: 1})
	if n.ask(condor.Waiting{GPUs: 1, VRAM: 2048, CPUs: 99, Jobs: 2}); strings.Count(n.log.String(), "request_cpus = 99") != 1 {
		t.Errorf("what is left out is not logged once:\n%s", n.log.String())
	}
	out := n.ask(condor.Waiting{GPUs: 1, VRAM: 2048, CPUs: two.Resources.CPUs + 1, Jobs: 1})
	if b := out.Below[three.UUID]; b.Pool != two.Pool || b.Resources.CPUs != two.Resources.CPUs {
		t.Errorf("jobs that %+v serves are not kept off the 3g: %+v", two, b)
	}
}

// FuzzSaved: what is taken over is what the next agent takes over.
func FuzzSaved(f *testing.F) {
	f.Add([]byte(`{"past":{"auto":{"waited":{"3g.20gb":"2026-11-21T09:42:50Z"}}},"said":{"auto":"x"},"chosen":{"GPU-00000000-0000-4000-8000-000000000000":"3g.20gb@4"}}`))
	f.Add([]byte(`{"past":{"":{}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		p := config.Paths{State: t.TempDir()}
		if err := os.WriteFile(File(p), text, 0o644); err != nil {
			t.Fatal(err)
		}
		l, again := New(Options{Paths: p}), New(Options{Paths: p})
		if err := l.Read(); err != nil {
			if _, there := os.Stat(filepath.Join(p.State, "repartition.json")); there == nil {
				t.Error("what cannot be read stays")
			}
			return
		}
		if err := l.write(); err != nil {
			t.Fatal(err)
		}
		if err := again.Read(); err != nil {
			t.Fatal(err)
		}
		one, _ := json.Marshal(l.saved)
		two, _ := json.Marshal(again.saved)
		if len(l.saved.Past)+len(l.saved.Chosen)+len(l.saved.Said) > 0 && string(one) != string(two) {
			t.Fatalf("%s became %s", one, two)
		}
	})
}

// TestReservationsWithUnknownJob: while the MIG device of a job is not known, nothing decides about reservations, so that
// none stays. The problem names the job.
func TestReservationsWithUnknownJob(t *testing.T) {
	n := followingNode(t, "auto", atOnce)
	n.job("slot1_5", "1g.5gb@5")
	for _, at := range []string{"1g.5gb@0", "1g.5gb@1", "1g.5gb@2", "1g.5gb@3"} {
		n.job("slot1_"+at[7:], at)
	}
	for range 3 {
		n.ask(wantsThree)
	}
	if len(n.Leaving()) == 0 || len(n.out.Below) == 0 {
		t.Fatalf("reserved: %v, %v", n.Leaving(), n.out.Below)
	}
	n.running = append(n.running[1:], jobs.Job{Starter: starter.Starter{Slot: "slot2_1"}, GPU: "MIG-99999999-0000-5000-8000-000000000000"})
	n.ask()
	if len(n.Leaving())+len(n.out.Below) > 0 || !strings.Contains(fmt.Sprint(n.out.Problems), "slot2_1") {
		t.Errorf("reserved: %v, %v; problems %q", n.Leaving(), n.out.Below, n.out.Problems)
	}
}
