// Package deep looks through cgroups, and removes them, with all below them that a job made: as many, and
// as deep, as it likes. A path to the last of them may be too long for the kernel.
//
// Start at Into and Remove.
package deep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// MostBelow bounds how many cgroups below a slice are looked into. A job has some tens at most:
// one with more is taken for the one that hides the process.
const MostBelow = 1000

// ErrHidden says that a look into a slice has not ended, as it is where somebody makes and removes cgroups there
// without end.
var ErrHidden = errors.New("cgroups of a job change without end, so that gpuslotd cannot look into them")

// Found is what the looks for a process into several slices show.
type Found struct {
	// In is the slice that holds it; empty if none is known to.
	In string
	// Many is one with so many cgroups that it may hold the process: see MostBelow.
	Many string
	// Hidden is a slice that somebody hides: see Looking.Hidden. Early says that another look has not
	// ended, and soon will.
	Hidden string
	Early  bool
	// Err is that of a cgroup which could not be looked into, though it is there.
	Err error
}

// Looks are looks into several slices, which any number of processes can be looked for in.
type Looks struct {
	slices []string
	each   []Looking[below]
}

// Into begins the looks into all of these cgroups, and what is below them.
func Into(cgroups []string) Looks {
	l := Looks{cgroups, make([]Looking[below], len(cgroups))}
	for i, slice := range cgroups {
		l.each[i] = begin(lookKey(slice), func() below { return list(slice) }, keptBelow)
	}
	return l
}

// Find looks for a process, and waits for all looks together: until so long after they began.
func (l Looks) Find(pid int, wait time.Duration) (f Found) {
	number := strconv.Itoa(pid)
	for i, one := range l.each {
		switch b, seen := one.Within(wait); {
		case !seen && one.Hidden():
			f.Hidden = cmp.Or(f.Hidden, l.slices[i])
		case !seen:
			f.Early = true
		case slices.Contains(b.pids, number):
			return Found{In: l.slices[i]}
		case b.many:
			f.Many = cmp.Or(f.Many, l.slices[i])
		default:
			f.Err = cmp.Or(f.Err, b.err)
		}
	}
	return f
}

// lookKey is another one for the slice of the slot's next job, which the last one's does not hide.
func lookKey(slice string) string {
	var st unix.Stat_t
	_ = unix.Lstat(slice, &st) // of one that has ended it is 0
	return fmt.Sprint("below ", slice, " ", st.Ino)
}

// keptBelow is for how long a list counts. However slow its slices are, gpuslotd waits for a twentieth of the time.
func keptBelow(took time.Duration) time.Duration {
	if took < time.Millisecond {
		return 0
	}
	return min(20*took, 20*Patient)
}

// below are the processes in a cgroup and below it; many where it has more than MostBelow cgroups.
type below struct {
	pids []string
	many bool
	err  error
}

// list goes from directory to directory, because a path to the last of them may be too long, and keeps one
// of them open.
func list(slice string) (b below) {
	at, err := os.Open(slice)
	if err != nil {
		return below{err: unlessGone(err)}
	}
	defer func() { at.Close() }()
	known := 1
	var left [][]string // the children that are to be looked into, of each cgroup from the slice to at
	for {
		names := childrenOf(at, MostBelow-known)
		if known += len(names); known > MostBelow {
			return below{many: true}
		}
		pids, err := pidsIn(at)
		if b.pids = append(b.pids, pids...); err != nil {
			b.err = err
			return b
		}
		left = append(left, names)
		var next *os.File
		for next == nil {
			last := len(left) - 1
			if n := len(left[last]); n > 0 {
				if next, err = openIn(at, left[last][n-1], unix.O_DIRECTORY); unlessGone(err) != nil {
					b.err = err
					return b
				}
				left[last] = left[last][:n-1]
				continue
			}
			if last == 0 {
				return b
			}
			above, err := openIn(at, "..", unix.O_DIRECTORY)
			if err != nil {
				b.err = unlessGone(err)
				return b
			}
			at.Close()
			at, left = above, left[:last]
		}
		at.Close()
		at = next
	}
}

// pidsIn are the processes in this very cgroup. A threaded one lists none: its processes are listed above it.
func pidsIn(at *os.File) ([]string, error) {
	f, err := openIn(at, "cgroup.procs", 0)
	if err != nil {
		return nil, unlessGone(err)
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = nil
	}
	return strings.Fields(string(text)), unlessGone(err)
}

// unlessGone is the error of a look into a cgroup that has not ended.
func unlessGone(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// childrenOf are the names of the cgroups in a cgroup, not all of them where there are more than most.
func childrenOf(at *os.File, most int) (names []string) {
	for len(names) <= most {
		entries, err := at.ReadDir(256)
		for _, e := range entries {
			if e.IsDir() {
				names = append(names, e.Name())
			}
		}
		if err != nil {
			return names // the end, or the cgroup has ended
		}
	}
	return names
}

func openIn(dir *os.File, name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// mostDescendants is how many cgroups there may be below one. It is root's, also in what HTCondor gives to a job.
const mostDescendants = "cgroup.max.descendants"

// Remove removes a cgroup with all below it. First it forbids new cgroups there, because the job's account may make
// them faster than they are removed. If the cgroup stays, new ones are allowed again: it is the next job's, too.
func Remove(ctx context.Context, path string) error {
	top, err := openCgroup(unix.AT_FDCWD, path)
	if err != nil {
		return err
	}
	defer top.Close()
	err = allow(top, "0")
	if err == nil {
		err = removeBelow(ctx, top)
	}
	if err == nil {
		err = unix.Rmdir(path)
	}
	if err != nil {
		err = errors.Join(err, allow(top, "max"))
	}
	return err
}

// allow says how many cgroups there may be below one; of one that has ended it says nothing.
func allow(top *os.File, most string) error {
	fd, err := unix.Openat(int(top.Fd()), mostDescendants, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return unlessGone(err)
	}
	_, err = unix.Write(fd, []byte(most))
	return unlessGone(errors.Join(err, unix.Close(fd)))
}

// removeBelow removes all below a cgroup. Each is made root's before its children are
// listed, so that another process of the job's account makes no more there. It goes from directory
// to directory, because a path to the last of them may be too long, and keeps one of them open.
func removeBelow(ctx context.Context, top *os.File) error {
	at, err := openIn(top, ".", unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer func() { at.Close() }()
	var names []string // from top to at
	for ctx.Err() == nil {
		child, err := removeChildren(ctx, at)
		if err != nil {
			return err
		}
		if child == "" && len(names) == 0 {
			return nil
		}
		next, err := openCgroup(int(at.Fd()), cmp.Or(child, ".."))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		at.Close()
		at = next
		if child != "" {
			names = append(names, child)
			continue
		}
		last := len(names) - 1
		if err := unix.Unlinkat(int(at.Fd()), names[last], unix.AT_REMOVEDIR); err != nil {
			return err // a process is in it
		}
		names = names[:last]
	}
	return ctx.Err()
}

// removeChildren removes the children of a cgroup that have none, and returns the name of one that
// has; empty if no child is left.
func removeChildren(ctx context.Context, at *os.File) (child string, err error) {
	if _, err := at.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	entries, err := at.ReadDir(0) // all
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if no := unix.Unlinkat(int(at.Fd()), e.Name(), unix.AT_REMOVEDIR); no != nil && !errors.Is(no, fs.ErrNotExist) {
			child = e.Name()
		}
	}
	return child, err
}

// openCgroup opens a cgroup, and makes it root's.
func openCgroup(above int, name string) (*os.File, error) {
	fd, err := unix.Openat(above, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	if err := f.Chown(0, 0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
