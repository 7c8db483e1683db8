package mps

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// controlLock is the file on which a control daemon holds a write lock for
// life: the one reliable sign of it. Sockets remain after its death, and the
// pid file is missing on 535 and written without truncation on 550 and 555.
const controlLock = "control_lock"

// Alive finds the daemon's process without talking to it, in microseconds.
// Its error says NotRunning, Suspended (a SIGSTOP is seen at once) or Foreign.
func (d *Daemon) Alive() (Process, error) {
	pid, err := lockOwner(filepath.Join(d.dir, controlLock))
	if errors.Is(err, fs.ErrPermission) {
		return Process{}, d.fault(Unwritable, err, "%v: ask as root or as an admitted account", err)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
		return Process{}, d.fault(Unwritable, err, "%v: look at the pipe directory", err)
	}
	if pid == 0 {
		return Process{}, d.notRunning()
	}
	s, err := statProcess(pid)
	if err != nil {
		// It ended between the two looks, or lives in a PID namespace that is not ours.
		return Process{}, d.notRunning()
	}
	return s.Process, d.usable(s)
}

// usable says why a process that holds the lock cannot be relied on.
func (d *Daemon) usable(s processStat) error {
	switch s.State {
	case 'Z', 'X', 'x':
		return d.notRunning()
	case 'T', 't':
		return d.fault(Suspended, nil, "process %d is suspended (state %c): send it SIGCONT, or restart it when its jobs have ended", s.PID, s.State)
	}
	// A setuid program that a job started is root's by its effective uid alone.
	real, effective, ok := accountsOf(s.PID)
	if !ok {
		return d.notRunning()
	}
	for _, uid := range []uint32{real, effective} {
		if uid != 0 && int(uid) != os.Geteuid() {
			return d.fault(Foreign, nil, "process %d of uid %d holds %s: end that process", s.PID, uid, filepath.Join(d.dir, controlLock))
		}
	}
	return nil
}

func (d *Daemon) notRunning() error {
	return d.fault(NotRunning, nil, "it is not running (pipe directory %s): see its log for the cause", d.dir)
}

// lockOwner is the PID that holds the write lock on a file, 0 for none.
func lockOwner(path string) (int, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	// We never lock this file ourselves: closing it would drop our lock.
	l := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &l); err != nil {
		return 0, fmt.Errorf("read the lock on %s: %w", path, err)
	}
	if l.Type == unix.F_UNLCK {
		return 0, nil
	}
	if l.Pid <= 0 {
		return 0, fmt.Errorf("%s is locked from another PID namespace", path)
	}
	return int(l.Pid), nil
}

// processStat is what /proc/<pid>/stat says of a process.
type processStat struct {
	Process
	State   byte
	Group   int
	Session int
}

func statProcess(pid int) (processStat, error) {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return processStat{}, err
	}
	defer f.Close()
	var buf [1024]byte
	n, err := f.Read(buf[:])
	if err != nil {
		return processStat{}, err
	}
	s, err := parseStat(buf[:n])
	s.PID = pid
	return s, err
}

// parseStat reads the line of proc(5)'s /proc/pid/stat. The name in
// parentheses may itself hold spaces and parentheses.
func parseStat(line []byte) (processStat, error) {
	fields := bytes.Fields(line[bytes.LastIndexByte(line, ')')+1:])
	// The first of them is field 3, the state; the start time is field 22.
	if len(fields) < 20 || len(fields[0]) != 1 {
		return processStat{}, fmt.Errorf("process status %q has an unknown form", clip(string(line)))
	}
	s := processStat{State: fields[0][0]}
	var errs [3]error
	s.Group, errs[0] = strconv.Atoi(string(fields[2]))
	s.Session, errs[1] = strconv.Atoi(string(fields[3]))
	s.Started, errs[2] = strconv.ParseUint(string(fields[19]), 10, 64)
	return s, errors.Join(errs[:]...)
}
