// Package backoff says how long to wait before something that failed is tried
// again, and waits.
package backoff

import (
	"context"
	"math"
	"time"
)

// Doubling is a pause that doubles with each failure in a row.
type Doubling struct {
	// First is the pause after one failure.
	First time.Duration
	// Longest bounds the pause; 0 means that nothing does.
	Longest time.Duration
}

// After is the pause after so many failures in a row; 0 after none.
func (d Doubling) After(failures int) time.Duration {
	if failures < 1 {
		return 0
	}
	pause := d.First
	for range min(failures-1, 62) {
		if d.Longest > 0 && pause >= d.Longest || pause > math.MaxInt64/2 {
			break
		}
		pause *= 2
	}
	if d.Longest > 0 {
		return min(pause, d.Longest)
	}
	return pause
}

// Wait returns after the pause, or with the context's error when that ends first.
func Wait(ctx context.Context, pause time.Duration) error {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
