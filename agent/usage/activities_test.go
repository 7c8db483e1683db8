package usage

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// fakeExporter is a dcgm-exporter that answers at once.
type fakeExporter struct {
	activities Activities
	err        error
}

func (e fakeExporter) Activities(context.Context) (Activities, error) { return e.activities, e.err }

// A value may be older than the newest process: who came or went lately may
// have caused any part of it.
func TestDCGMIsOfSomeTimeAgo(t *testing.T) {
	n := newNode(t)
	n.process(t, 100, 1)
	n.process(t, 102, 1)
	n.slots = map[int]SlotKey{100: slot1, 102: slot2}
	n.bookings = []Reservation{{Slot: slot1, Device: wholeA, MPS: true, Cap: 0.5}}
	s := n.sampler()
	s.options.DCGM = fakeExporter{activities: Activities{{GPU: gpuA, ID: WholeGPU}: 0.4}}
	n.readings = []gpu.Reading{reads(gpuA, on(100, gib), on(102, gib))}
	var snap *Snapshot
	for range 60 {
		snap = n.round(t, s)
	}
	n.readings = []gpu.Reading{reads(gpuA, on(100, gib))}
	for k := range 30 {
		snap = n.round(t, s)
		if u, _ := snap.Slot(slot1, wholeA); u.SM.Lower.Value > 0 {
			t.Fatalf("%d s after slot1_2 has ended: %+v", k+1, u.SM)
		}
	}
	for range 10 {
		snap = n.round(t, s)
	}
	if u, _ := snap.Slot(slot1, wholeA); !same(u.SM, spread(Range{0.4, 0.4, 0.4})) {
		t.Errorf("alone for a minute: %+v", u.SM)
	}
}

// Where NVML does not tell the activity, the exporter's value takes its place,
// and its failure is its own.
func TestDCGMFillsIn(t *testing.T) {
	n := newNode(t)
	n.process(t, 100, 1)
	n.slots[100] = slot1
	n.bookings = []Reservation{{Slot: slot1, Device: wholeA, Share: 1}}
	n.readings = []gpu.Reading{reads(gpuA, on(100, gib))}
	s := n.sampler()
	s.options.DCGM = fakeExporter{activities: Activities{{GPU: gpuA, ID: WholeGPU}: 0.75}}
	n.round(t, s)
	snap := n.round(t, s)
	d, _ := snap.Device(wholeA)
	if u, _ := snap.Slot(slot1, wholeA); d.ActivitySource != "dcgm" || !same(u.SM, spread(Range{0.75, 0.75, 0.75})) {
		t.Errorf("%+v, %+v", d, u)
	}
	s.options.DCGM = fakeExporter{err: errors.New("503 Service Unavailable")}
	snap = n.round(t, s)
	d, _ = snap.Device(wholeA)
	if u, _ := snap.Slot(slot1, wholeA); d.Activity.Known || u.SM.Estimate.Known || u.Method != MethodExclusive {
		t.Errorf("the value of a dead exporter lives on: %+v, %+v", d, u)
	}
	if h := snap.Sources; len(h) != 2 || h[0].Err != nil || h[1].Source != "dcgm" || h[1].Err == nil || h[1].Succeeded.IsZero() {
		t.Errorf("%+v", h)
	}
}

// silent never answers.
type silent struct{}

func (silent) Activities(ctx context.Context) (Activities, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestSilentDCGM: an exporter that never answers delays a sample by a part of the interval.
func TestSilentDCGM(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		s := n.sampler()
		s.options.DCGM, s.options.Interval = silent{}, time.Minute
		begin := time.Now()
		s.Round(t.Context())
		if took := time.Since(begin); took > time.Minute/4 || len(s.Snapshot().Sources) != 2 || s.Snapshot().Sources[1].Err == nil {
			t.Errorf("a round took %s: %+v", took, s.Snapshot().Sources)
		}
	})
}
