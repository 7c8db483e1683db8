package starter

import (
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/gpu/process"
)

// UserCgroups, below the mount of cgroup v2, are those of users' sessions and service managers, and of cron and at.
var UserCgroups = []string{
	"/user.slice", "/system.slice/cron.service", "/system.slice/crond.service", "/system.slice/atd.service",
}

// Users finds the processes that users run outside of all jobs.
type Users struct{ Node }

// AccountOf is at once the account of a process, in a job or not: that which logged in, or else the real one. It is not
// Known of root's and the agent's processes.
func (n Users) AccountOf(pid int) Account {
	uids, err := n.UIDs(pid)
	a := Account{UID: uids.Real, Known: err == nil && !n.trusts(uids.Real)}
	if login := process.LoginUID(n.FS, pid); login != process.NoLogin && !n.trusts(login) {
		a.UID = login
	}
	return a
}

// OfUser says whether a process runs in one of UserCgroups, as an account other than root's and the agent's, or was
// left in a cgroup of HTCondor's daemons by users' code there. Two do so only on purpose: one in no slot, so deep that
// the kernel does not show its path, and one with ErrDeadThreads. Ask first whether the process counts for a job.
func (n Users) OfUser(pid int) bool {
	return n.AccountOf(pid).Known && n.outside(pid) // in this order: the second may take long
}

func (n Users) outside(pid int) bool {
	text, err := n.Cgroup(pid)
	if errors.Is(err, unix.ENAMETOOLONG) {
		slice, _, err := locate(n.Node, pid)
		return slice == "" && err == nil
	}
	in := func(of string) bool { return strings.HasPrefix(unified(text)+"/", of+"/") }
	return errors.Is(err, process.ErrDeadThreads) ||
		err == nil && (slices.ContainsFunc(UserCgroups, in) || n.left(pid, unified(text)))
}

// Own are the processes that an account runs outside of all jobs, also as root by sudo or su. That may take long.
func (n Users) Own(uid uint32) (found []process.ID) {
	pids, _ := n.PIDs() // those that are not listed are found by the next look
	for _, pid := range pids {
		p, err := n.Stat(pid) // first: the PID may soon be another process's
		if err == nil && n.AccountOf(pid).UID == uid && n.outside(pid) {
			found = append(found, p.ID)
		}
	}
	return found
}

// left says whether a process in a cgroup of HTCondor's daemons left what started it: the setup of a login and file
// transfer plugins run users' code there, below a starter. Nothing of HTCondor's own leaves its parents.
func (n Users) left(pid int, cgroup string) bool {
	line, err := n.ancestry(pid)
	if err != nil || cgroup == "" || line[len(line)-1].Parent > 1 {
		return false
	}
	daemons, _ := n.Daemons.For(line[0].Started, n.DaemonCgroups) // with an error there may be more
	if !slices.Contains(daemons, cgroup) {
		return false
	}
	for i, p := range line { // a control daemon of root's has started its MPS servers
		if _, err := n.daemon(p.PID, starterProgram, startdProgram); err == nil || i > 0 && !n.AccountOf(p.PID).Known {
			return false
		}
	}
	return n.Unchanged(line)
}
