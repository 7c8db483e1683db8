package mps

import (
	"context"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/gpu/backoff"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// serverProgram is what a control daemon starts for its clients.
const serverProgram = "nvidia-cuda-mps-server"

// endOrphans ends the servers that a dead daemon of this pipe directory left: no other daemon
// knows them, and one may keep the GPU and the log pipe from the next. They live on with 535 to
// 555 (run with stand-ins); on an H200 with 580.159.04 one ended at once (docs/hardware, T17).
func (d *Daemon) endOrphans(ctx context.Context) error {
	for {
		left, err := d.orphans()
		if err != nil || len(left) == 0 {
			return err // it names /proc: a server may be left
		}
		for _, pid := range left {
			d.killOrphan(pid)
		}
		if err := backoff.Wait(ctx, lookAgain); err != nil {
			return d.fault(Wedged, err, "process %d, a server of a daemon before, does not end: see the kernel's log", left[0])
		}
	}
}

// orphans are the servers whose environment names the pipe directory. No daemon of it runs when this is asked.
func (d *Daemon) orphans() ([]int, error) {
	pids, err := proc.PIDs()
	return slices.DeleteFunc(pids, func(pid int) bool { return !d.serves(pid) }), err
}

// serves says that a process is a server of this pipe directory. Its program counts, not its name, which a process may
// change; and a file that users can write is theirs. The account is asked first: the rest of a user's process may be on
// a file system of the user's that never answers.
func (d *Daemon) serves(pid int) bool {
	if !ofDaemon(proc, pid) {
		return false
	}
	if exe, err := proc.Exe(pid); err != nil || filepath.Base(exe) != serverProgram || !installed(pid) {
		return false
	}
	env, err := proc.Environ(pid)
	return err == nil && slices.Contains(env, "CUDA_MPS_PIPE_DIRECTORY="+d.dir)
}

// ofDaemon says that a control daemon of root's or ours may have started a process. A server for a user has that
// user's account and keeps root's group (measured with 535 to 555), which no user's process has.
func ofDaemon(in process.FS, pid int) bool {
	of, err := in.Owner(pid)
	return err == nil && (of.UID == 0 || int(of.UID) == os.Geteuid() || of.GID == 0)
}

// installed says that the file of a process's program is root's, or this process's own in
// tests, and that no user can write it.
func installed(pid int) bool {
	st, err := proc.ExeFile(pid)
	return err == nil && (st.UID == 0 || int(st.UID) == os.Geteuid()) && st.Mode&0o022 == 0
}

// killOrphan kills a process that still serves; the handle makes sure that it
// is the one looked at.
func (d *Daemon) killOrphan(pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // it has ended
	}
	defer func() { _ = unix.Close(fd) }()
	if d.serves(pid) {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}
