package layouts

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// TestPaceOfAChange: the loop beats at its pace during a change, and the daemons are probed at theirs.
func TestPaceOfAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, `"3g.20gb@4"`, "")
		at := n.now()
		n.beats, n.probes = 0, 0
		interval := at.Config.Health.Interval
		out, err := n.change(t.Context(), &at, testGPU, func(context.Context, gpu.UUID) (mig.Outcome, error) {
			time.Sleep(3*interval + changePace/2)
			return mig.Outcome{End: mig.ReachedWanted}, errNo
		})
		if out.End != mig.ReachedWanted || !errors.Is(err, errNo) || n.beats != int(3*interval/changePace) || n.probes != 3 {
			t.Errorf("%+v, %v, %d beats, %d probes", out, err, n.beats, n.probes)
		}
	})
}

// TestTimesOfAChange: a change has some time, and some more to go back, then it is left alone.
func TestTimesOfAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, `"3g.20gb@4"`, "")
		at, begun := n.now(), time.Now()
		limit, hangs := make(chan time.Duration, 1), make(chan struct{})
		out, err := n.change(t.Context(), &at, testGPU, func(ctx context.Context, _ gpu.UUID) (mig.Outcome, error) {
			<-ctx.Done()
			limit <- time.Since(begun)
			<-hangs
			return mig.Outcome{}, nil
		})
		if took, had := time.Since(begun), <-limit; had != changeLimit || took != changeAbandoned || out.End != mig.Unchanged || err == nil {
			t.Errorf("it had %s, and was left alone after %s: %+v, %v", had, took, out, err)
		}
		close(hangs)
	})
}
