package nvml

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestWorkerRunsOneCallAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker()
		defer w.stop()
		running, most := 0, 0
		results := make(chan int)
		for i := range 10 {
			go func() {
				v, err := run(t.Context(), w, time.Minute, func() (int, error) {
					running++ // without a lock: the race detector watches
					most = max(most, running)
					time.Sleep(time.Second)
					running--
					return i, nil
				})
				if err != nil {
					t.Error(err)
				}
				results <- v
			}()
		}
		sum := 0
		for range 10 {
			sum += <-results
		}
		if sum != 45 || most != 1 {
			t.Errorf("results sum to %d, want 45; %d ran at once", sum, most)
		}
	})
}

func TestWorkerNamesTheCallThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker()
		defer w.stop()
		hang := make(chan struct{})
		_, err := run(t.Context(), w, time.Second, func() (int, error) {
			w.step("nvmlDeviceGetMemoryInfo of the GPU with NVML index 3")
			<-hang
			return 0, nil
		})
		const want = "nvmlDeviceGetMemoryInfo of the GPU with NVML index 3 has not returned"
		if !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("the caller is told %q", err)
		}
		// Whoever comes next waits behind the hanging call, and is told so too.
		_, err = run(t.Context(), w, time.Second, func() (int, error) { return 0, nil })
		if !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("the next caller is told %q", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err = run(ctx, w, time.Second, func() (int, error) { return 0, nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled caller is told %q", err)
		}
		close(hang)
		if v, err := run(t.Context(), w, time.Second, func() (int, error) { return 7, nil }); v != 7 || err != nil {
			t.Errorf("after the call returned: %d, %v", v, err)
		}
	})
}

func TestWorkerPassesErrorsOn(t *testing.T) {
	w := newWorker()
	defer w.stop()
	want := errors.New("refused")
	if _, err := run(t.Context(), w, time.Minute, func() (int, error) { return 0, want }); !errors.Is(err, want) {
		t.Errorf("got %v", err)
	}
}
