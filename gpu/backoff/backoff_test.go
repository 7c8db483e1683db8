package backoff

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

func TestAfter(t *testing.T) {
	for _, c := range []struct {
		d        Doubling
		failures int
		want     time.Duration
	}{
		{Doubling{First: time.Second, Longest: 30 * time.Second}, -1, 0},
		{Doubling{First: time.Second, Longest: 30 * time.Second}, 0, 0},
		{Doubling{First: time.Second, Longest: 30 * time.Second}, 1, time.Second},
		{Doubling{First: time.Second, Longest: 30 * time.Second}, 5, 16 * time.Second},
		{Doubling{First: time.Second, Longest: 30 * time.Second}, 6, 30 * time.Second},
		{Doubling{First: time.Second, Longest: 30 * time.Second}, math.MaxInt, 30 * time.Second},
		{Doubling{First: time.Minute, Longest: time.Second}, 1, time.Second},
		{Doubling{First: 100 * time.Millisecond}, 5, 1600 * time.Millisecond},
		{Doubling{}, math.MaxInt, 0},
		{Doubling{First: 1}, 63, 1 << 62},
		{Doubling{First: 1}, 64, math.MaxInt64},
		{Doubling{First: 3, Longest: 24}, 4, 24},
		{Doubling{First: 3, Longest: 23}, 4, 23},
		{Doubling{First: 3, Longest: 25}, 4, 24},
	} {
		if got := c.d.After(c.failures); got != c.want {
			t.Errorf("%+v after %d failures: %v, want %v", c.d, c.failures, got, c.want)
		}
	}
	// Without a bound the pause grows as far as a duration can.
	if got := (Doubling{First: time.Second}).After(1000); got < 100*365*24*time.Hour {
		t.Errorf("a pause without a bound is %v after 1000 failures", got)
	}
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		if err := Wait(t.Context(), time.Minute); err != nil || time.Since(begin) != time.Minute {
			t.Errorf("waited %v: %v", time.Since(begin), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin = time.Now()
		if err := Wait(ctx, time.Minute); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Second {
			t.Errorf("waited %v: %v", time.Since(begin), err)
		}
	})
}
