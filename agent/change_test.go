package agent

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/condor"
)

// TestStep: what policy does about a change.
func TestStep(t *testing.T) {
	busy, blocked := []api.ChangeJob{{Slot: "slot1_1", ID: "7.0"}}, "STARTD"
	for _, tt := range []struct {
		c                      api.Change
		never, whenIdle, drain string
	}{
		{api.Change{Need: api.NeedRestart}, "", api.NeedRestart, api.NeedRestart},
		{api.Change{Need: api.NeedRestart, Jobs: busy}, "", "", api.NeedRestart},
		{api.Change{Need: api.NeedRestart, Blocked: blocked}, "", "", ""},
		{api.Change{Need: api.NeedReconfig}, "", api.NeedReconfig, api.NeedReconfig},
		{api.Change{Need: api.NeedStart}, "", api.NeedStart, api.NeedStart},
		{api.Change{Need: api.NeedStop}, "", api.NeedStop, api.NeedStop},
		{api.Change{Need: api.NeedStop, Jobs: busy}, "", "", ""},
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
	c := api.Change{Need: api.NeedRestart, Plan: "a"}
	o := ordered{}
	o.give(c, now)
	if o.due(c, now.Add(orderAgain-time.Second)) || !o.due(c, now.Add(orderAgain)) {
		t.Error("not given again after orderAgain, or before")
	}
	if o.due(api.Change{Need: api.NeedStart}, now) {
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
