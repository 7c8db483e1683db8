package starter

import (
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/gpu/process"
)

// UserCgroups are those of users' sessions and service managers, cron and at, below the mount of cgroup v2.
var UserCgroups = []string{
	"/user.slice", "/system.slice/cron.service", "/system.slice/crond.service", "/system.slice/atd.service",
}

// Users finds the processes that users run outside of all jobs.
type Users struct{ Node }

// AccountOf is at once the account of a process, in a job or not. It is not Known of root's and the agent's.
func (n Users) AccountOf(pid int) (Account, error) {
	uid, _, err := process.RealUID(n.FS, pid)
	return Account{UID: uid, Known: err == nil && !n.trusts(uid)}, err
}

// OfUser says whether a process runs in one of UserCgroups, as an account other than root's and the agent's, or was
// left in a cgroup of HTCondor's daemons by users' code there. Two do so only on purpose: one in no slot, so deep that
// the kernel does not show its path, and one with ErrDeadThreads. Ask first whether the process counts for a job.
func (n Users) OfUser(pid int) bool {
	if a, _ := n.AccountOf(pid); !a.Known {
		return false // first: the kernel may take long to say where it is
	}
	text, err := n.Cgroup(pid)
	if errors.Is(err, unix.ENAMETOOLONG) {
		slice, _, err := locate(n.Node, pid)
		return slice == "" && err == nil
	}
	in := func(of string) bool { return strings.HasPrefix(unified(text)+"/", of+"/") }
	return errors.Is(err, process.ErrDeadThreads) ||
		err == nil && (slices.ContainsFunc(UserCgroups, in) || n.left(pid, unified(text)))
}

// left says whether a process in a cgroup of HTCondor's daemons left what started it: the setup of a login and file
// transfer plugins run users' code there, below a starter. Nothing of HTCondor's own leaves its parents, or has more
// than maxAncestors.
func (n Users) left(pid int, cgroup string) bool {
	line, err := process.Line(n.FS, pid, maxAncestors)
	if err != nil || cgroup == "" || cgroup == "/" {
		return false
	}
	daemons, _ := n.Daemons.For(line[0].Started, n.DaemonCgroups) // with an error there may be more
	if !slices.Contains(daemons, cgroup) {
		return false
	}
	for _, p := range line {
		if _, err := n.daemon(p.PID, starterProgram, startdProgram); err == nil || n.ofSystem(p.PID) {
			return false
		}
	}
	return n.Unchanged(line)
}

// ofSystem says whether a process is root's or the agent's own, as a control daemon that has started MPS servers. Users
// can start setuid programs (sudo), and have these start others.
func (n Users) ofSystem(pid int) bool {
	a, err := n.AccountOf(pid)
	file, no := n.ExeFile(pid)
	return err == nil && !a.Known && (no != nil || file.Mode&unix.S_ISUID == 0)
}
