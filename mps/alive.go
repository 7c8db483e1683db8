package mps

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/gpu/foreign"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// controlLock is the file on which a control daemon holds a write lock for life: the one reliable sign of it. Sockets
// remain after its death, and the pid file is missing on 535 and written without truncation on 550 and 555.
const controlLock = "control_lock"

const heldByNobody = "no process is known to hold %s, which a daemon would: it is replaced before the next start"

// Alive finds the daemon's process without talking to it, in microseconds. Its error says NotRunning, Suspended
// (a SIGSTOP is seen at once) or Foreign: any admitted account can lock the file when no daemon does, so that a lock
// counts only when a trusted process is known to hold it. Who holds it comes before its state.
func (d *Daemon) Alive() (process.ID, error) { return holder(d, Checked{}) }

// holder is Alive after a health check. Whether the process of one that was complete is to be trusted is not looked at
// again, once a second for each GPU.
func holder(d *Daemon, last Checked) (process.ID, error) {
	lock := filepath.Join(d.dir, controlLock)
	pid, held, err := lockOwner(lock)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return process.ID{}, d.fault(Unwritable, err, "%v: ask as root or as an admitted account", err)
	case err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR):
		return process.ID{}, d.fault(Unwritable, err, "%v: look at the pipe directory", err)
	case !held:
		return process.ID{}, d.notRunning()
	case pid <= 0:
		// An open file description lock has no process, and one of a PID namespace beside ours has none that we see.
		return process.ID{}, d.fault(Foreign, nil, heldByNobody, lock)
	}
	s, err := proc.Stat(pid)
	why := ""
	if errors.Is(err, process.ErrHeld) {
		why, _ = distrust(proc, pid) // its account is known all the same
	} else if err == nil && (last.At.IsZero() || s.ID != last.Process()) {
		why, err = distrust(proc, pid)
	}
	switch {
	case why != "":
		who := process.ID{PID: pid, Started: s.Started}
		return who, d.fault(Foreign, nil, "process %d holds %s and is no control daemon (%s): end that process",
			pid, lock, why)
	case process.Gone(err):
		if again, held, err := lockOwner(lock); err == nil && held && again == pid {
			return process.ID{}, d.fault(Foreign, nil, heldByNobody, lock) // another shared its open files (CLONE_FILES)
		}
		return process.ID{}, d.notRunning() // it ended between two looks
	case err != nil:
		return process.ID{}, d.fault(Unwritable, err, "%v: look at /proc and at gpuslotd's file descriptors", err)
	}
	return s.ID, d.usable(s)
}

// distrust says why a process that holds the lock is no control daemon of root's or
// ours; empty for one that is. With an error it is not known.
func distrust(in process.FS, pid int) (why string, err error) {
	if of, _ := in.Owner(pid); of.UID != 0 && int(of.UID) != os.Geteuid() { // first: the rest may take the kernel long
		return fmt.Sprintf("it is of uid %d", of.UID), nil
	}
	// The account is looked at twice: a job that starts a setuid program and then the
	// control program has each of the two signs at some time, and never both.
	for range 2 {
		uids, err := in.UIDs(pid)
		if err != nil {
			return "", err
		}
		for _, uid := range []uint32{uids.Real, uids.Effective, uids.Saved, uids.FileSystem} {
			if uid != 0 && int(uid) != os.Geteuid() {
				return fmt.Sprintf("it is of uid %d", uid), nil
			}
		}
		if why, err := otherProgram(in, pid); why != "" || err != nil {
			return why, err
		}
	}
	return "", nil
}

// otherProgram says why a process does not run the control program. A job's lock
// survives the start of a setuid program, which is then of uid 0.
func otherProgram(in process.FS, pid int) (why string, err error) {
	exe, err := in.Exe(pid)
	var file process.File
	if err == nil {
		file, err = in.ExeFile(pid)
	}
	switch name := filepath.Base(exe); {
	case errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0:
		err = nil // only root may look, and nothing rests on what we find
	case process.Gone(err):
		why, err = "its program is not known", nil // its first thread has ended; another may hold the lock
	case err != nil:
	case name != Program:
		why = fmt.Sprintf("its program is %q", foreign.Clip(name))
	case file.Mode&(unix.S_ISUID|unix.S_ISGID) != 0:
		why = "its program is setuid"
	}
	return why, err
}

// usable says why a trusted process that holds the lock cannot be relied on.
func (d *Daemon) usable(s process.Stat) error {
	switch s.State {
	case 'Z', 'X', 'x':
		return d.notRunning()
	case 'T', 't':
		return d.fault(Suspended, nil, "process %d is suspended (state %c): send it SIGCONT, or restart it when its jobs "+
			"have ended", s.PID, s.State)
	}
	return nil
}

func (d *Daemon) notRunning() error {
	return d.fault(NotRunning, nil, "it is not running (pipe directory %s): see its log for the cause", d.dir)
}

// lockOwner says whether a file is locked, and by which PID; 0 or -1 if the kernel names none.
func lockOwner(path string) (pid int, held bool, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0, false, err
	}
	defer f.Close()
	// We never lock this file ourselves: closing it would drop our lock.
	l := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &l); err != nil {
		return 0, false, fmt.Errorf("read the lock on %s: %w", path, err)
	}
	if l.Type == unix.F_UNLCK {
		return 0, false, nil
	}
	return int(l.Pid), true, nil
}
