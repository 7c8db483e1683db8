package sampling

import (
	"sync"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
)

// TestLooks: before the first sample, the begin counts as one.
func TestLooks(t *testing.T) {
	var l looks
	a, b := usage.Device{GPU: uuid(0)}, usage.Device{GPU: uuid(1)}
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	snap := func(second int64) *usage.Snapshot {
		return &usage.Snapshot{Devices: []usage.DeviceUsage{{Device: a, At: at(second)}}}
	}
	if l.note(snap(5)); !l.last(a).IsZero() {
		t.Error("a sample before the begin counts")
	}
	l.begin(at(10))
	for _, c := range []struct{ sample, a int64 }{{9, 10}, {10, 10}, {11, 11}, {13, 13}} {
		l.note(snap(c.sample))
		if got := l.last(a); !got.Equal(at(c.a)) || !l.last(b).Equal(at(10)) {
			t.Errorf("a sample of second %d: %s and %s", c.sample, got, l.last(b))
		}
	}
	if l.begin(at(20)); !l.last(a).Equal(at(20)) {
		t.Error("a second begin forgets nothing")
	}
	var all sync.WaitGroup
	for range 4 { // the race detector looks
		all.Go(func() { l.begin(at(30)) })
		all.Go(func() { l.note(snap(31)) })
		all.Go(func() { _ = l.last(a) })
		all.Go(func() { _ = l.isUnclear(a) })
	}
	all.Wait()
}

// TestUnclearWhileTheDriverHangs: what a device said before counts once, however many samples have it.
func TestUnclearWhileTheDriverHangs(t *testing.T) {
	a := usage.Device{GPU: uuid(0)}
	at := time.Unix(1000, 0)
	snap := &usage.Snapshot{Devices: []usage.DeviceUsage{
		{Device: a, At: at, Processes: gpu.Known([]usage.Process{{Owner: usage.OwnerEnded, Stays: true}})},
	}}
	var l looks
	for range 3 * mostUnclear {
		l.note(snap)
	}
	if l.unclear[a].samples != 1 || l.isUnclear(a) {
		t.Errorf("%+v", l.unclear[a])
	}
	for range mostUnclear {
		at = at.Add(time.Second)
		snap.Devices[0].At = at
		l.note(snap)
	}
	if !l.isUnclear(a) {
		t.Errorf("%+v", l.unclear[a])
	}
}

// TestUnclear: samples are counted in which it is not known whose a process on the device is, up to a bound. The GPU closes
// above a number of them, and opens when as many have shown none. A sample that
// lists no processes counts nothing, and what is not sampled any more is forgotten.
func TestUnclear(t *testing.T) {
	a, b := usage.Device{GPU: uuid(0)}, usage.Device{GPU: uuid(1)}
	on := func(known bool, owners ...usage.Owner) *usage.Snapshot {
		d := usage.DeviceUsage{Device: a, Processes: gpu.Measured[[]usage.Process]{Known: known}}
		for _, o := range owners {
			d.Processes.Value = append(d.Processes.Value, usage.Process{Owner: o})
		}
		return &usage.Snapshot{Devices: []usage.DeviceUsage{d, {Device: b}}}
	}
	unknown, clear := on(true, usage.OwnerSlot, usage.OwnerUnknown), on(true, usage.OwnerSlot)
	var l looks
	for i, c := range []struct {
		samples int
		snap    *usage.Snapshot
		want    int
		closes  bool
	}{
		{1, clear, 0, false}, {3, unknown, 3, false}, {1, on(false), 3, false}, {1, clear, 2, false}, {3, unknown, 5, false},
		{1, unknown, 6, true}, {1, clear, 5, true}, {5, clear, 0, false}, {1, unknown, 1, false},
		{100, unknown, mostUnclear, true}, {1, on(false), mostUnclear, true},
		{mostUnclear - 1, clear, 1, true}, {1, &usage.Snapshot{}, 0, false}, {1, unknown, 1, false},
	} {
		for range c.samples {
			l.note(c.snap)
		}
		if l.unclear[a].samples != c.want || l.isUnclear(a) != c.closes || l.isUnclear(b) {
			t.Errorf("step %d: %v, want %d, closed %t", i, l.unclear, c.want, c.closes)
		}
	}
}
