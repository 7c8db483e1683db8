package agent

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// Most jobs have ended all they started when their supervisor asks for their
// end. That costs a look at their cgroups; the control daemon's word on their
// clients costs a program of NVIDIA's, a millisecond of CPU and more.

// alone says for certain that a process is the last one of its job: no other is
// in the cgroups of its slot, neither the job's nor those of logins to it, which
// HTCondor puts beside (25.14.1). Mount is that of cgroup v2.
func (fs procFS) alone(mount string, pid int) bool {
	text, err := fs.cgroup(pid)
	if err != nil {
		return false
	}
	above, slot := slotBelow(text)
	if slot == "" {
		return false
	}
	siblings, err := os.ReadDir(filepath.Join(mount, above))
	if err != nil {
		return false
	}
	seen := false
	for _, s := range siblings {
		if !s.IsDir() || slotOfPart(s.Name()) != slot {
			continue
		}
		found, err := onlyProcess(filepath.Join(mount, above, s.Name()), pid)
		if err != nil {
			return false
		}
		seen = seen || found
	}
	return seen // or the mount is of another tree
}

// slotBelow is the slot whose cgroup a process is in, by the text of its
// /proc/<pid>/cgroup, and the cgroup above; empty if in none of cgroup v2.
func slotBelow(text []byte) (above, slot string) {
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::/")
		if !ok {
			continue
		}
		parts := strings.Split(rest, "/")
		for i, part := range parts {
			if part == ".." {
				return "", "" // of another cgroup namespace
			}
			if slot := slotOfPart(part); slot != "" {
				return "/" + strings.Join(parts[:i], "/"), slot
			}
		}
	}
	return "", ""
}

// slotOfPart is the slot that one cgroup's own name says; empty if none.
func slotOfPart(name string) string {
	if m := cgroupSlotName.FindStringSubmatch(name); m != nil {
		return m[1]
	}
	return ""
}

var errOthers = errors.New("other processes are there")

// onlyProcess looks for a process in a cgroup and all below it. Another one
// there, or what cannot be read, is an error; a zombie is in no cgroup.
func onlyProcess(dir string, pid int) (found bool, err error) {
	err = filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path.Join(at, "cgroup.procs"))
		if err != nil {
			return err
		}
		for other := range strings.FieldsSeq(string(text)) {
			if other != strconv.Itoa(pid) {
				return errOthers
			}
			found = true
		}
		return nil
	})
	return found, err
}
