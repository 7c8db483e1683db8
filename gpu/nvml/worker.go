package nvml

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// worker runs calls one after another in one goroutine.
type worker struct {
	jobs chan func()
	// at names the call that runs now, for the error of whoever waits for it.
	at atomic.Pointer[string]
}

func newWorker() *worker {
	w := &worker{jobs: make(chan func())}
	go func() {
		for job := range w.jobs {
			job()
			w.at.Store(nil)
		}
	}()
	return w
}

// stop ends the goroutine after the call in flight; no call may follow.
func (w *worker) stop() { close(w.jobs) }

// step names the NVML call that comes next; only jobs call it.
func (w *worker) step(call string) { w.at.Store(&call) }

// run has the worker do one job. If the context ends first the job goes on,
// its result is dropped, and later calls wait behind it.
func run[T any](ctx context.Context, w *worker, limit time.Duration, job func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	done := make(chan result, 1) // buffered: the receiver may have given up
	var none T
	select {
	case w.jobs <- func() {
		v, err := job()
		done <- result{v, err}
	}:
	case <-ctx.Done():
		return none, w.hangs(ctx)
	}
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return none, w.hangs(ctx)
	}
}

func (w *worker) hangs(ctx context.Context) error {
	call := "NVML"
	if at := w.at.Load(); at != nil {
		call = *at
	}
	return fmt.Errorf("%s has not returned: %w; the driver may hang, see dmesg for NVRM lines", call, context.Cause(ctx))
}
