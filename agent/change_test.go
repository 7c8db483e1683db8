package agent

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// nodeFor is a node of n GPUs as a configuration makes it, each GPU with a UUID
// that begins differently.
func nodeFor(t *testing.T, gpus int, text string) condor.Node {
	t.Helper()
	cfg, err := config.Parse("test", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	inv := inventoryOf(gpus)
	for i := range inv.GPUs {
		inv.GPUs[i].UUID = spread(i)
	}
	p, err := plan.Build(cfg, inv)
	if err != nil {
		t.Fatal(err)
	}
	return Node(p, cfg)
}

func spread(n int) gpu.UUID {
	return gpu.UUID(fmt.Sprintf("GPU-%08x-0000-4000-8000-000000000000", n+10))
}

// runningAs are the startds of a node that runs as planned.
func runningAs(t *testing.T, n condor.Node) []api.StatusStartd {
	t.Helper()
	text, err := condor.ExecutionPoint(n)
	if err != nil {
		t.Fatal(err)
	}
	var out []api.StatusStartd
	for _, s := range condor.Startds(n) {
		now := api.StatusStartd{Name: s.Name, Daemon: s.Daemon(), Plans: []string{s.Plan}, Layout: s.Layout, Configs: []string{condor.ConfigOf(text)}}
		for _, u := range s.Devices {
			now.GPUs = append(now.GPUs, string(u))
		}
		out = append(out, now)
	}
	return out
}

const perGPU = "[htcondor]\nlayout = \"startd-per-gpu\"\n"

// TestChanges: what has to happen at which startd, and what waits.
func TestChanges(t *testing.T) {
	job := api.ChangeJob{Slot: "slot1_1", ID: "7.0"}
	first, second := string(spread(0)), string(spread(1))
	for name, tt := range map[string]struct {
		before, after string
		running       func([]api.StatusStartd) []api.StatusStartd
		want          []string // daemon, need, what blocks it
	}{
		"nothing":                  {"", "", nil, nil},
		"one startd, fewer shares": {"", "[sharing]\nshares = 4\n", nil, []string{"STARTD restart"}},
		"the rules of START only":  {"", "[request_vram]\nwithout_request = \"share\"\n[sharing]\nlargest_request = 8192\n", nil, []string{"STARTD reconfig"}},
		"one GPU of two":           {perGPU, perGPU + "[gpu.\"" + first + "\"]\nshares = 3\n", nil, []string{"STARTD reconfig", "STARTD_GPU" + strings.ToUpper(first[4:12]) + " restart"}},
		"a GPU becomes whole": {perGPU, perGPU + "[gpu.\"" + second + "\"]\nmode = \"whole\"\n", nil,
			[]string{"STARTD restart STARTD_GPU" + strings.ToUpper(second[4:12]), "STARTD_GPU" + strings.ToUpper(first[4:12]) + " reconfig", "STARTD_GPU" + strings.ToUpper(second[4:12]) + " restart"}},
		"to a startd per GPU": {"", perGPU, nil, []string{"STARTD restart",
			"STARTD_GPU" + strings.ToUpper(first[4:12]) + " start STARTD", "STARTD_GPU" + strings.ToUpper(second[4:12]) + " start STARTD"}},
		"back to one startd, with a job": {perGPU, "", func(r []api.StatusStartd) []api.StatusStartd {
			r[1].Jobs = []api.ChangeJob{job}
			return r
		}, []string{"STARTD restart STARTD_GPU" + strings.ToUpper(first[4:12]), "STARTD_GPU" + strings.ToUpper(first[4:12]) + " stop STARTD_GPU" + strings.ToUpper(first[4:12]),
			"STARTD_GPU" + strings.ToUpper(second[4:12]) + " stop STARTD_GPU" + strings.ToUpper(first[4:12])}},
		"a startd that only read the new configuration": {"", "[sharing]\nshares = 4\n", func([]api.StatusStartd) []api.StatusStartd {
			now := runningAs(t, nodeFor(t, 2, "[sharing]\nshares = 4\n"))
			now[0].Layout = runningAs(t, nodeFor(t, 2, ""))[0].Layout
			return now
		}, []string{"STARTD restart"}},
		"HTCondor's own does not answer": {"", "[sharing]\nshares = 4\n", func([]api.StatusStartd) []api.StatusStartd { return nil }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			running := runningAs(t, nodeFor(t, 2, tt.before))
			if tt.running != nil {
				running = tt.running(running)
			}
			var got []string
			for _, c := range Changes(nodeFor(t, 2, tt.after), running, config.ChangesNever) {
				got = append(got, strings.TrimSpace(c.Daemon+" "+c.Need+" "+c.Blocked))
				if c.Says == "" {
					t.Errorf("%s says nothing", c.Daemon)
				}
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// TestStep: what policy does about a change.
func TestStep(t *testing.T) {
	busy, blocked := []api.ChangeJob{{Slot: "slot1_1", ID: "7.0"}}, "STARTD"
	for _, tt := range []struct {
		c                      api.Change
		never, whenIdle, drain string
	}{
		{api.Change{Need: needRestart}, "", needRestart, needRestart},
		{api.Change{Need: needRestart, Jobs: busy}, "", "", needRestart},
		{api.Change{Need: needRestart, Blocked: blocked}, "", "", ""},
		{api.Change{Need: needReconfig}, "", needReconfig, needReconfig},
		{api.Change{Need: needStart}, "", needStart, needStart},
		{api.Change{Need: needStop}, "", needStop, needStop},
		{api.Change{Need: needStop, Jobs: busy}, "", "", ""},
	} {
		for policy, want := range map[config.Changes]string{config.ChangesNever: tt.never, config.ChangesWhenIdle: tt.whenIdle, config.ChangesDrain: tt.drain} {
			if got := stepOf(tt.c, policy); got != want {
				t.Errorf("%+v under %s: %q, want %q", tt.c, policy, got, want)
			}
		}
	}
}

// TestOrdersOnce: a startd is told once, and its GPUs are closed until it has restarted.
func TestOrdersOnce(t *testing.T) {
	ta := newTestAgent(t, 1, "[htcondor]\nchanges = \"drain\"\n")
	v := ta.view.Load()
	text, err := condor.ExecutionPoint(ta.node(v))
	if err != nil {
		t.Fatal(err)
	}
	slot := condor.Slot{Name: "slot1@x", Type: "Partitionable", Plan: "old", AssignedGPUs: []string{string(uuid(0))}}
	busy := condor.Slot{Name: "slot1_1@x", Type: "Dynamic", Plan: "old", JobID: "7.0", AssignedGPUs: []string{string(uuid(0))}}
	ta.startd.set([]condor.Slot{slot, busy}, nil)
	for range 3 {
		ta.ask(t.Context())
	}
	if want := []string{"restart "}; !slices.Equal(ta.startd.orders, want) {
		t.Errorf("orders %q, want %q", ta.startd.orders, want)
	}
	acc := ta.acceptances()[0]
	if acc.Accept || !strings.Contains(acc.Reason, startdRestarts) || !strings.Contains(acc.Pending, "slot1_1 7.0") {
		t.Errorf("acceptance = %+v", acc)
	}
	want := condor.Startds(ta.node(v))[0]
	slot.Plan, slot.Config, slot.Layout = want.Plan, condor.ConfigOf(text), want.Layout[0]
	none := slot
	none.Name, none.Layout, none.AssignedGPUs = "slot2@x", want.Layout[1], nil
	ta.startd.set([]condor.Slot{slot, none}, nil)
	if !ta.ask(t.Context()) {
		t.Error("something is left open")
	}
	if acc := ta.acceptances()[0]; !acc.Accept || acc.Pending != "" {
		t.Errorf("after the restart: %+v", acc)
	}
}

// TestOrderedAgain: an order that has no effect is given again, but not at once,
// and a newer plan is a new order.
func TestOrderedAgain(t *testing.T) {
	now := time.Now()
	c := api.Change{Need: needRestart, Plan: "a"}
	o := ordered{}
	o.give(c, now)
	if o.due(c, now.Add(orderAgain-time.Second)) || !o.due(c, now.Add(orderAgain)) {
		t.Error("not given again after orderAgain, or before")
	}
	if o.due(api.Change{Need: needStart}, now) {
		t.Error("a startd that restarts is started")
	}
	o.forget(nil, nil) // it does not answer while it restarts
	o.give(c, now.Add(orderAgain))
	if o.due(c, now.Add(3*orderAgain-time.Second)) || !o.due(c, now.Add(3*orderAgain)) {
		t.Error("without effect the next order does not wait twice as long")
	}
	if c.Plan = "b"; !o.due(c, now) {
		t.Error("a newer plan is not ordered")
	}
	if o.forget(nil, []api.StatusStartd{{}}); len(o) != 0 {
		t.Errorf("of a startd that runs as planned orders are left: %v", o)
	}
}
