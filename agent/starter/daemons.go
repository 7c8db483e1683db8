package starter

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/gpu/reads"
)

// startds are the startds that run in this node, without those of pilots. With an error there may be more.
func (n Node) startds() (found []int, err error) {
	pids, err := n.PIDs()
	for _, pid := range pids {
		a, no := Users{n}.AccountOf(pid) // first: see starterIn
		if no == nil && !a.Known {
			_, no = n.daemon(pid, startdProgram)
		}
		if a.Known || no != nil || !n.SameNamespace(pid) {
			err = cmp.Or(err, unlessGone(no))
			continue
		}
		if _, err := n.starterAbove(pid); err != nil { // else it is a pilot's
			found = append(found, pid)
		}
	}
	return found, err
}

// DaemonCgroups are the cgroups of this node's startds, below the mount of cgroup v2, each
// once. A starter is in its startd's, and so is what it runs outside the job's own cgroup.
// One is empty where a startd is in no cgroup v2. With an error there may be more.
func (n Node) DaemonCgroups() ([]string, error) {
	cgroups, _, err := Users{n}.OfDaemons()
	return cgroups, err
}

// OfDaemons are these cgroups, and the accounts that the masters of the startds act as, without root: "condor" (their
// real account is root's). A master never acts as a user. It may act as root for a moment.
func (n Users) OfDaemons() (cgroups []string, accounts []uint32, err error) {
	startds, err := n.startds()
	for _, pid := range startds {
		text, no := n.Cgroup(pid)
		if no != nil && !process.Gone(no) {
			err = no
		}
		if no == nil {
			cgroups = append(cgroups, unified(text))
		}
		p, _ := n.Stat(pid) // one that has ended has no parent
		_, other := n.daemon(p.Parent, masterProgram)
		if as, no := n.UIDs(p.Parent); other == nil && no == nil && as.Real == 0 && as.Effective != 0 {
			accounts = append(accounts, as.Effective)
		}
	}
	slices.Sort(cgroups)
	slices.Sort(accounts)
	reads.Trust(accounts...)
	return slices.Compact(cgroups), slices.Compact(accounts), err
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
