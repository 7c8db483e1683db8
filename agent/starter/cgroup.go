package starter

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// Cgroup is one cgroup since the boot. The next job of a slot gets a cgroup of the same
// name, with another inode.
type Cgroup struct {
	// Path is the full one, with that of the mount.
	Path  string `json:"path"`
	Inode uint64 `json:"inode"`
}

// CgroupAt is the cgroup that has a name now.
func CgroupAt(path string) (Cgroup, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return Cgroup{}, fmt.Errorf("cgroup %s: %w", path, err)
	}
	return Cgroup{path, st.Ino}, nil
}

// Exists says whether the cgroup may still exist: where it cannot be looked at, it may.
func (d Cgroup) Exists() bool {
	now, err := CgroupAt(d.Path)
	if err != nil {
		return !isGone(err)
	}
	return now == d
}

// Populated says whether a process may be in the cgroup or below it: where it cannot be read, one may.
func (d Cgroup) Populated() bool {
	events, err := os.ReadFile(path.Join(d.Path, "cgroup.events"))
	if err != nil {
		return !isGone(err)
	}
	return bytes.Contains(events, []byte("populated 1"))
}

// isGone says whether an error of a read below a cgroup says that it was removed, before the file was
// opened or after.
func isGone(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) }

// Empty says whether it is known that no process is in the cgroup or below it.
func (d Cgroup) Empty() bool {
	events, err := os.ReadFile(path.Join(d.Path, "cgroup.events"))
	return err == nil && bytes.Contains(events, []byte("populated 0"))
}

// CgroupsAbove is a cgroup, named by its path below the mount at root, and those above it
// without the root: the cgroup first.
func CgroupsAbove(root, cgroup string) ([]Cgroup, error) {
	var out []Cgroup
	for p := path.Clean(cgroup); p != "/" && p != "."; p = path.Dir(p) {
		d, err := CgroupAt(path.Join(root, p))
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	if len(out) == 0 {
		return nil, errors.New("the root cgroup cannot be limited")
	}
	return out, nil
}
