// Package tool runs programs that may hang. A process in uninterruptible sleep,
// such as one in a driver that does not answer, does not end even when it is
// killed, and whoever waits for it hangs too.
package tool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"
)

// ErrHangs is in the error of a program that was abandoned: it was killed and has
// not ended.
var ErrHangs = errors.New("it does not end although it was killed")

// grace is how long a killed program may take to end, and its children to close
// its output.
const grace = time.Second

// Run runs a program until it ends, or until a moment after the end of ctx; it is
// then abandoned (ErrHangs). Out is what it printed, stderr included where both
// is asked for; nil if it was abandoned.
func Run(ctx context.Context, both bool, name string, args ...string) (out []byte, err error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = grace
	var buf bytes.Buffer
	if cmd.Stdout = &buf; both {
		cmd.Stderr = &buf
	}
	return wait(ctx, filepath.Base(name), func(pid *atomic.Int64) ([]byte, error) {
		err := follow(cmd, pid)
		return buf.Bytes(), err
	})
}

// follow runs a program and notes its process before it waits for the end.
func follow(cmd *exec.Cmd, pid *atomic.Int64) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	pid.Store(int64(cmd.Process.Pid))
	return cmd.Wait()
}

// wait waits for run, which does not return where the kernel does not.
func wait(ctx context.Context, name string, run func(pid *atomic.Int64) ([]byte, error)) ([]byte, error) {
	type result struct {
		out []byte
		err error
	}
	ended := make(chan result, 1)
	var pid atomic.Int64
	go func() {
		out, err := run(&pid)
		ended <- result{out, err}
	}()
	select {
	case r := <-ended:
		return r.out, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-ended:
		return r.out, r.err
	case <-time.After(2 * grace):
		return nil, fmt.Errorf("%s (process %d): %w: see the kernel log; a driver that hangs needs a reboot", name,
			pid.Load(), errors.Join(ErrHangs, ctx.Err()))
	}
}
