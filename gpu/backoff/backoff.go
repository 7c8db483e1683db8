// Package backoff says how long to wait before something that failed is tried
// again, and waits.
package backoff

import (
	"cmp"
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
	longest := cmp.Or(d.Longest, math.MaxInt64)
	if pause := math.Ldexp(float64(d.First)/2, min(failures, math.MaxInt32)); pause < float64(longest) {
		return time.Duration(pause)
	}
	return longest
}

// Wait returns after the pause, or with the context's error when that ends first.
func Wait(ctx context.Context, pause time.Duration) error {
	select {
	case <-time.After(pause):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
