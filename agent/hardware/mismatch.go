package hardware

import (
	"context"
	"time"
)

const (
	// mismatchEvery is in how many rounds of the agent's loop a fresh process is asked once.
	mismatchEvery = 4
	// mismatchTimeout bounds it; milliseconds are usual.
	mismatchTimeout = 10 * time.Second
	// mismatchWait is how long a round waits for it; a later round takes the answer.
	mismatchWait = 2 * time.Second
)

// answer is what a fresh process reported of the driver.
type answer struct {
	why string
	err error
}

// Unusable asks a fresh process whether it could use the driver, because this one has the library of
// the driver that it started with. It says why not. Round is that of the agent's loop; now asks in any
// round.
func (r *Reader) Unusable(ctx context.Context, round uint64, now bool) string {
	if r.Mismatch == nil || r.asked == nil && !now && round%mismatchEvery != 1 && r.mismatch == "" {
		return r.mismatch
	}
	wait := mismatchWait
	if r.asked != nil {
		wait = 0 // an earlier round has waited
	} else {
		ask, asked := r.Mismatch, make(chan answer, 1)
		r.asked = asked
		go func() {
			ctx, cancel := context.WithTimeout(ctx, mismatchTimeout)
			defer cancel()
			why, err := ask(ctx)
			asked <- answer{why, err}
		}()
	}
	got, ok := within(wait, r.asked)
	if !ok {
		r.Log.Warn("a fresh process hangs in the driver; the rounds go on without its answer")
		return r.mismatch
	}
	r.asked = nil
	if got.err != nil {
		r.Log.Warn("a fresh process was not asked for the driver", "err", got.err)
	} else {
		r.healed = r.healed || r.mismatch != "" && got.why == ""
		r.mismatch = got.why
	}
	return r.mismatch
}

// Healed says that a fresh process can use the driver again. This one cannot: it has the library of
// the driver before.
func (r *Reader) Healed() bool { return r.healed }

// within is an answer that is there, or comes in time.
func within(wait time.Duration, from <-chan answer) (got answer, ok bool) {
	select {
	case got = <-from: // also without time to wait
		return got, true
	default:
	}
	select {
	case got = <-from:
		return got, true
	case <-time.After(wait):
		return answer{}, false
	}
}
