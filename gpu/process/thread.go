package process

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/gpu/reads"
)

// mostDead bounds the threads of a process that are looked at for one that runs. A dead thread that is not the first
// goes at once, unless a tracer keeps it: a job's own tracer may keep a hundred thousand.
const mostDead = 16

// ErrDeadThreads says that none of the first threads of a process runs. A program brings that about only on purpose.
var ErrDeadThreads = fmt.Errorf("none of its first %d threads runs", mostDead)

// thread is the directory of the first thread of a process that runs. A first thread that
// has ended shows no mounts, no descriptors and no cgroup of version 1, and keeps the
// cgroup of version 2 that it died in while the process is moved to another. Of a process
// that has ended, or of none, it is that of the process. With an error it is not known.
func (fs FS) thread(pid int) (string, error) {
	dir := dirOf(fs, pid)
	if s, _ := fs.Stat(pid); s.State != 'Z' || s.Ended() { // also where it cannot be read
		return dir, nil
	}
	tasks, err := firstNames(dir+"/task", mostDead)
	for _, name := range tasks {
		task := dir + "/task/" + name
		if s, err := statOf(fs, pid, "task/"+name+"/stat"); err == nil && s.State != 'Z' && s.State != 'X' && s.State != 'x' {
			return task, nil
		}
	}
	switch {
	case len(tasks) >= mostDead:
		return "", fmt.Errorf("process %d: %w", pid, ErrDeadThreads)
	case err != nil && !Gone(err):
		return "", err
	}
	return dir, nil
}

// firstNames are the first names in a directory. Package os would have the kernel list hundreds.
func firstNames(dir string, most int) (names []string, err error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
	fd, err := uninterrupted(func() (int, error) { return unix.Open(dir, flags, 0) })
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written
	if names, err = firstOf(fd, most); err != nil {
		return names, &os.PathError{Op: "read", Path: dir, Err: err}
	}
	return names, nil
}

// firstOf reads no more of an open directory than it needs.
func firstOf(fd, most int) (names []string, err error) {
	var list [512]byte
	for len(names) < most {
		n, err := uninterrupted(func() (int, error) { return unix.ReadDirent(fd, list[:]) })
		if err != nil {
			return names, err
		}
		if n <= 0 {
			break
		}
		_, _, names = unix.ParseDirent(list[:n], most-len(names), names)
	}
	return names, nil
}

// Cgroup reads /proc/<pid>/cgroup: a line for each hierarchy, "ID:controllers:path". Before Linux 6.8
// it waits for a lock that a job keeps busy by changes of its own cgroups, and has a thread of this
// process meanwhile: who reads for others bounds that.
//
// Of a process with ErrDeadThreads it is a cgroup that is no more, below the one that the first thread died in. The
// process may have been moved since, and counts for whom it was of, as one that left.
func (fs FS) Cgroup(pid int) ([]byte, error) {
	dir, err := fs.thread(pid)
	if err == nil {
		return readAll(dir + "/cgroup")
	}
	if !errors.Is(err, ErrDeadThreads) {
		return nil, err
	}
	text, no := readAll(fs.Path(pid, "cgroup"))
	if no != nil {
		return nil, no
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), " (deleted)")
		if in, ok := strings.CutPrefix(line, "0::"); ok && in != "/" {
			return []byte(line + "/dead (deleted)\n"), nil
		}
	}
	return nil, err // with version 1 a dead thread is shown in the root
}

// mostStacks bounds the threads of a process whose waits are read.
const mostStacks = 256

// Stacks are the kernel's functions in which the threads of a process are (proc(5), stack), as far as they can be read.
func Stacks(fs FS, pid int) ([]byte, error) {
	return answered(fs, pid, func(at *reads.Reading) (all []byte, err error) {
		threads, err := firstNames(fs.Path(pid, "task"), mostStacks)
		for _, thread := range threads {
			if err := at.Step(); err != nil {
				return all, err
			}
			its, _ := readAll(fs.Path(pid, "task/"+thread+"/stack")) // one that has ended has none
			all = append(all, its...)
		}
		return all, err
	})
}
