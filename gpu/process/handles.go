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
	// Device is the number of the character device.
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

// mostTables bounds the threads of a process that are asked for descriptors of their own.
const mostTables = 4096

// HandlesOf are the descriptors of these devices that a process has, among so many files of it, and how many were
// looked at. Threads may have tables of their own (CLONE_FILES). With an error it may have more.
func HandlesOf(fs FS, pid, most int, devices ...uint64) (found []Handle, looked int, err error) {
	names, err := firstNames(fs.Path(pid, "task"), mostTables)
	if Gone(err) {
		return nil, 0, nil
	}
	if err == nil && len(names) == mostTables {
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
		tables = append(tables, thread)
		var its []Handle
		var n int
		its, n, err = handlesIn(fs.Path(pid, "task/"+name+"/fd"), thread, most-looked, devices)
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
func handlesIn(dir string, thread, most int, devices []uint64) (found []Handle, looked int, err error) {
	d, err := os.Open(dir)
	for err == nil {
		var names []string
		if names, err = d.Readdirnames(256); looked+len(names) > most {
			names, err = names[:max(0, most-looked)], ErrManyFiles
		}
		looked += len(names)
		for _, name := range names {
			f, no := statFile(dir + "/" + name)
			if fd, bad := strconv.Atoi(name); no == nil && bad == nil && f.Device != 0 && slices.Contains(devices, f.Device) {
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
