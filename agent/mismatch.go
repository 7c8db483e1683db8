package agent

import (
	"context"
	"time"
)

// mismatch asks a fresh process whether it could use the driver: this one has
// the library of the driver that it started with. It says why not.
func (a *Agent) mismatch(ctx context.Context, v *view, reload bool) string {
	if a.driverMismatch == nil || a.driverAsked == nil && !reload && v.rounds%mismatchEvery != 1 && a.mismatched == "" {
		return a.mismatched
	}
	wait := mismatchWait
	if a.driverAsked != nil {
		wait = 0 // an earlier round has waited
	} else {
		ask, answer := a.driverMismatch, make(chan driverAnswer, 1)
		a.driverAsked = answer
		go func() {
			ctx, cancel := context.WithTimeout(ctx, mismatchTimeout)
			defer cancel()
			why, err := ask(ctx)
			answer <- driverAnswer{why, err}
		}()
	}
	answer, ok := within(wait, a.driverAsked)
	if !ok {
		a.log.Warn("a fresh process hangs in the driver; the rounds go on without its answer")
		return a.mismatched
	}
	a.driverAsked = nil
	if answer.err != nil {
		a.log.Warn("a fresh process was not asked for the driver", "err", answer.err)
	} else {
		a.healed = a.healed || a.mismatched != "" && answer.why == ""
		a.mismatched = answer.why
	}
	return a.mismatched
}

// within is an answer that is there, or comes in time.
func within(wait time.Duration, from <-chan driverAnswer) (answer driverAnswer, ok bool) {
	select {
	case answer = <-from: // also without time to wait
		return answer, true
	default:
	}
	select {
	case answer = <-from:
		return answer, true
	case <-time.After(wait):
		return driverAnswer{}, false
	}
}

// driverAnswer is what a fresh process said of the driver.
type driverAnswer struct {
	why string
	err error
}

const (
	// mismatchEvery is in how many rounds a fresh process is asked once.
	mismatchEvery = 4
	// mismatchTimeout bounds it; milliseconds are usual.
	mismatchTimeout = 10 * time.Second
	// mismatchWait is how long a round waits for it; a later round takes the answer.
	mismatchWait = 2 * time.Second
)
