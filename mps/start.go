package mps

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/backoff"
)

// Start makes the pipe directory, starts the control daemon of a GPU in it and waits
// until it holds its lock; one that runs already is left alone.
func (p Processes) Start(ctx context.Context, u gpu.UUID) error {
	d, err := p.daemon(u)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		if _, err := d.Alive(); FaultOf(err) != NotRunning {
			return err
		}
		if err := d.Prepare(); err != nil {
			return err
		}
		if err := d.endOrphans(ctx); err != nil {
			return err
		}
		// A killed daemon holds its lock until its last thread has ended, which may
		// be a moment after it counts as dead: then a new one finds the lock taken.
		err := p.startOnce(ctx, d)
		if !errors.Is(err, errLockTaken) || backoff.Wait(ctx, lookAgain) != nil {
			return err
		}
	}
}

// startOnce starts a process and waits until it holds the lock or ended.
func (p Processes) startOnce(ctx context.Context, d *Daemon) error {
	log, err := p.openLog(d.gpu)
	if err != nil {
		return d.fault(Unwritable, err, "its log file cannot be used: %v: make %s writable", err, p.Logs)
	}
	defer func() { _ = log.Close() }()
	from, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return d.fault(Unwritable, err, "its log file cannot be used: %v: make %s a directory for files", err, p.Logs)
	}
	cmd := p.command(context.WithoutCancel(ctx), d, log)
	if err := cmd.Start(); err != nil {
		if notInstalled(err) {
			return d.fault(NotInstalled, err, "%s is not on this machine: %s", p.Program, installHint)
		}
		return fmt.Errorf("start control daemon of %s: %w", d.gpu, err)
	}
	raiseOpenFiles(cmd.Process.Pid)
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // its log says more; this also reaps it, should it end before us
		close(exited)
	}()
	err = d.awaitLock(ctx, cmd.Process.Pid, exited, func() string { return readFrom(log.Name(), from) })
	if FaultOf(err) == Wedged {
		_ = cmd.Process.Kill() // it holds no lock: nobody would find it again
	}
	return err
}

// command is the control daemon in the foreground. Standard input is /dev/null:
// an unknown flag silently means client mode, which would read commands.
func (p Processes) command(ctx context.Context, d *Daemon, log *os.File) *exec.Cmd {
	flags := slices.Clone(p.Flags)
	if p.FlagsOf != nil {
		flags = append(flags, p.FlagsOf(d.gpu)...)
	}
	cmd := exec.CommandContext(ctx, p.Program, append(flags, "-f")...)
	path := "/usr/sbin:/usr/bin:/sbin:/bin"
	if p.ServerPath != "" {
		path = p.ServerPath + ":" + path
	}
	cmd.Env = append(slices.Clone(p.Environment),
		"PATH="+path,
		"CUDA_VISIBLE_DEVICES="+string(d.gpu),
		"CUDA_MPS_PIPE_DIRECTORY="+d.dir,
		"CUDA_MPS_LOG_DIRECTORY="+p.Logs,
		"CUDA_MPS_PROTOCOL_VERSION=2",
	)
	if zone, set := os.LookupEnv("TZ"); set {
		cmd.Env = append(cmd.Env, "TZ="+zone) // its log has local times, and Log reads them
	}
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// awaitLock waits until the started process, or a child of it where the program
// is a script, holds the lock. Another owner is not enough: a slow process would
// take over its lock, later and unseen.
func (d *Daemon) awaitLock(ctx context.Context, pid int, exited <-chan struct{}, said func() string) error {
	for {
		select {
		case <-exited:
			return d.startFailed(said())
		default:
		}
		if who, err := d.Alive(); err == nil {
			if s, err := proc.Stat(who.PID); err == nil && s.Session == pid {
				return nil
			}
		}
		if err := backoff.Wait(ctx, lockAgain); err != nil {
			return d.fault(Wedged, err, "it was started but did not take its lock: see its log %s", printable(said()))
		}
	}
}

// errLockTaken means that a started daemon found its lock taken and ended.
var errLockTaken = errors.New("the control lock is taken")

// startFailed reads from the daemon's last words why it ended at once.
func (d *Daemon) startFailed(said string) error {
	switch {
	case strings.Contains(said, "Cannot access CUDA_MPS_PIPE_DIRECTORY"):
		return d.fault(Unwritable, nil, "it cannot use its pipe directory %s: make it a directory that the agent can "+
			"write to", d.dir)
	case strings.Contains(said, "already running"):
		return d.fault(NotRunning, errLockTaken, "another process held its lock: see fuser %s/%s", d.dir, controlLock)
	}
	return d.fault(NotRunning, nil, "it ended at once and said %s: run it by hand in "+
		"%s", printable(strings.TrimSpace(said)), d.dir)
}

// raiseOpenFiles lifts the soft limit of open files as far as it may go: Go
// gives children back the soft limit it was started with, often 1024. A lower
// one costs clients, not correctness, so a failure is left alone.
func raiseOpenFiles(pid int) {
	var l unix.Rlimit
	if unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &l) != nil || l.Cur >= openFiles {
		return
	}
	l.Cur = min(openFiles, l.Max)
	_ = unix.Prlimit(pid, unix.RLIMIT_NOFILE, &l, nil)
}
