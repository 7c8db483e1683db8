package tool

import (
	"context"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
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

// TestFollow: the process that may hang is known by its number.
func TestFollow(t *testing.T) {
	var pid atomic.Int64
	cmd := exec.Command("true")
	if err := follow(cmd, &pid); err != nil || pid.Load() != int64(cmd.ProcessState.Pid()) {
		t.Errorf("process %d: %v, %v", pid.Load(), cmd.ProcessState, err)
	}
}

// TestRunLeavesOutput: a child that keeps the output open after the program's end is not
// waited for.
func TestRunLeavesOutput(t *testing.T) {
	out, err := Run(t.Context(), true, "sh", "-c", "sleep 300 & echo $!")
	if !errors.Is(err, exec.ErrWaitDelay) {
		t.Errorf("%q, %v", out, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil || syscall.Kill(pid, syscall.SIGKILL) != nil {
		t.Errorf("the child %q did not live on: %v", out, err)
	}
}

// TestRunEnds: a program is killed at the deadline.
func TestRunEnds(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if out, err := Run(ctx, true, "sleep", "300"); err == nil || ctx.Err() == nil {
		t.Errorf("%q, %v", out, err)
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
		if took := time.Since(begin); took != 12*time.Second { // the clock of synctest is exact
			t.Errorf("abandoned after %s", took)
		}
		close(dead)
	})
}
