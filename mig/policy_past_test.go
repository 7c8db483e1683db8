package mig

import (
	"testing"
	"time"
)

// TestRecentClock: a change from before the clock was set back counts for as long as
// any other, not until the clock is there again.
func TestRecentClock(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	kept := recent([]Changed{{At: now.Add(24 * time.Hour)}, {At: now.Add(-time.Hour)}, {At: now.Add(-time.Minute)}}, now, time.Hour)
	if len(kept) != 2 || !kept[0].At.Equal(now) {
		t.Fatalf("%+v", kept)
	}
	if kept = recent(kept, now.Add(time.Hour), time.Hour); len(kept) != 0 {
		t.Errorf("an hour later: %+v", kept)
	}
}
