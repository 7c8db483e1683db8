package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// cgroupDir is one cgroup. Names come again with the next job of a slot; the
// inode of a cgroup is that of one cgroup since the boot.
type cgroupDir struct {
	Path  string `json:"path"`
	Inode uint64 `json:"inode"`
}

// cgroupAt is the cgroup that has a name now.
func cgroupAt(path string) (cgroupDir, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return cgroupDir{}, fmt.Errorf("cgroup %s: %w", path, err)
	}
	return cgroupDir{path, st.Ino}, nil
}

// there says whether the cgroup still exists.
func (d cgroupDir) there() bool {
	now, err := cgroupAt(d.Path)
	return err == nil && now == d
}

// cgroupPath is a cgroup and those above it, without the root.
func cgroupPath(root, cgroup string) ([]cgroupDir, error) {
	var out []cgroupDir
	for p := path.Clean(cgroup); p != "/" && p != "."; p = path.Dir(p) {
		d, err := cgroupAt(path.Join(root, p))
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

// jobCgroup is the cgroup of a starter's job, below the mount; empty while no
// process of the job is there.
func (b *books) jobCgroup(s Starter, trusted func(uint32) bool) string {
	for _, pid := range b.proc.Children(s.PID) {
		text, err := b.proc.cgroup(pid)
		if err != nil {
			continue
		}
		leaf, slot := jobLeaf(text)
		if leaf == "" || !sameSlot(s.Slot, slot) {
			continue
		}
		// Asked last: the PID may be another's by now.
		if above, err := b.proc.starterAbove(pid, trusted); err == nil && above.is(s) {
			return leaf
		}
	}
	return ""
}

// withoutDmem says whether the kernel has the controller dmem, but not for this
// cgroup: nobody enabled it in the cgroups above.
func withoutDmem(root, cgroup string) bool {
	have, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	if err != nil || !strings.Contains(" "+strings.TrimSpace(string(have))+" ", " dmem ") {
		return false
	}
	_, err = os.Lstat(filepath.Join(cgroup, "dmem.max"))
	return errors.Is(err, fs.ErrNotExist)
}
