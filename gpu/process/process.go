// Package process reads what the kernel says of one process: proc(5).
//
// Start at FS, a view of /proc, and at its Stat. An ID names one process for good, which a
// PID alone does not. No read waits without end: ErrHeld says that the kernel does not answer.
// LockHolder finds the process that holds a file's lock. What the facts mean, such as whose job
// a process is of, is decided by those who ask. A program that reads
// /proc/self, or a file that no other package needs (limits, signal masks), does that by itself.
package process

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/gpu/reads"
)

// ID names one process for good: the kernel gives a PID again, but never with the same
// start time.
type ID struct {
	PID int
	// Started is the start time in clock ticks since boot (proc(5), field 22 of stat).
	// It is 0 where only the PID is known, and then names no process that runs.
	Started uint64
}

// Stat is the line of /proc/<pid>/stat, as far as it is needed.
type Stat struct {
	ID
	// Parent is the PID of the parent, 0 for the kernel's own.
	Parent int
	// Group and Session are the process group and the session.
	Group, Session int
	// State is the kernel's letter of the first thread: R, S, D, T, t, Z, X …
	State byte
	// Threads counts those that are left. A process whose first thread has ended
	// is in state Z and runs on in the others.
	Threads int
	// Comm is the first 15 bytes of the program's name; a process may change it.
	Comm string
}

// Ended says that the process has ended, though its entry may still be there.
func (s Stat) Ended() bool {
	return s.State == 'X' || s.State == 'x' || s.State == 'Z' && s.Threads <= 1
}

// Shows says that this is a process, and that it runs. A PID is taken for a process only when this is
// true; a Stat that could not be read shows none.
func (s Stat) Shows(id ID) bool { return id.PID > 0 && s.ID == id && !s.Ended() }

// FS is a view of proc(5). Nothing in it that the owner of a process can write (its
// environment, its arguments, its name, files) is more than that owner's word.
type FS struct {
	// Root is /proc where empty; tests give a directory of their own.
	Root string
	// reads are the conversation that the reads belong to; nil gives each one of its own.
	reads *reads.Conversation
}

// Path is the path of a file of a process, such as "exe".
func (fs FS) Path(pid int, name string) string { return dirOf(fs, pid) + "/" + name }

func dirOf(fs FS, pid int) string { return fs.root() + "/" + strconv.Itoa(pid) }

func (fs FS) root() string { return cmp.Or(fs.Root, "/proc") }

// Stat reads /proc/<pid>/stat.
func (fs FS) Stat(pid int) (Stat, error) { return statOf(fs, pid, "stat") }

// Line is a process with those above it, the process first, without PID 1 and so many at most.
func Line(fs FS, pid, most int) ([]Stat, error) {
	return Together(fs, func(fs FS) (line []Stat, err error) {
		for len(line) < most && (pid > 1 || len(line) == 0) {
			s, err := fs.Stat(pid)
			if err != nil {
				return nil, fmt.Errorf("walk up from a process: %w", err)
			}
			line, pid = append(line, s), s.Parent
		}
		return line, nil
	})
}

// statOf reads that of a process, or of one of its threads.
func statOf(fs FS, pid int, name string) (Stat, error) {
	return answered(fs, pid, func(*reads.Reading) (Stat, error) { return readStat(fs.Path(pid, name)) })
}

func readStat(path string) (Stat, error) {
	var line [1024]byte // what is read of it takes less than half
	n, err := readBegin(path, line[:])
	if err != nil {
		return Stat{}, err
	}
	return parseStat(line[:n])
}

// readBegin reads the begin of a file. Those of many processes are read each second, so it does
// without package os, which takes twice the time.
func readBegin(path string, into []byte) (int, error) {
	fd, err := uninterrupted(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return 0, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written
	n, err := uninterrupted(func() (int, error) { return unix.Read(fd, into) })
	if err != nil {
		return 0, &os.PathError{Op: "read", Path: path, Err: err}
	}
	return n, nil
}

// readAll reads a whole file, without package os as readBegin does.
func readAll(path string) ([]byte, error) {
	fd, err := uninterrupted(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written
	text := make([]byte, 0, 1024)
	for {
		n, err := uninterrupted(func() (int, error) { return unix.Read(fd, text[len(text):cap(text)]) })
		if err != nil {
			return nil, &os.PathError{Op: "read", Path: path, Err: err}
		}
		if n == 0 {
			return text, nil
		}
		if text = text[:len(text)+n]; len(text) == cap(text) {
			text = slices.Grow(text, len(text))
		}
	}
}

// uninterrupted repeats a call that a signal of the Go runtime cut off.
func uninterrupted(call func() (int, error)) (n int, err error) {
	for {
		if n, err = call(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// Gone says whether an error of a read below /proc says that there is no such process. All others,
// such as a lack of file descriptors, say nothing of the process.
func Gone(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) }

// Runs says whether this very process may still run: where /proc cannot be read, it may. What a
// process holds is taken from it only when this is false. Of one with ErrHeld the PID is all that can be known.
func (fs FS) Runs(id ID) bool {
	s, err := fs.Stat(id.PID)
	if err != nil {
		return !Gone(err) && (id.Started != 0 || errors.Is(err, ErrHeld))
	}
	return s.Shows(id)
}

// Unchanged says whether processes still run and have the same parents. A parent that ended
// leaves its children to another: who walks up from a process asks this at the end, and
// knows then that each PID was that parent's while it was looked at.
func (fs FS) Unchanged(line []Stat) bool {
	line = slices.Clone(line) // who asks may go on without an answer
	same, err := Together(fs, func(fs FS) (bool, error) {
		return !slices.ContainsFunc(line, func(was Stat) bool {
			now, _ := fs.Stat(was.PID) // shows none where it cannot be read
			return !now.Shows(was.ID) || now.Parent != was.Parent
		}), nil
	})
	return same && err == nil
}

// StartedBy says whether a process was started by one that is fit, and still has it as its
// parent.
func (fs FS) StartedBy(id ID, fit func(ID) bool) bool {
	s, err := fs.Stat(id.PID)
	if err != nil || s.ID != id {
		return false
	}
	parent, err := fs.Stat(s.Parent)
	return err == nil && fit(parent.ID) && fs.Unchanged([]Stat{s, parent})
}

// UIDs are the accounts of a process.
type UIDs struct {
	// Real is that of who started it, until the process sets it to its effective or saved one. A
	// set-uid program gives it those, of itself with the accounts of /etc/subuid too.
	Real uint32
	// Effective is the one that it acts as, and that the credentials of a socket show.
	Effective uint32
	// Saved and FileSystem are those that it may act as again, and opens files as.
	Saved, FileSystem uint32
}

// Owner is the effective account and group of a process.
type Owner struct{ UID, GID uint32 }

// Owner is known at once, whatever the process does: its directory in /proc belongs to these. Files in it belong to
// root where the process may not be traced.
func (fs FS) Owner(pid int) (Owner, error) {
	var st unix.Stat_t
	dir := dirOf(fs, pid)
	if err := unix.Lstat(dir, &st); err != nil {
		return Owner{}, &os.PathError{Op: "lstat", Path: dir, Err: err}
	}
	return Owner{UID: st.Uid, GID: st.Gid}, nil
}

// longStatus is the size of a status with a thousand groups. A user may have 65,536, also in a user namespace, and
// the kernel then takes many milliseconds for each read, however little is asked of it.
const longStatus = 8 << 10

var statuses = sync.Pool{New: func() any { return new([longStatus]byte) }}

// UIDs reads the accounts of a process from /proc/<pid>/status. ErrNotAsked: its owner made many such files long.
func (fs FS) UIDs(pid int) (UIDs, error) {
	return reads.One(fs.reads, status{target{fs, pid}}, func(at *reads.Reading) (UIDs, error) {
		text := statuses.Get().(*[longStatus]byte)
		defer statuses.Put(text)
		n, err := readBegin(fs.Path(pid, "status"), text[:])
		if err != nil {
			return UIDs{}, err
		}
		if n == longStatus {
			at.Costly()
		}
		return parseUIDs(text[:n])
	})
}

// RealUID is the real account of a process, or its effective one, a guess, where its owner lets us wait too long.
func RealUID(fs FS, pid int) (uid uint32, guess bool, err error) {
	uids, err := fs.UIDs(pid)
	if !errors.Is(err, ErrHeld) {
		return uids.Real, false, err
	}
	of, err := fs.Owner(pid)
	return of.UID, true, err
}

// Exe is the path of the program that runs. An upgrade under a running program adds
// " (deleted)" to it, which is taken off.
func (fs FS) Exe(pid int) (string, error) {
	s, err := readlink(fs, pid, "exe")
	return strings.TrimSuffix(s, " (deleted)"), err
}

func readlink(fs FS, pid int, name string) (string, error) {
	return answered(fs, pid, func(*reads.Reading) (string, error) { return os.Readlink(fs.Path(pid, name)) })
}

// File is what the kernel knows of a file.
type File struct {
	Dev, Inode uint64
	UID        uint32
	Mode       uint32 // as stat(2) has it
	// Device is the number of a character device, whatever its path; 0 of other files.
	Device uint64
}

func (f File) is(o File) bool { return f.Dev == o.Dev && f.Inode == o.Inode }

// ExeFile is the file of the program that runs, also of one that was deleted. The file system
// is not asked: it may be the process's own (FUSE), and one that does not answer would hold
// the caller for ever, without the way out of a signal.
func (fs FS) ExeFile(pid int) (File, error) {
	return answered(fs, pid, func(*reads.Reading) (File, error) { return statFile(fs.Path(pid, "exe")) })
}

// statFile is the file that a link of /proc leads to; its file system is not asked.
func statFile(link string) (File, error) {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, link, unix.AT_STATX_DONT_SYNC,
		unix.STATX_UID|unix.STATX_MODE|unix.STATX_TYPE|unix.STATX_INO, &st)
	f := File{Dev: unix.Mkdev(st.Dev_major, st.Dev_minor), Inode: st.Ino, UID: st.Uid, Mode: uint32(st.Mode)}
	if st.Mode&unix.S_IFMT == unix.S_IFCHR {
		f.Device = unix.Mkdev(st.Rdev_major, st.Rdev_minor)
	}
	return f, err
}

// Args are the program's arguments, its name first. A process may write others there, and may
// bring about ErrHeld as with Environ. One that has ended, and a thread of the kernel, has none.
func (fs FS) Args(pid int) ([]string, error) { return fs.list(pid, "cmdline") }

// Environ is the environment that the program was started with, unless it wrote another
// there. It is memory of the process: pages of a file system that does not answer (FUSE) are
// ErrHeld. Ask it of processes of trusted accounts only.
func (fs FS) Environ(pid int) ([]string, error) { return fs.list(pid, "environ") }

// list reads a file of texts that each end with a zero byte.
func (fs FS) list(pid int, name string) ([]string, error) {
	b, err := answered(fs, pid, func(*reads.Reading) ([]byte, error) { return readAll(fs.Path(pid, name)) })
	if err != nil || len(b) == 0 {
		return nil, err
	}
	return strings.Split(strings.TrimRight(string(b), "\x00"), "\x00"), nil
}

// SameNamespace says whether a process is in the PID namespace of who asks; also where
// the kernel does not say which that is.
func (fs FS) SameNamespace(pid int) bool { return fs.sameNamespace(pid, "pid") }

// SameUsers says the same of the namespace of accounts: in another one an account of the node
// may be any that the process chose.
func (fs FS) SameUsers(pid int) bool { return fs.sameNamespace(pid, "user") }

func (fs FS) sameNamespace(pid int, kind string) bool {
	own, errOwn := os.Readlink(fs.root() + "/self/ns/" + kind)
	its, err := readlink(fs, pid, "ns/"+kind)
	return errOwn != nil || err == nil && own == its
}

// PIDs are the processes there are now, in ascending order. With an error there may be more.
func (fs FS) PIDs() ([]int, error) {
	d, err := os.Open(fs.root())
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	var out []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			out = append(out, pid)
		}
	}
	slices.Sort(out)
	return out, err
}

// Children are those of a process, by its threads, or all processes where the
// kernel does not list them (CONFIG_PROC_CHILDREN). With an error there may be more.
func (fs FS) Children(pid int) (out []int, err error) {
	dir := fs.Path(pid, "task/")
	threads, err := os.ReadDir(dir)
	if err != nil && !Gone(err) {
		return nil, err
	}
	listed := false
	for _, thread := range threads {
		b, err := readAll(dir + thread.Name() + "/children")
		if Gone(err) {
			continue // the thread has ended, or the kernel has no such file
		}
		if err != nil {
			return out, err
		}
		listed = true
		for f := range strings.FieldsSeq(string(b)) {
			if child, err := strconv.Atoi(f); err == nil {
				out = append(out, child)
			}
		}
	}
	if listed {
		return out, nil
	}
	if _, err := fs.Stat(pid); Gone(err) {
		return nil, nil
	}
	return fs.PIDs()
}

// Comm is what a process calls itself; empty if it has ended.
func (fs FS) Comm(pid int) string {
	b, _ := os.ReadFile(fs.Path(pid, "comm")) // of a process that has ended there is none
	return strings.TrimSuffix(string(b), "\n")
}
