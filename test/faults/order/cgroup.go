package order

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// NewCgroup makes a node's part of the unified hierarchy, below which the
// slots' cgroups lie (Slot.Cgroup), and returns its directory; empty where none
// can be made.
func NewCgroup(name string) string {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if len(f) < 3 || f[2] != "cgroup2" {
			continue
		}
		dir := filepath.Join(f[1], name)
		if os.Mkdir(dir, 0o755) == nil {
			return dir
		}
	}
	return ""
}

// RemoveCgroup removes a cgroup and those below it; the kernel's files in them
// cannot be removed and need not be.
func RemoveCgroup(dir string) {
	entries, _ := os.ReadDir(dir) // what cannot be read cannot be removed either
	for _, e := range entries {
		if e.IsDir() {
			RemoveCgroup(filepath.Join(dir, e.Name()))
		}
	}
	_ = syscall.Rmdir(dir)
}

// OwnCgroups is where a node mounts the unified hierarchy, below its directory, if the machine has none.
func OwnCgroups(dir string) string { return filepath.Join(dir, "cgroup") }

// RemoveDir removes a node's directory. What is mounted there is the machine's whole tree of cgroups, of which nothing
// may go: then the directory stays.
func RemoveDir(dir string) error {
	err := syscall.Unmount(OwnCgroups(dir), syscall.MNT_DETACH)
	if err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOENT) { // nothing is mounted, or there
		return &os.PathError{Op: "unmount", Path: OwnCgroups(dir), Err: err}
	}
	return os.RemoveAll(dir)
}
