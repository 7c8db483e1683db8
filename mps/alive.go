package mps

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// controlLock is the file on which a control daemon holds a write lock for
// life: the one reliable sign of it. Sockets remain after its death, and the
// pid file is missing on 535 and written without truncation on 550 and 555.
const controlLock = "control_lock"

// Alive finds the daemon's process without talking to it, in microseconds.
// Its error says NotRunning, Suspended (a SIGSTOP is seen at once) or Foreign: any
// admitted account can lock the file when no daemon does, so that a lock counts only
// when a trusted process is known to hold it. Who holds it comes before its state.
func (d *Daemon) Alive() (Process, error) {
	pid, held, err := lockOwner(filepath.Join(d.dir, controlLock))
	if errors.Is(err, fs.ErrPermission) {
		return Process{}, d.fault(Unwritable, err, "%v: ask as root or as an admitted account", err)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
		return Process{}, d.fault(Unwritable, err, "%v: look at the pipe directory", err)
	}
	if !held {
		return Process{}, d.notRunning()
	}
	if pid <= 0 {
		// An open file description lock has no process, and one of a PID namespace
		// that is not below ours has none that we see.
		return Process{}, d.fault(Foreign, nil, "no process is known to hold %s, which a daemon would: it is replaced before the next start", filepath.Join(d.dir, controlLock))
	}
	s, err := statProcess(pid)
	if err != nil {
		// It ended between the two looks.
		return Process{}, d.notRunning()
	}
	if why := distrust(pid); why != "" {
		return s.Process, d.fault(Foreign, nil, "process %d holds %s and is no control daemon (%s): end that process", pid, filepath.Join(d.dir, controlLock), why)
	}
	return s.Process, d.usable(s)
}

// distrust says why a process that holds the lock is no control daemon of root's or
// ours; empty for one that is.
func distrust(pid int) string {
	// The account is looked at twice: a job that starts a setuid program and then the
	// control program has each of the two signs at some time, and never both.
	for range 2 {
		uids, ok := accountsOf(pid)
		if !ok {
			return "it has ended"
		}
		for _, uid := range uids {
			if uid != 0 && int(uid) != os.Geteuid() {
				return fmt.Sprintf("it is of uid %d", uid)
			}
		}
		if why := otherProgram(pid); why != "" {
			return why
		}
	}
	return ""
}

// otherProgram says why a process does not run the control program. A job's lock
// survives the start of a setuid program, which is then of uid 0.
func otherProgram(pid int) string {
	link := "/proc/" + strconv.Itoa(pid) + "/exe"
	exe, err := os.Readlink(link)
	if errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 {
		return "" // only root may look, and nothing rests on what we find
	}
	if err != nil {
		return "its program is not known"
	}
	if name := strings.TrimSuffix(filepath.Base(exe), " (deleted)"); name != Program { // deleted: an upgrade replaced it
		return fmt.Sprintf("its program is %q", foreign.Clip(name))
	}
	st, err := os.Stat(link)
	if err != nil || st.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
		return "its program is setuid"
	}
	return ""
}

// usable says why a trusted process that holds the lock cannot be relied on.
func (d *Daemon) usable(s processStat) error {
	switch s.State {
	case 'Z', 'X', 'x':
		return d.notRunning()
	case 'T', 't':
		return d.fault(Suspended, nil, "process %d is suspended (state %c): send it SIGCONT, or restart it when its jobs have ended", s.PID, s.State)
	}
	return nil
}

func (d *Daemon) notRunning() error {
	return d.fault(NotRunning, nil, "it is not running (pipe directory %s): see its log for the cause", d.dir)
}

// lockOwner says whether a file is locked, and by which PID; 0 or -1 if the kernel
// names none.
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

// processStat is what /proc/<pid>/stat says of a process.
type processStat struct {
	Process
	State   byte
	Group   int
	Session int
	// Threads are those left, the first one among them until all have ended.
	Threads int
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
	// num_threads is field 20.
	if len(fields) < 20 || len(fields[0]) != 1 {
		return processStat{}, fmt.Errorf("process status %q has an unknown form", foreign.Clip(string(line)))
	}
	s := processStat{State: fields[0][0]}
	var errs [4]error
	s.Group, errs[0] = strconv.Atoi(string(fields[2]))
	s.Session, errs[1] = strconv.Atoi(string(fields[3]))
	s.Threads, errs[3] = strconv.Atoi(string(fields[17]))
	s.Started, errs[2] = strconv.ParseUint(string(fields[19]), 10, 64)
	return s, errors.Join(errs[:]...)
}
