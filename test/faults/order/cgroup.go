package order

import (
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
