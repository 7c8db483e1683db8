package starter

import (
	"path"
	"slices"
	"strings"
)

// startds are the processes of the startds that run in this node, without those of pilots.
func (n Node) startds() []int {
	var found []int
	for _, pid := range n.PIDs() {
		// The name first: of a thousand processes, half of them starters, one is a startd.
		if exe, err := n.Exe(pid); err != nil || path.Base(exe) != startdProgram {
			continue
		}
		if _, err := n.daemon(pid); err != nil || !n.SameNamespace(pid) {
			continue
		}
		if _, err := n.starterAbove(pid); err != nil { // else it is a pilot's
			found = append(found, pid)
		}
	}
	return found
}

// DaemonCgroups are the cgroups of this node's startds, below the mount of cgroup v2, each
// once. A starter is in its startd's, and so is what it runs outside the job's own cgroup.
// One is empty where a startd is in no cgroup v2.
func (n Node) DaemonCgroups() []string {
	var paths []string
	for _, pid := range n.startds() {
		text, err := n.Cgroup(pid)
		if p := unified(text); err == nil && !slices.Contains(paths, p) {
			paths = append(paths, p)
		}
	}
	slices.Sort(paths)
	return paths
}

// UnifiedCgroup is the cgroup of a process, below the mount of cgroup v2; empty where it is
// in none. Errors are those of reading /proc.
func (n Node) UnifiedCgroup(pid int) (string, error) {
	text, err := n.cgroupText(pid)
	return unified(text), err
}

// unified is the path in cgroup v2 that the text of a /proc/<pid>/cgroup names; empty if it
// names none (cgroups(7)).
func unified(text []byte) string {
	for line := range strings.Lines(string(text)) {
		if in, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			return in
		}
	}
	return ""
}
