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
	"sync"

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

// deepLook is held while cgroups are looked into: a job can have a thousand requests that want this
// at a time, each with a descriptor and up to mostBelow names.
var deepLook sync.Mutex

// cgroupText reads /proc/<pid>/cgroup. Before 6.8 the kernel shows none where the path has
// 4096 bytes or more (ENAMETOOLONG), and a job can make such a one below its slice. The process
// is then looked for below the slices of jobs, and the text says no more than the slice.
func (n Node) cgroupText(pid int) ([]byte, error) {
	text, err := n.Cgroup(pid)
	if !errors.Is(err, unix.ENAMETOOLONG) {
		return text, err
	}
	deepLook.Lock()
	defer deepLook.Unlock()
	mount := cmp.Or(n.Mount, "/sys/fs/cgroup")
	for _, slice := range n.slotCgroups(mount) {
		if below(filepath.Join(mount, slice), pid) {
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

// below says whether a process is in a cgroup or below it. It goes from directory to directory, because
// a path to the last of them may be too long, and keeps one of them open.
func below(slice string, pid int) bool {
	at, err := os.Open(slice)
	if err != nil {
		return false
	}
	defer func() { at.Close() }()
	known := 1
	var left [][]string // the children that are to be looked into, of each cgroup from the slice to at
	for {
		names := childrenOf(at, mostBelow-known)
		if known += len(names); known > mostBelow || lists(at, pid) {
			return true
		}
		left = append(left, names)
		var next *os.File
		for next == nil {
			last := len(left) - 1
			if n := len(left[last]); n > 0 {
				next, _ = openIn(at, left[last][n-1], unix.O_DIRECTORY) // of one that has ended there is none
				left[last] = left[last][:n-1]
				continue
			}
			if last == 0 {
				return false
			}
			above, err := openIn(at, "..", unix.O_DIRECTORY)
			if err != nil {
				return false
			}
			at.Close()
			at, left = above, left[:last]
		}
		at.Close()
		at = next
	}
}

// lists says whether a process is in this very cgroup. A threaded one lists none: its processes are
// listed above it.
func lists(at *os.File, pid int) bool {
	f, err := openIn(at, "cgroup.procs", 0)
	if err != nil {
		return false
	}
	defer f.Close()
	text, _ := io.ReadAll(f)
	return slices.Contains(strings.Fields(string(text)), strconv.Itoa(pid))
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
