package agent

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

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
