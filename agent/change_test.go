package agent

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/startd"
	"github.com/gpuslot/gpuslot/condor"
)

// TestOrdersOnce: a startd is told once, and its GPUs are closed until it has restarted.
func TestOrdersOnce(t *testing.T) {
	ta := newTestAgent(t, 1, "[htcondor]\nchanges = \"drain\"\n")
	v := ta.view.Load()
	text, err := condor.ExecutionPoint(ta.htcondor.node(v))
	if err != nil {
		t.Fatal(err)
	}
	slot := condor.Slot{Name: "slot1@x", Type: "Partitionable", Plan: "old", AssignedGPUs: []string{string(uuid(0))}}
	busy := condor.Slot{Name: "slot1_1@x", Type: "Dynamic", Plan: "old", JobID: "7.0", AssignedGPUs: []string{string(uuid(0))}}
	ta.startd.set([]condor.Slot{slot, busy}, nil)
	for range 3 {
		ta.startds.Ask(t.Context())
	}
	if want := []string{"restart "}; !slices.Equal(ta.startd.orders, want) {
		t.Errorf("orders %q, want %q", ta.startd.orders, want)
	}
	acc := ta.answers.acceptances()[0]
	if acc.Accept || !strings.Contains(acc.Reason, startd.Restarts) || !strings.Contains(acc.Pending, "slot1_1 7.0") {
		t.Errorf("acceptance = %+v", acc)
	}
	want := condor.Startds(ta.htcondor.node(v))[0]
	slot.Plan, slot.Config, slot.Layout = want.Plan, condor.ConfigOf(text), want.Layout[0]
	none := slot
	none.Name, none.Layout, none.AssignedGPUs = "slot2@x", want.Layout[1], nil
	ta.startd.set([]condor.Slot{slot, none}, nil)
	if !ta.startds.Ask(t.Context()) {
		t.Error("something is left open")
	}
	if acc := ta.answers.acceptances()[0]; !acc.Accept || acc.Pending != "" {
		t.Errorf("after the restart: %+v", acc)
	}
}
