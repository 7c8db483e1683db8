package process

import (
	"errors"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Handle is an open file of a process: a descriptor in the table of one of its threads.
type Handle struct {
	Thread, FD int
	// Device is the number of a character device, else 0.
	Device uint64
}

// The types of kcmp(2) that are used.
const (
	kcmpFile  = 0
	kcmpFiles = 2
)

// kcmp compares what two threads have. The kernel needs CONFIG_KCMP, and the caller CAP_SYS_PTRACE.
func kcmp(a, b, kind, fdA, fdB int) (same bool, err error) {
	r, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), uintptr(kind), uintptr(fdA), uintptr(fdB), 0)
	if errno != 0 {
		return false, os.NewSyscallError("kcmp", errno)
	}
	return r == 0, nil
}

// SameFile says whether two descriptors are of one open file (an open file description, see open(2)): what
// fork, dup and sockets pass on. A file that was closed meanwhile is no other's. With an error it is not known.
func SameFile(a, b Handle) (bool, error) {
	same, err := kcmp(a.Thread, b.Thread, kcmpFile, a.FD, b.FD)
	if errors.Is(err, unix.EBADF) || Gone(err) {
		err = nil
	}
	return same, err
}

// mostThreads bounds the threads of a process that are asked for descriptors of their own, mostTables how many of them
// have some: each thread is compared with all of these.
const (
	mostThreads = 4096
	mostTables  = 64
)

// HandlesOf are the descriptors of a process that are wanted, among so many files of it, and how many were
// looked at. Threads may have tables of their own (CLONE_FILES). With an error it may have more.
func HandlesOf(fs FS, pid, most int, want func(File) bool) (found []Handle, looked int, err error) {
	names, err := firstNames(fs.Path(pid, "task"), mostThreads)
	if Gone(err) {
		return nil, 0, nil
	}
	if err == nil && len(names) == mostThreads {
		err = ErrManyFiles
	}
	var tables []int
	for _, name := range names {
		thread, no := strconv.Atoi(name)
		if err != nil || no != nil {
			break
		}
		var known bool
		if known, err = hasTable(tables, thread); known || err != nil {
			continue
		}
		if len(tables) == mostTables {
			err = ErrManyFiles
			break
		}
		tables = append(tables, thread)
		var its []Handle
		var n int
		its, n, err = handlesIn(fs.Path(pid, "task/"+name), thread, most-looked, want)
		found, looked = append(found, its...), looked+n
	}
	return found, looked, err
}

// hasTable says whether a thread has ended, or has the table of one of the others.
func hasTable(others []int, thread int) (bool, error) {
	for _, other := range others {
		same, err := kcmp(thread, other, kcmpFiles, 0, 0)
		if same || Gone(err) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
	return false, nil
}

// handlesIn are those of one thread.
func handlesIn(dir string, thread, most int, want func(File) bool) (found []Handle, looked int, err error) {
	d, err := os.Open(dir + "/fd")
	for err == nil {
		var names []string
		if names, err = d.Readdirnames(256); looked+len(names) > most {
			names, err = names[:max(0, most-looked)], ErrManyFiles
		}
		looked += len(names)
		for _, name := range names {
			f, no := statFile(dir + "/fd/" + name)
			if fd, bad := strconv.Atoi(name); no == nil && bad == nil && want(f) {
				found = append(found, Handle{thread, fd, f.Device})
			}
		}
	}
	_ = d.Close() // nothing was written; it may not be open
	if Gone(err) || errors.Is(err, io.EOF) {
		err = nil // of a thread that has ended there are none
	}
	return found, looked, err
}
