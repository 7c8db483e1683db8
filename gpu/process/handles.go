package process

import (
	"errors"
	"io"
	"os"
	"slices"
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

// ErrManyFiles says that a process has more files open, or more threads, than were looked at.
var ErrManyFiles = errors.New("it has more open files or threads than are looked at")

// Opens are the devices that a process has open and that fit, each once, under whatever name: a process has names of
// its own in a mount namespace. 0 stands for all files that are none. It looks at so many files, as HandlesOf does.
// The file system is not asked, as with ExeFile; one that does not say anything holds no device. With an error the
// process may have more.
func Opens(fs FS, pid, most int, fits func(File) bool) (devices []uint64, looked int, err error) {
	_, looked, err = HandlesOf(fs, pid, most, func(f File) bool {
		if fits(f) && !slices.Contains(devices, f.Device) {
			devices = append(devices, f.Device)
		}
		return false // a process may have very many of them
	})
	return devices, looked, err
}

// HandlesOf are the descriptors of a process that are wanted, among so many files of it, and how many were
// looked at. Threads may have tables of their own (CLONE_FILES): each is compared with the tables that are known, and
// a comparison counts as a file. With an error it may have more.
func HandlesOf(fs FS, pid, most int, want func(File) bool) (found []Handle, looked int, err error) {
	names, err := firstNames(fs.Path(pid, "task"), most)
	if Gone(err) {
		return nil, 0, nil
	}
	var tables []int
	for _, name := range names {
		thread, no := strconv.Atoi(name)
		if err != nil || no != nil {
			break
		}
		if looked += len(tables); looked >= most {
			return found, most, ErrManyFiles
		}
		if hasTable(tables, thread) {
			continue
		}
		if _, err := kcmp(thread, thread, kcmpFiles, 0, 0); err == nil {
			tables = append(tables, thread)
		}
		var its []Handle
		var n int
		its, n, err = handlesIn(fs.Path(pid, "task/"+name), thread, most-looked, want)
		found, looked = append(found, its...), looked+n
	}
	if err == nil && len(names) == most {
		err = ErrManyFiles
	}
	return found, looked, err
}

// hasTable says whether a thread has the table of one of the others. One that has ended has none. Where the kernel does
// not say, it may have its own: then the same files are looked at again.
func hasTable(others []int, thread int) bool {
	return slices.ContainsFunc(others, func(other int) bool {
		same, err := kcmp(thread, other, kcmpFiles, 0, 0)
		return same && err == nil
	})
}

// handlesIn are those of one thread.
func handlesIn(dir string, thread, most int, want func(File) bool) (found []Handle, looked int, err error) {
	d, err := os.Open(dir + "/fd")
	for err == nil {
		var names []string
		if names, err = d.Readdirnames(256); looked+len(names) > most {
			names, err = names[:most-looked], ErrManyFiles
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
