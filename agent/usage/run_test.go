package usage

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// wedge is a source that answers, or hangs until the caller gives up.
type wedge struct {
	*node
	hangs         atomic.Bool
	running, most atomic.Int32
}

func (w *wedge) Read(ctx context.Context) ([]gpu.Reading, error) {
	w.most.Store(max(w.most.Load(), w.running.Add(1)))
	defer w.running.Add(-1)
	if w.hangs.Load() {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return w.readings, nil
}

// The loop samples at its interval; when the source hangs it goes on at its
// deadline, one reading at a time, and drops what is stale.
func TestRun(t *testing.T) {
	n := newNode(t)
	n.readings = []gpu.Reading{reads(gpuA)}
	synctest.Test(t, func(t *testing.T) {
		w := &wedge{node: n}
		s := NewSampler(Options{Source: w, Site: n, Interval: time.Second, Proc: n.proc})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for pace := time.NewTicker(time.Second); ctx.Err() == nil; <-pace.C {
				s.Round(ctx)
			}
		}()
		after := func(d time.Duration) *Snapshot {
			time.Sleep(d)
			synctest.Wait()
			return s.Snapshot()
		}
		snap := after(10*time.Second + 500*time.Millisecond)
		if len(snap.Devices) != 1 || time.Since(snap.At) > time.Second {
			t.Errorf("%+v", snap)
		}
		w.hangs.Store(true)
		snap = after(10 * time.Second)
		if len(snap.Devices) != 0 || time.Since(snap.At) > 3*time.Second || snap.Sources[0].Err == nil || w.most.Load() != 1 {
			t.Errorf("%+v; %d at once", snap, w.most.Load())
		}
		w.hangs.Store(false)
		if snap = after(5 * time.Second); len(snap.Devices) != 1 || snap.Sources[0].Err != nil {
			t.Errorf("%+v", snap)
		}
		cancel()
		<-ended
	})
}

// A fresh sampler knows nothing, and says so.
func TestBeforeTheFirstRound(t *testing.T) {
	snap := newNode(t).sampler().Snapshot()
	if snap == nil || !snap.At.IsZero() || len(snap.Devices) != 0 {
		t.Errorf("%+v", snap)
	}
}
