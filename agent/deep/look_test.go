package deep

import (
	"testing"
	"time"
)

// TestLook: a look that takes long is waited for once. Others of its key are not begun meanwhile, and do
// not wait; looks of other keys go on.
func TestLook(t *testing.T) {
	defer func(was time.Duration) { lookTimeout = was }(lookTimeout)
	lookTimeout = time.Millisecond
	hold, begun := make(chan struct{}), 0
	stuck := func() int { begun++; <-hold; return 7 }
	for range 3 {
		if _, ok := Look("a", stuck); ok {
			t.Fatal("a look that does not end is known")
		}
	}
	lookTimeout = time.Hour
	if got, ok := Look("b", func() int { return 8 }); got != 8 || !ok {
		t.Error("another job's look waits:", got, ok)
	}
	looks.mu.Lock()
	l := looks.by["a"]
	looks.mu.Unlock()
	time.Sleep(2 * slow) // so that it was slow
	close(hold)
	<-l.done
	if begun != 1 {
		t.Errorf("%d looks were begun", begun)
	}
	if got, ok := Look("a", func() int { return 9 }); got != 7 || !ok {
		t.Error("what a slow look has just found:", got, ok)
	}
}
