package mps

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/gpuslot/gpuslot/gpu/backoff"
	"github.com/gpuslot/gpuslot/gpu/foreign"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// maxLine and maxReply bound what goes to and comes from a control daemon;
// the longest reply is a table of some hundred clients.
const (
	maxLine  = 200
	maxReply = 64 << 10
	// outputEnds is how long the output of an ended program may stay open, in its children's hands.
	outputEnds = time.Second
)

// tryAgain is the pause after conversations that another program kept from being executed.
var tryAgain = backoff.Doubling{First: 2 * time.Millisecond, Longest: 100 * time.Millisecond}

// converse runs commands in one connection and returns one reply each, with
// the process that answered. It waits for its turn, then tries until the
// daemon has executed all of them or its patience is over, so commands must be
// fit to be repeated.
func (d *Daemon) converse(ctx context.Context, commands ...string) ([]string, process.ID, error) {
	for _, c := range commands {
		if len(c) > maxLine || strings.ContainsFunc(c, isControl) {
			return nil, process.ID{}, d.fault(Invalid, nil, "%q is not one line of at most %d bytes", foreign.Clip(c), maxLine)
		}
	}
	release, err := d.takeTurn(ctx)
	if err != nil {
		return nil, process.ID{}, err
	}
	defer release()
	return d.tryUntilDone(ctx, commands)
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// tryUntilDone repeats a conversation that another program's connection kept
// from being executed.
func (d *Daemon) tryUntilDone(ctx context.Context, commands []string) ([]string, process.ID, error) {
	ctx, cancel := context.WithTimeout(ctx, d.patience)
	defer cancel()
	begin := time.Now()
	var refused error
	for try := 1; ; try++ {
		before, err := d.Alive()
		if err != nil {
			return nil, process.ID{}, err
		}
		replies, tryErr := d.try(ctx, commands)
		if errors.Is(tryErr, errNotExecuted) {
			refused = tryErr
		}
		after, err := d.Alive()
		switch {
		case tryErr == nil && err == nil && after == before:
			return replies, before, nil
		case FaultOf(tryErr) == NotInstalled:
			return nil, process.ID{}, tryErr
		case err != nil && FaultOf(err) != NotRunning:
			return nil, process.ID{}, err
		case err != nil || after != before:
			return nil, process.ID{}, d.fault(Gone, err, "process %d ended while it was asked: see its log for the "+
				"cause", before.PID)
		}
		if err := backoff.Wait(ctx, tryAgain.After(try)); err != nil {
			return nil, process.ID{}, d.gaveUp(err, refused, before, time.Since(begin))
		}
	}
}

// gaveUp says why the time is over without a whole reply. One refusal tells
// more than a last try that the end of the time cut off.
func (d *Daemon) gaveUp(ctxErr, refused error, who process.ID, after time.Duration) error {
	if errors.Is(ctxErr, context.Canceled) {
		return fmt.Errorf("control daemon of %s: %w", d.gpu, ctxErr)
	}
	after = after.Round(time.Millisecond)
	if refused != nil {
		return d.fault(Busy, refused,
			"process %d refused every command for %v (%v): another program keeps its only connection; look for "+
				"nvidia-cuda-mps-control processes with this pipe directory",
			who.PID, after, refused)
	}
	return d.fault(Wedged, ctxErr,
		"process %d lives but did not answer within %v: close the GPU, let its jobs end, then restart the "+
			"daemon", who.PID, after)
}

// errNotExecuted means that the command line ended without the daemon having
// executed the whole script.
var errNotExecuted = errors.New("not executed")

// try is one run of the command line.
func (d *Daemon) try(ctx context.Context, commands []string) ([]string, error) {
	nonce := newNonce()
	out, stderr, err := d.run(ctx, script(nonce, commands))
	if notInstalled(err) {
		return nil, d.fault(NotInstalled, err, "%s is not on this machine: %s", d.program, installHint)
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil, d.fault(NotInstalled, err, "%s cannot be run: %v: make it executable", d.program, err)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if replies, ok := splitReplies(out, nonce, len(commands)); ok {
		return replies, nil
	}
	said := strings.TrimSpace(stderr + out)
	return nil, fmt.Errorf("%w: %s", errNotExecuted, printable(said))
}

// installHint names the packages by what was seen in their file lists.
const installHint = "install the package nvidia-cuda-mps (Debian), nvidia-compute-utils-<branch> (Ubuntu) or " +
	"nvidia-driver-cuda (Enterprise Linux), of the same version as the driver"

func notInstalled(err error) bool {
	return errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist)
}

// run gives the script to nvidia-cuda-mps-control in client mode. It has a
// process group of its own, which dies with ctx.
func (d *Daemon) run(ctx context.Context, stdin string) (stdout, stderr string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out, errOut := capped{tooMuch: cancel}, capped{tooMuch: cancel}
	cmd := exec.CommandContext(ctx, d.program)
	cmd.Env = clientEnvironment(d.dir)
	cmd.Dir = "/"
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if d.stranger != 0 {
		cmd.SysProcAttr.Credential = process.Untraced(d.stranger, d.stranger)
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = outputEnds
	err = cmd.Run()
	return out.kept.String(), errOut.kept.String(), err
}

// clientEnvironment leaves out everything of the agent's own but the PATH. The
// protocol is named because newer drivers know another one.
func clientEnvironment(dir string) []string {
	return []string{
		"PATH=" + os.Getenv("PATH"),
		"LC_ALL=C",
		"CUDA_MPS_PIPE_DIRECTORY=" + dir,
		"CUDA_MPS_PROTOCOL_VERSION=2",
	}
}

func newNonce() string {
	b := make([]byte, 8)
	rand.Read(b) // never fails: crypto/rand ends the program instead
	return hex.EncodeToString(b)
}

// capped keeps the first maxReply bytes and ends a writer of more. The buffer
// is not embedded: its ReadFrom would take everything past Write.
type capped struct {
	kept    bytes.Buffer
	tooMuch func()
}

func (c *capped) Write(p []byte) (int, error) {
	if c.kept.Len()+len(p) > maxReply {
		c.tooMuch()
		return 0, fmt.Errorf("more than %d bytes of output", maxReply)
	}
	return c.kept.Write(p)
}
