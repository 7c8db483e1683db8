package poll_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpuslot/gpuslot/test/poll"
)

// TestUntil: a question that takes long is asked less often, and the last one after the limit.
func TestUntil(t *testing.T) {
	for _, c := range []struct {
		name               string
		takes, yes, passed time.Duration
		asked              int
		said               bool
	}{
		{"yes at once", 0, 0, 0, 1, true},
		{"a cheap question", 0, 100 * time.Millisecond, 100 * time.Millisecond, 11, true},
		{"one of 10 ms", 10 * time.Millisecond, 100 * time.Millisecond, 110 * time.Millisecond, 3, true},
		{"one of 2 s", 2 * time.Second, 11 * time.Second, 14 * time.Second, 3, true},
		{"never", 20 * time.Second, time.Hour, 68 * time.Second, 3, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin, asked := time.Now(), 0
				said := poll.Until(30*time.Second, 10*time.Millisecond, func() bool {
					asked++
					now := time.Since(begin) >= c.yes
					time.Sleep(c.takes)
					return now
				})
				if passed := time.Since(begin); said != c.said || asked != c.asked || passed != c.passed {
					t.Errorf("%v after %d questions and %s; want %v, %d, %s", said, asked, passed, c.said, c.asked, c.passed)
				}
			})
		})
	}
}
