package mps

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"golang.org/x/sys/unix"
)

// Processes runs control daemons as plain processes, where there is no
// systemd: a personal pool, a container. Each has a session of its own and
// outlives the program that started it; whoever comes next finds it by its
// control lock.
type Processes struct {
	// Root is the directory above the pipe directories.
	Root string
	// Program is the path or name of nvidia-cuda-mps-control.
	Program string
	// Logs is the directory of the log files, <GPU UUID>.log.
	Logs string
	// ServerPath is put before the PATH of the daemons, which look there for
	// nvidia-cuda-mps-server; the standard directories are always on it.
	ServerPath string
}

// maxLog is the size above which a log file is put aside when a daemon starts.
const maxLog = 16 << 20

// openFiles is what NVIDIA asks for a server and its clients (ulimit -n).
const openFiles = 16384

// Start starts the control daemon of a GPU and waits until it holds its lock;
// one that runs already is left alone.
func (p Processes) Start(ctx context.Context, u gpu.UUID) error {
	d, err := p.daemon(u)
	if err != nil {
		return err
	}
	if _, err := d.Alive(); FaultOf(err) != NotRunning {
		return err
	}
	log, err := p.openLog(u)
	if err != nil {
		return d.fault(Unwritable, err, "its log file cannot be used: %v: make %s writable", err, p.Logs)
	}
	defer log.Close()
	from, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return d.fault(Unwritable, err, "its log file cannot be used: %v: make %s a directory for files", err, p.Logs)
	}
	cmd := p.command(context.WithoutCancel(ctx), d, log)
	if err := cmd.Start(); err != nil {
		if notInstalled(err) {
			return d.fault(NotInstalled, err, "%s is not on this machine: %s", p.Program, installHint)
		}
		return fmt.Errorf("start control daemon of %s: %w", u, err)
	}
	raiseOpenFiles(cmd.Process.Pid)
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // its log says more; this also reaps it, should it end before us
		close(exited)
	}()
	err = d.awaitStart(ctx, exited, func() string { return readFrom(log.Name(), from) })
	if FaultOf(err) == Wedged {
		_ = cmd.Process.Kill() // it holds no lock: nobody would find it again
	}
	return err
}

func (p Processes) daemon(u gpu.UUID) (*Daemon, error) {
	dir, err := PipeDirectory(p.Root, u)
	if err != nil {
		return nil, err
	}
	return NewDaemon(u, dir, p.Program), nil
}

// command is the control daemon in the foreground. Standard input is /dev/null:
// an unknown flag silently means client mode, which would read commands.
func (p Processes) command(ctx context.Context, d *Daemon, log *os.File) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.Program, "-f")
	path := "/usr/sbin:/usr/bin:/sbin:/bin"
	if p.ServerPath != "" {
		path = p.ServerPath + ":" + path
	}
	cmd.Env = []string{
		"PATH=" + path,
		"CUDA_VISIBLE_DEVICES=" + string(d.gpu),
		"CUDA_MPS_PIPE_DIRECTORY=" + d.dir,
		"CUDA_MPS_LOG_DIRECTORY=" + p.Logs,
		"CUDA_MPS_PROTOCOL_VERSION=2",
	}
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// openLog opens the log file for appending and puts a large one aside. The
// daemon never opens it again, so this can only be done before a start.
func (p Processes) openLog(u gpu.UUID) (*os.File, error) {
	if err := os.MkdirAll(p.Logs, 0o755); err != nil {
		return nil, err
	}
	name := filepath.Join(p.Logs, string(u)+".log")
	if st, err := os.Stat(name); err == nil && st.Size() > maxLog {
		if err := os.Rename(name, name+".1"); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}

// raiseOpenFiles lifts the soft limit of open files as far as it may go: Go
// gives children back the soft limit it was started with, often 1024. A lower
// one costs clients, not correctness, so trouble is left alone.
func raiseOpenFiles(pid int) {
	var l unix.Rlimit
	if unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &l) != nil || l.Cur >= openFiles {
		return
	}
	l.Cur = min(openFiles, l.Max)
	_ = unix.Prlimit(pid, unix.RLIMIT_NOFILE, &l, nil)
}

// awaitStart waits until a daemon holds the lock or the started process ended.
func (d *Daemon) awaitStart(ctx context.Context, exited <-chan struct{}, said func() string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		select {
		case <-exited:
			return d.startFailed(said())
		default:
		}
		_, err := d.Alive()
		if FaultOf(err) != NotRunning {
			return err
		}
		if err := d.pause(ctx, 2*time.Millisecond); err != nil {
			return d.fault(Wedged, err, "it was started but did not take its lock: see its log %s", printable(said()))
		}
	}
}

// startFailed reads from the daemon's last words why it ended at once.
func (d *Daemon) startFailed(said string) error {
	switch {
	case strings.Contains(said, "Cannot access CUDA_MPS_PIPE_DIRECTORY"):
		return d.fault(Unwritable, nil, "it cannot use its pipe directory %s: make it a directory that the agent can write to", d.dir)
	case strings.Contains(said, "already running"):
		// Another agent was faster, or a stranger holds the lock.
		_, err := d.Alive()
		return err
	}
	return d.fault(NotRunning, nil, "it ended at once and said %s: run it by hand in %s", printable(strings.TrimSpace(said)), d.dir)
}

// readFrom is what was written to a log file from an offset on, cut short.
func readFrom(name string, offset int64) string {
	f, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(io.NewSectionReader(f, offset, 4096), 4096))
	if err != nil {
		return ""
	}
	return string(b)
}

// Running lists the GPUs in Root whose control lock is held, whoever started
// the daemon and whatever its state.
func (p Processes) Running(context.Context) ([]gpu.UUID, error) {
	entries, err := os.ReadDir(p.Root)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var running []gpu.UUID
	for _, e := range entries {
		u, err := gpu.ParseUUID(e.Name())
		if err != nil || string(u) != e.Name() {
			continue // not ours
		}
		d, err := p.daemon(u)
		if err != nil {
			continue // too long a path: nothing can run there
		}
		if _, err := d.Alive(); FaultOf(err) != NotRunning {
			running = append(running, u)
		}
	}
	return running, nil
}
