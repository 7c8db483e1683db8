package agent

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/closures"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/server"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
)

// TestWhoAsksOfTheNode: everybody hears how far a node is out of service, operators take it out.
func TestWhoAsksOfTheNode(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	for name, c := range map[string]struct {
		operator bool
		verb     string
		refused  string
	}{
		"anybody's status":     {false, api.VerbStatus, ""},
		"an operator's status": {true, api.VerbStatus, ""},
		"anybody's wish":       {false, api.VerbQuiesce, "only root and the agent's account may quiesce the node"},
		"an unknown verb":      {true, "close", "close"},
	} {
		r := ta.answers.answerNode(t.Context(), server.Question{Request: api.Request{Verb: c.verb}, Operator: c.operator})
		if (r.Node == nil) != (c.refused != "") || !strings.Contains(r.Error, c.refused) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestWhoIsHere: a process in no slot is no job's. One whose slot cannot be found out hears why.
func TestWhoIsHere(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	for err, want := range map[error]api.Reply{starter.ErrNoSlot: {NoJob: true}, errors.New("no"): {Error: "no"}} {
		q := server.Question{Identify: func() (starter.Caller, error) { return starter.Caller{}, err }}
		if r := ta.answers.answerHere(t.Context(), q); r.NoJob != want.NoJob || r.Error != want.Error || r.Here != nil {
			t.Errorf("%v: %+v", err, r)
		}
	}
}

// TestAnswerOfAClosing: what was done is said even if not all could be.
func TestAnswerOfAClosing(t *testing.T) {
	done := api.Closing{Text: []string{"GPU 0 is closed"}}
	if r := closing(done, nil); r.Closing == nil || r.Error != "" {
		t.Errorf("%+v", r)
	}
	if r := closing(done, errors.New("no")); r.Closing != nil || r.Error != "GPU 0 is closed\nno" {
		t.Errorf("%+v", r)
	}
	if r := orError(api.Reply{Done: "done"}, errors.New("no")); r.Done != "" || r.Error != "no" {
		t.Errorf("%+v", r)
	}
	if r := orError(api.Reply{Done: "done"}, nil); r.Done != "done" || r.Error != "" {
		t.Errorf("%+v", r)
	}
}

// TestVerifyWithoutPlan: there is nothing to verify, and the reason is that of the whole node.
func TestVerifyWithoutPlan(t *testing.T) {
	ta := bareTestAgent(t, 1, "")
	ta.hw.set(gpu.Inventory{}, errors.New("the driver is not loaded"))
	ta.restart()
	if _, err := ta.answers.verify(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "no GPU of this node takes jobs yet: ") {
		t.Error(err)
	}
}

// TestEnforcementWithoutSharing: the hardware, the whole GPU, or nothing that gpuslot knows of.
func TestEnforcementWithoutSharing(t *testing.T) {
	n := &node{closures: closures.NewTable("")}
	v := &view{plan: plan.Plan{GPUs: []plan.GPU{
		{UUID: "whole", Mode: config.ModeWhole}, {UUID: "MIG", Parent: "GPU", Mode: config.ModeMIG}, {UUID: "observed", Mode: config.ModeObserve},
	}}}
	by := n.enforcement(v, time.Now())
	for u, want := range map[gpu.UUID]string{
		"whole": jobs.EnforcedByWhole, "MIG": jobs.EnforcedByMIG, "observed": "", "not planned": jobs.EnforcedByNone,
	} {
		if got := by(u, 4096); got != want {
			t.Errorf("%s: %q, want %q", u, got, want)
		}
	}
}
