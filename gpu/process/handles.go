package process

import (
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/gpu/reads"
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
	same, err := Together(FS{}, func(fs FS) (same bool, err error) {
		for _, pair := range [][2]Handle{{a, a}, {b, b}, {a, b}} { // each first: one of them may hang in exec(2)
			same, err = answered(fs, pair[1].Thread, func(*reads.Reading) (bool, error) {
				return kcmp(pair[0].Thread, pair[1].Thread, kcmpFile, pair[0].FD, pair[1].FD)
			})
			if err != nil {
				return false, err
			}
		}
		return same, nil
	})
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
	l, err := lookAt(fs, pid, most, func(l *look, _ Handle, f File) {
		if fits(f) && !slices.Contains(l.devices, f.Device) {
			l.devices = append(l.devices, f.Device)
		}
	})
	return l.devices, l.looked, err
}

// Uses are the devices that a process has open or mapped and that fit, each once: a mapped file (mmap) stays open when
// its descriptor is closed. With an error it may use more. ErrManyFiles also says that the look took longer than
// within, or that threads ended during it, and their files with them.
func Uses(fs FS, pid, most int, within time.Duration, fits func(File) bool) (devices []uint64, err error) {
	l, err := answered(fs, pid, func(at *reads.Reading) (l look, err error) {
		until := time.Now().Add(within) // the wait for a turn is not its own
		step := func() error {
			if time.Now().After(until) {
				return ErrManyFiles
			}
			return at.Step()
		}
		take := func(l *look, _ Handle, f File) {
			if fits(f) && !slices.Contains(l.devices, f.Device) {
				l.devices = append(l.devices, f.Device)
			}
		}
		if err = l.at(fs, pid, most, step, take); err == nil {
			err = l.mapped(fs, pid, most, step, take)
		}
		return l, err
	})
	if Gone(err) && l.looked == 0 {
		return nil, nil
	}
	if _, no := fs.Stat(pid); err == nil && l.gone && !Gone(no) {
		err = ErrManyFiles
	}
	return l.devices, err
}

// mapped goes through the files that a process has mapped. All its threads have the same, but one that has ended
// has none.
func (l *look) mapped(fs FS, pid, most int, step func() error, take func(*look, Handle, File)) error {
	threads, err := firstNames(fs.Path(pid, "task"), most)
	for _, name := range threads {
		thread, no := strconv.Atoi(name)
		if err != nil || no != nil {
			break
		}
		looked, no := files(fs.Path(thread, "map_files"), most, step, func(_ string, f File) { take(l, Handle{}, f) })
		if looked > 0 && no == nil {
			return nil
		}
		if !Gone(no) {
			err = no
		}
	}
	return err
}

// HandlesOf are the descriptors of a process that are wanted, among so many files of it, and how many were
// looked at. Threads may have tables of their own (CLONE_FILES): each is compared with the tables that are known, and
// a comparison counts as a file. With an error it may have more. As with Opens, the function that says what is wanted
// must not change anything: it runs on when the look does not end (ErrHeld).
func HandlesOf(fs FS, pid, most int, want func(File) bool) (found []Handle, looked int, err error) {
	l, err := lookAt(fs, pid, most, func(l *look, h Handle, f File) {
		if want(f) {
			l.found = append(l.found, h)
		}
	})
	return l.found, l.looked, err
}

// look is what a look at the files of a process found. A process may have very many that are wanted.
type look struct {
	found   []Handle
	devices []uint64
	looked  int
	// gone: a thread ended before all its files were looked at.
	gone bool
}

func lookAt(fs FS, pid, most int, take func(*look, Handle, File)) (look, error) {
	l, err := answered(fs, pid, func(at *reads.Reading) (l look, err error) {
		err = l.at(fs, pid, most, at.Step, take)
		return l, err
	})
	if Gone(err) && l.looked == 0 {
		err = nil // it has none
	}
	return l, err
}

func (l *look) at(fs FS, pid, most int, step func() error, take func(*look, Handle, File)) error {
	names, err := firstNames(fs.Path(pid, "task"), most)
	if Gone(err) {
		return nil
	}
	var tables []int
	for _, name := range names {
		thread, no := strconv.Atoi(name)
		if err != nil || no != nil {
			break
		}
		if l.looked += len(tables); l.looked >= most {
			l.looked = most
			return ErrManyFiles
		}
		if hasTable(tables, thread, step) {
			continue
		}
		if err := step(); err != nil {
			return err
		}
		if _, err := kcmp(thread, thread, kcmpFiles, 0, 0); err == nil {
			tables = append(tables, thread)
		}
		err = l.in(fs.Path(pid, "task/"+name), thread, most, step, take)
	}
	if err == nil && len(names) == most {
		err = ErrManyFiles
	}
	return err
}

// hasTable says whether a thread has the table of one of the others. One that has ended has none. Where the kernel does
// not say, it may have its own: then the same files are looked at again.
func hasTable(others []int, thread int, step func() error) bool {
	return slices.ContainsFunc(others, func(other int) bool {
		if step() != nil {
			return false // the caller sees it at its next step
		}
		same, err := kcmp(thread, other, kcmpFiles, 0, 0)
		return same && err == nil
	})
}

// in looks at the files of one thread.
func (l *look) in(dir string, thread, most int, step func() error, take func(*look, Handle, File)) error {
	looked, err := files(dir+"/fd", most-l.looked, step, func(name string, f File) {
		if fd, bad := strconv.Atoi(name); bad == nil {
			take(l, Handle{thread, fd, f.Device}, f)
		}
	})
	l.looked += looked
	if Gone(err) { // of a thread that has ended there are none
		l.gone, err = true, nil
	}
	return err
}

// files goes through a directory of links to files, and says how many there were, up to most.
func files(dir string, most int, step func() error, take func(name string, f File)) (looked int, err error) {
	d, err := os.Open(dir)
	for err == nil {
		if err = step(); err != nil {
			break
		}
		var names []string
		if names, err = d.Readdirnames(256); looked+len(names) > most {
			names, err = names[:most-looked], ErrManyFiles
		}
		looked += len(names)
		for _, name := range names {
			if no := step(); no != nil {
				err = no
				break
			}
			if f, no := statFile(dir + "/" + name); no == nil {
				take(name, f)
			}
		}
	}
	_ = d.Close() // nothing was written; it may not be open
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return looked, err
}
