package agent

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/closures"
)

// TestResumeWaits: a node that resumes serves when its GPUs are back, and not before.
func TestResumeWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ta := newTestAgent(t, 1, "")
		if err := ta.closures.SetNode(closures.Node{Phase: closures.Resuming, Since: time.Now(), Unverified: true}); err != nil {
			t.Fatal(err)
		}
		v := *ta.view.Load()
		v.closed = "the driver is loading"
		ta.view.Store(&v)
		ctx, cancel := context.WithCancel(t.Context())
		go ta.quiescer.Resume(ctx)
		time.Sleep(10 * time.Second)
		if p := ta.closures.Node().Phase; p != closures.Resuming {
			t.Errorf("it is %q while %s", p, v.closed)
		}
		ta.apply(false)
		time.Sleep(2 * time.Second)
		if p := ta.closures.Node().Phase; p != closures.Serving {
			t.Errorf("it is %q although its GPUs are back: %s", p, ta.quiescer.Status().Waits)
		}
		cancel()
	})
}

// TestOrderAgain: an order without effect is given again ever later, and one for
// another plan at once.
func TestOrderAgain(t *testing.T) {
	now, o := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC), ordered{}
	one, two := api.Change{Need: api.NeedRestart, Plan: "one"}, api.Change{Need: api.NeedRestart, Plan: "two"}
	o.give(one, now)
	o.give(one, now)
	if o.due(one, now.Add(2*orderAgain-time.Second)) || !o.due(one, now.Add(2*orderAgain)) {
		t.Errorf("the second order: %+v", o)
	}
	o.give(two, now)
	if o.due(two, now.Add(orderAgain-time.Second)) || !o.due(two, now.Add(orderAgain)) {
		t.Errorf("the first order of another plan: %+v", o)
	}
}
