package process

import (
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
func LockHolder(f *os.File) (Holder, bool) { return FS{}.lockHolder(f) }

func (fs FS) lockHolder(f *os.File) (Holder, bool) {
	file, err := f.Stat()
	if err != nil {
		return Holder{}, false
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Holder{}, false
	}
	locks, err := os.ReadFile(fs.root() + "/locks")
	if err != nil {
		return Holder{}, false
	}
	for line := range strings.Lines(string(locks)) {
		if pid, ok := flockOn(line, st.Ino); ok && fs.opens(pid, file) {
			return fs.holder(pid), true
		}
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

// holder describes a process; its State is 0 if it has ended.
func (fs FS) holder(pid int) Holder {
	h := Holder{PID: pid, Program: fs.Comm(pid)}
	if exe, err := fs.Exe(pid); err == nil {
		h.Program = filepath.Base(exe)
	}
	if s, err := fs.Stat(pid); err == nil {
		h.State = s.State
	}
	tasks, _ := filepath.Glob(fs.Path(pid, "task/*/stat"))
	for _, task := range tasks {
		if s, err := readStat(task); err == nil && s.State == 'D' {
			h.State = s.State
		}
	}
	return h
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
