package starter

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/condor/cgroup"
)

const (
	// slotDepth is how far below the parent of its daemons' cgroup HTCondor makes those of slots.
	slotDepth = 3
	// mostBelow bounds how many cgroups below a slice are looked into. A job has some tens at most:
	// one with more is taken for the one that hides the process.
	mostBelow = 1000
)

// cgroupText reads /proc/<pid>/cgroup. Before 6.8 the kernel shows none where the path has
// 4096 bytes or more (ENAMETOOLONG), and a job can make such a one below its slice. The process
// is then looked for below the slices of jobs, and the text says no more than the slice.
func (n Node) cgroupText(pid int) ([]byte, error) {
	text, err := n.Cgroup(pid)
	if !errors.Is(err, unix.ENAMETOOLONG) {
		return text, err
	}
	mount := cmp.Or(n.Mount, "/sys/fs/cgroup")
	for _, slice := range n.slotCgroups(mount) {
		left := mostBelow
		if dir, errOpen := os.Open(filepath.Join(mount, slice)); errOpen == nil && below(dir, pid, &left) {
			return []byte("0::" + slice + "/below\n"), nil
		}
	}
	return nil, err
}

// slotCgroups are the uppermost cgroups of the slots of this node, below the mount: beside
// those of HTCondor's daemons, or in BASE_CGROUP.
func (n Node) slotCgroups(mount string) []string {
	var found []string
	for _, p := range append(n.DaemonCgroups(), "/htcondor/daemons") {
		above := filepath.Join(mount, path.Dir(p))
		_ = filepath.WalkDir(above, func(at string, d fs.DirEntry, err error) error {
			switch rest, _ := filepath.Rel(above, at); {
			case err != nil: // the cgroup has ended
				return fs.SkipDir
			case !d.IsDir():
				return nil
			case cgroup.Slot(d.Name()) != "":
				found = append(found, strings.TrimPrefix(at, filepath.Clean(mount)))
				return fs.SkipDir
			case strings.Count(rest, "/")+1 >= slotDepth:
				return fs.SkipDir
			}
			return nil
		})
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// below says whether a process is in a cgroup or below it, and closes the cgroup's directory. It
// goes from directory to directory, because a path to the last of them may be too long.
func below(dir *os.File, pid int, left *int) bool {
	defer dir.Close()
	if *left--; *left < 0 {
		return true
	}
	if f, err := openIn(dir, "cgroup.procs", 0); err == nil {
		text, _ := io.ReadAll(f) // a threaded cgroup shows none: its processes are listed above it
		_ = f.Close()
		if slices.Contains(strings.Fields(string(text)), strconv.Itoa(pid)) {
			return true
		}
	}
	entries, _ := dir.ReadDir(-1) // of a cgroup that has ended there are none
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		if !e.IsDir() {
			return false
		}
		next, err := openIn(dir, e.Name(), unix.O_DIRECTORY)
		return err == nil && below(next, pid, left)
	})
}

func openIn(dir *os.File, name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}
