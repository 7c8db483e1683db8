package starter

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/agent/deep"
)

// Leaf is the leaf of a process. Errors are those of reading /proc.
func (n Node) Leaf(pid int) (Leaf, error) {
	text, err := n.trustedCgroup(pid)
	if err != nil {
		return Leaf{}, err
	}
	return leafOf(text).seen(n.Mount), nil
}

// Together says whether a process of a starter's slot goes with a supervisor: it is in the same leaf. What is in none
// goes with the job. Where HTCondor makes no cgroups, the starter's own child above each decides.
func (n Node) Together(pid int, supervisor Caller, s Starter) bool {
	a, _ := n.Leaf(pid) // one that cannot be read is in none
	b := supervisor.Leaf
	switch {
	case a.Path != "" && b.Path != "":
		return a.Path == b.Path // a pilot moves its payloads to cgroups beside the scope
	case b.Path != "":
		return !b.Login
	}
	return n.childAbove(pid, s) == n.childAbove(supervisor.PID, s)
}

// childAbove is the child of a starter that a process is or descends from; 0 if
// it left its parents behind.
func (n Node) childAbove(pid int, s Starter) int {
	for range maxAncestors {
		p, err := n.Stat(pid)
		if err != nil || p.Parent == s.PID {
			return p.PID
		}
		pid = p.Parent
	}
	return 0
}

// Alone says for certain that a caller is the last process of its leaf, and of the slice that HTCondor gives to the
// user, as most are. It takes less than the control daemon's word on their clients. Mount is that of cgroup v2.
func (c Caller) Alone(mount string) bool {
	if c.Leaf.Path == "" {
		return false
	}
	dir := c.Leaf.Path
	if slice, ok := JobSlice(dir); ok {
		dir = slice
	}
	found, err := onlyProcess(filepath.Join(mount, dir), c.PID)
	return found && err == nil // or the mount is of another tree
}

var errOthers = errors.New("other processes are there")

// onlyProcess looks for a process in a cgroup and all below it. Another one
// there, what cannot be read, or more cgroups than are looked into, is an error; a zombie is in no cgroup.
func onlyProcess(dir string, pid int) (found bool, err error) {
	known := 0
	err = filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if known++; known > deep.MostBelow {
			return errOthers
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
