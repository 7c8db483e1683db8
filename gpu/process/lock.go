package process

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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

// mostLocks bounds how much of the list of locks is read, in bytes: some 16,000 locks. The
// list has those of all users, and is read again at each lock that is taken.
const mostLocks = 1 << 20

func (fs FS) lockHolder(f *os.File) (Holder, bool) {
	file, err := statFile(fmt.Sprintf("%s/self/fd/%d", fs.root(), f.Fd()))
	if err != nil {
		return Holder{}, false
	}
	on, ok := fs.lockedFile(f, file.Inode)
	if !ok {
		return Holder{}, false
	}
	locks, err := os.Open(fs.root() + "/locks")
	if err != nil {
		return Holder{}, false
	}
	defer locks.Close()
	for lines := bufio.NewScanner(io.LimitReader(locks, mostLocks)); lines.Scan(); {
		pid, ok := flockOn(lines.Text(), on)
		if !ok {
			continue
		}
		its, _, _ := Opens(fs, pid, math.MaxInt, func(f File) bool { return f.is(file) })
		if len(its) > 0 {
			return fs.holder(pid), true
		}
	}
	return Holder{}, false
}

// lockedFile is an open file of this process as /proc/locks names it: "00:17:1203", its file
// system and its inode. The mount says which file system that is; stat(2) shows another
// one on btrfs and overlayfs.
func (fs FS) lockedFile(f *os.File, inode uint64) (string, bool) {
	// What cannot be read names no mount.
	info, _ := os.ReadFile(fmt.Sprintf("%s/self/fdinfo/%d", fs.root(), f.Fd()))
	mounts, err := readMounts(fs.root() + "/self/mountinfo")
	if err != nil {
		return "", false
	}
	_, id, _ := strings.Cut(string(info), "mnt_id:")
	id, _, _ = strings.Cut(strings.TrimSpace(id), "\n")
	for line := range strings.Lines(string(mounts)) {
		var major, minor uint32
		if w := strings.Fields(line); len(w) > 2 && w[0] == id {
			_, err := fmt.Sscanf(w[2], "%d:%d", &major, &minor)
			return fmt.Sprintf("%02x:%02x:%d", major, minor, inode), err == nil
		}
	}
	return "", false
}

// flockOn reads a line of proc(5)'s /proc/locks, such as
// "3: FLOCK  ADVISORY  WRITE 812 00:17:1203 0 EOF": its process, if the lock is on this
// file.
func flockOn(line, file string) (pid int, ok bool) {
	f := strings.Fields(line)
	if len(f) < 6 || f[1] != "FLOCK" || f[5] != file {
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
	tasks, _ := filepath.Glob(fs.Path(pid, "task/*"))
	for _, task := range tasks {
		if s, err := statOf(fs, pid, "task/"+filepath.Base(task)+"/stat"); err == nil && s.State == 'D' {
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
