// Package process says of one process what the kernel knows, by /proc. Start at
// LockHolder.
package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Holder is a process that holds a lock.
type Holder struct {
	PID int
	// Program is the name of its file, or else what it calls itself.
	Program string
	// State is the kernel's letter. D if any of its threads is in that state: a
	// killed process stays as long as one of them does.
	State byte
}

// LockHolder finds the process that holds the flock(2) lock on a file; false if the
// kernel names none that we see with the file open.
func LockHolder(f *os.File) (Holder, bool) { return lockHolder("/proc", f) }

func lockHolder(proc string, f *os.File) (Holder, bool) {
	file, err := f.Stat()
	if err != nil {
		return Holder{}, false
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Holder{}, false
	}
	locks, err := os.ReadFile(filepath.Join(proc, "locks"))
	if err != nil {
		return Holder{}, false
	}
	for line := range strings.Lines(string(locks)) {
		pid, ok := flockOn(line, st.Ino)
		if !ok || !opens(filepath.Join(proc, strconv.Itoa(pid), "fd"), file) {
			continue
		}
		dir := filepath.Join(proc, strconv.Itoa(pid))
		return Holder{PID: pid, Program: program(dir), State: state(dir)}, true
	}
	return Holder{}, false
}

// flockOn reads a line of proc(5)'s /proc/locks, such as
// "3: FLOCK  ADVISORY  WRITE 812 00:17:1203 0 EOF": its process, if the lock is on a
// file with this inode. The device is not compared: stat(2) may show another one.
func flockOn(line string, inode uint64) (pid int, ok bool) {
	f := strings.Fields(line)
	if len(f) < 6 || f[1] != "FLOCK" || !strings.HasSuffix(f[5], ":"+strconv.FormatUint(inode, 10)) {
		return 0, false
	}
	pid, err := strconv.Atoi(f[4])
	return pid, err == nil && pid > 0
}

// opens says whether a process, by its directory of descriptors, has a file open.
func opens(dir string, file os.FileInfo) bool {
	fds, _ := os.ReadDir(dir) // of a process that has ended there are none
	for _, fd := range fds {
		if other, err := os.Stat(filepath.Join(dir, fd.Name())); err == nil && os.SameFile(file, other) {
			return true
		}
	}
	return false
}

func program(dir string) string {
	if exe, err := os.Readlink(filepath.Join(dir, "exe")); err == nil {
		return strings.TrimSuffix(filepath.Base(exe), " (deleted)")
	}
	comm, _ := os.ReadFile(filepath.Join(dir, "comm")) // it has ended
	return strings.TrimSpace(string(comm))
}

// state is that of a process; 0 if it has ended.
func state(dir string) byte {
	tasks, _ := filepath.Glob(filepath.Join(dir, "task", "*", "stat"))
	for _, task := range tasks {
		if s := stateIn(task); s == 'D' {
			return s
		}
	}
	return stateIn(filepath.Join(dir, "stat"))
}

// stateIn reads the letter behind the name in parentheses, which may hold any text.
func stateIn(path string) byte {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	if rest := bytes.TrimLeft(b[bytes.LastIndexByte(b, ')')+1:], " "); len(rest) > 0 {
		return rest[0]
	}
	return 0
}

// Advice says who the process is, how it is, and what to do.
func (h Holder) Advice() string {
	who := fmt.Sprintf("process %d (%.64q)", h.PID, h.Program)
	switch h.State {
	case 'D':
		return who + fmt.Sprintf(" hangs in the kernel (state D) and cannot be killed before it returns: "+
			"see dmesg and /proc/%d/stack, and reboot the node if it stays", h.PID)
	case 'T', 't':
		return who + fmt.Sprintf(" is suspended (state %c): kill -CONT %d, or end it", h.State, h.PID)
	}
	return who + fmt.Sprintf(" runs (state %c): end it, or wait until it has ended", h.State)
}
