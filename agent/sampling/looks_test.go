package sampling

import (
	"sync"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/usage"
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
	}
	all.Wait()
}
