package tool

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestRun(t *testing.T) {
	out, err := Run(t.Context(), false, "sh", "-c", "echo out; echo err >&2; exit 3")
	var exit *exec.ExitError
	if string(out) != "out\n" || !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("%q, %v", out, err)
	}
	if out, err := Run(t.Context(), true, "sh", "-c", "echo out; echo err >&2"); string(out) != "out\nerr\n" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	if _, err := Run(t.Context(), false, "/nonexistent/program"); !errors.Is(err, exec.ErrNotFound) && !strings.Contains(err.Error(), "no such file") {
		t.Error(err)
	}
}

// TestRunLeavesOutput: a child that keeps the output open holds nobody.
func TestRunLeavesOutput(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, true, "sh", "-c", "sleep 300 & wait"); err == nil {
		t.Error("it was not cut off")
	}
}

// TestRunAbandons: a program that cannot be killed is left behind at its deadline.
// Only a driver makes such a process, so the wait for it is played here.
func TestRunAbandons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		dead := make(chan struct{})
		begin := time.Now()
		_, err := wait(ctx, "nvidia-smi", func(pid *atomic.Int64) ([]byte, error) {
			pid.Store(42)
			<-dead
			return nil, nil
		})
		if !errors.Is(err, ErrHangs) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "nvidia-smi (process 42)") {
			t.Error(err)
		}
		if took := time.Since(begin); took > 13*time.Second {
			t.Errorf("abandoned after %s", took)
		}
		close(dead)
	})
}
