package room

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/test/together"
)

// TestRoom: however many ask at once, no owner has more places than it may, and all have no more.
func TestRoom(t *testing.T) {
	const each, all = 2, 3
	r := New(nil, each, all, time.Minute)
	var now [3]atomic.Int32 // of two owners, and of both
	var calls []func()
	for i := range 40 {
		calls = append(calls, func() {
			leave, err := r.Enter(uint32(i%2 + 1001))
			if err != nil {
				t.Error(err)
				return
			}
			if now[i%2].Add(1) > each || now[2].Add(1) > all {
				t.Error("too many have places")
			}
			runtime.Gosched()
			now[i%2].Add(-1)
			now[2].Add(-1)
			leave()
		})
	}
	together.Calls(calls...)
	if len(r.of)+len(r.all) > 0 {
		t.Errorf("afterwards %d owners are known, and %d places taken", len(r.of), len(r.all))
	}
}

// TestTurns: no owner keeps others from their places, and all together have some only.
func TestTurns(t *testing.T) {
	turns := NewTurns(NewOwners(subuid(t, "alice:100000:65536\n")))
	for _, c := range []struct {
		of   *Room
		each int
	}{{turns.Reads, mostReadsOfOne}, {turns.Deep, mostDeepOfOne}} {
		c.of.wait = 0
		var leave []func()
		for i := range cap(c.of.all) + 1 {
			end, err := c.of.Enter(uint32(1001 + i/c.each))
			if got, want := errors.Is(err, ErrBusy), i == cap(c.of.all); got != want {
				t.Errorf("caller %d: %v", i, err)
			}
			if err == nil {
				leave = append(leave, end)
			}
		}
		for _, end := range leave {
			end()
		}
		for i := range c.each + 1 {
			_, err := c.of.Enter(uint32(100000 + i))
			if got, want := errors.Is(err, ErrBusy), i == c.each; got != want {
				t.Errorf("caller %d of a range: %v", i, err)
			}
		}
		if _, err := c.of.Enter(1001); err != nil {
			t.Errorf("another account: %v", err)
		}
		for i := range uint32(4) { // of a directory
			if _, err := c.of.Enter(1200000000 + i); (err != nil) != (i >= uint32(cap(c.of.all)-c.each-1)) {
				t.Errorf("neighbouring account %d: %v", i, err)
			}
		}
	}
}
