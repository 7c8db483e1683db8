package closures

import (
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
)

// TestNodeVerbs: each verb in each phase.
func TestNodeVerbs(t *testing.T) {
	now := time.Unix(1795254170, 0)
	for _, c := range []struct {
		from Phase
		verb string
		to   Phase
		says string
		err  bool
	}{
		{Serving, api.VerbQuiesce, Quiescing, "all GPUs are closed", false},
		{Serving, api.VerbRevert, Reverting, "all GPUs are closed", false},
		{Serving, api.VerbResume, Serving, "the node serves", false},
		{Quiescing, api.VerbQuiesce, Quiescing, "is quiescing", false},
		{Quiescing, api.VerbRevert, Reverting, "is reverting; until now it was quiescing: old", false},
		{Quiescing, api.VerbResume, Serving, "nothing had been stopped", false},
		{Quiesced, api.VerbQuiesce, Quiesced, "already", false},
		{Quiesced, api.VerbRevert, Reverting, "is reverting", false},
		{Quiesced, api.VerbResume, Resuming, "starts again", false},
		{Reverted, api.VerbQuiesce, Reverted, "is reverted", true},
		{Reverted, api.VerbRevert, Reverted, "already", false},
		{Reverted, api.VerbResume, Resuming, "starts again", false},
		{Resuming, api.VerbQuiesce, Quiescing, "is quiescing", false},
		{Resuming, api.VerbResume, Resuming, "already", false},
		{Serving, "reboot", Serving, "no verb", true},
	} {
		from := Node{Phase: c.from, Reason: "old", Since: now.Add(-time.Hour)}
		next, does, err := from.asked(api.Request{Verb: c.verb, Reason: "driver 580"}, now)
		if err != nil {
			does = err.Error()
		}
		if next.Phase != c.to || (err != nil) != c.err || !strings.Contains(does, c.says) {
			t.Errorf("%s in phase %q: %q, %q, %v", c.verb, c.from, next.Phase, does, err)
		}
	}
	_, _, err := Node{}.asked(api.Request{Verb: api.VerbQuiesce}, now)
	if err == nil || !strings.Contains(err.Error(), "needs a reason") {
		t.Errorf("without a reason: %v", err)
	}
}

func TestNodeWaits(t *testing.T) {
	now := time.Unix(1795254170, 0)
	n := Node{Phase: Quiescing, Since: now.Add(-time.Minute)}
	forced := n
	forced.Force = true
	young, reverting := n, n
	young.Since, reverting.Phase = now, Reverting
	for _, c := range []struct {
		n    Node
		jobs []string
		// unknown is why there may be more.
		unknown string
		says    string
	}{
		{n, []string{"slot1_1 (alice on GPU-a)"}, "", "1 jobs run: slot1_1"},
		{forced, []string{"slot1_1"}, "", "1 jobs run"},
		{n, nil, "the startd does not answer", "gpuslot node quiesce --force goes on without"},
		{reverting, nil, "the startd does not answer", "gpuslot node revert --force goes on without"},
		{forced, nil, "the startd does not answer", ""},
		{young, nil, "", "just started"},
		{n, nil, "", ""},
	} {
		if got := c.n.waitsFor(c.jobs, c.unknown, now); (got == "") != (c.says == "") || !strings.Contains(got, c.says) {
			t.Errorf("%v, %q: %q, want %q", c.jobs, c.unknown, got, c.says)
		}
	}
}
