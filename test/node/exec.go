package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// path is that of commands inside.
const path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Cmd is a command to run inside a node, in its user's home directory.
type Cmd struct {
	Args  []string
	User  string            // default: root
	Env   map[string]string // added to HOME, USER, LOGNAME, SHELL and PATH; nothing of the test's own
	Stdin io.Reader         // default: empty
}

// Result is what a command printed and the code it ended with (128+n for signal n).
type Result struct {
	Stdout string
	Stderr string
	Code   int
}

// ExitError is the error of a command that ran and ended with a code other than 0.
type ExitError struct {
	Args   []string
	Result Result
}

func (e *ExitError) Error() string {
	out := strings.TrimSpace(e.Result.Stderr)
	if out == "" {
		out = strings.TrimSpace(e.Result.Stdout)
	}
	return fmt.Sprintf("%s: exit code %d: %s", strings.Join(e.Args, " "), e.Result.Code, tail(out, 20))
}

// Run runs a command as root; see Exec.
func (n *Node) Run(ctx context.Context, args ...string) (Result, error) {
	return n.Exec(ctx, Cmd{Args: args})
}

// RunAs runs a command as a user of the node; see Exec.
func (n *Node) RunAs(ctx context.Context, user string, args ...string) (Result, error) {
	return n.Exec(ctx, Cmd{User: user, Args: args})
}

// Exec runs a command inside and waits for it. A code other than 0 is an *ExitError, with the Result filled in
// too. When the context ends, the command and all that it started are killed.
//
// The command starts in a cgroup of its own inside the node's tree (/exec/<n>), as a process of the node
// would: nsenter by itself leaves it outside, where /proc/self/cgroup reads "/../..".
func (n *Node) Exec(ctx context.Context, c Cmd) (Result, error) {
	if len(c.Args) == 0 {
		return Result{}, errors.New("exec: no command")
	}
	if err := ctx.Err(); err != nil {
		return Result{}, fmt.Errorf("%s: %w", c.Args[0], err)
	}
	group := filepath.Join(n.cgroup.exec(), strconv.FormatInt(n.seq.Add(1), 10))
	if err := os.Mkdir(group, 0o755); err != nil {
		return Result{}, fmt.Errorf("%s: %w", c.Args[0], err)
	}
	dir, err := os.Open(group)
	if err != nil {
		return Result{}, err
	}
	defer dir.Close()
	cmd := exec.CommandContext(ctx, "nsenter", n.nsenterArgs(c)...)
	cmd.Env = []string{"PATH=" + path, "HOME=/root", "USER=root", "LOGNAME=root", "SHELL=/bin/bash"}
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	// Killing nsenter would leave its child: kill the cgroup.
	cmd.Cancel = func() error { kill(group); return nil }
	// A daemon that a command leaves behind may hold the pipes.
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	// A background process that the command left on purpose keeps the cgroup, until Stop.
	_ = os.Remove(group)
	res := Result{Stdout: stdout.String(), Stderr: stderr.String(), Code: cmd.ProcessState.ExitCode()}
	if ctx.Err() != nil {
		return res, fmt.Errorf("%s: %w: %s", strings.Join(c.Args, " "), ctx.Err(), tail(res.Stderr, 5))
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			res.Code = 128 + int(status.Signal())
		}
		return res, &ExitError{Args: c.Args, Result: res}
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	return res, err
}

// nsenterArgs enters all namespaces of PID 1, becomes the user with the user's environment, and goes to its
// directory. Each program on the way costs as much as a short command, so root needs none.
func (n *Node) nsenterArgs(c Cmd) []string {
	args := []string{"-t", strconv.Itoa(n.leader), "-m", "-u", "-i", "-n", "-p", "-C", "-S", "0", "-G", "0"}
	if c.User == "" || c.User == "root" {
		args = append(args, "-w"+filepath.Join("/proc", strconv.Itoa(n.leader), "root/root"), "--")
	} else {
		args = append(args, "--", "setpriv", "--reuid", c.User, "--regid", c.User, "--init-groups", "--reset-env",
			"sh", "-c", `export PATH="$1"; cd && shift && exec "$@"`, "sh", path)
	}
	if len(c.Env) > 0 {
		args = append(args, "env")
		for name, value := range c.Env {
			args = append(args, name+"="+value)
		}
	}
	return append(args, c.Args...)
}

// Journal is the journal of one unit since the boot; "" is the whole journal.
func (n *Node) Journal(ctx context.Context, unit string) (string, error) {
	args := []string{"journalctl", "--no-pager", "-b", "-o", "short-precise"}
	if unit != "" {
		args = append(args, "-u", unit)
	}
	res, err := n.Run(ctx, args...)
	return res.Stdout, err
}

// diagnosis is what a failed step adds to its error: failed units and the end of the journal.
func (n *Node) diagnosis() string {
	// The caller's context is over: that is why the step failed.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var b strings.Builder
	if res, err := n.Run(ctx, "systemctl", "--failed", "--no-legend", "--plain", "--no-pager"); err == nil && res.Stdout != "" {
		fmt.Fprintf(&b, "\nfailed units:\n%s", res.Stdout)
	}
	if log, err := n.Journal(ctx, ""); err == nil {
		fmt.Fprintf(&b, "\nend of the journal:\n%s", tail(log, 30))
	}
	return b.String()
}
