package starter

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/gpu/process"
)

// UserCgroups are where systemd keeps sessions and service managers of users, and where cron and at
// run programs of users that get no session. They are below the mount of cgroup v2.
var UserCgroups = []string{
	"/user.slice", "/system.slice/cron.service", "/system.slice/crond.service", "/system.slice/atd.service",
}

// Users finds the processes that users run outside of all jobs.
type Users struct{ Node }

// OfAccount says at once whether a process runs as an account other than root's and the agent's, in a job or not.
func (n Users) OfAccount(pid int) bool {
	uids, err := n.UIDs(pid)
	return err == nil && !n.trusts(uids.Real)
}

// OfUser says whether a process runs in one of UserCgroups, as an account other than root's and the agent's, or was
// left in a cgroup of HTCondor's daemons by users' code there. One in no slot, and in a cgroup so deep that the kernel
// does not show its path, runs there, too: only who was given a cgroup makes such a one. So does one with cgroups of
// version 1 whose tracer keeps dead threads: only on purpose (process.ErrDeadThreads). A slot that only may hold it
// keeps it from nothing: ask first whether the process counts for a job.
func (n Users) OfUser(pid int) bool {
	return n.OfAccount(pid) && n.outside(pid) // in this order: the kernel may take long to say where it is
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
		uids, no := n.UIDs(pid)
		if own := uids.Real == uid || process.LoginUID(n.FS, pid) == uid; own && cmp.Or(err, no) == nil && n.outside(pid) {
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
		if _, err := n.daemon(p.PID, starterProgram, startdProgram); err == nil || i > 0 && !n.OfAccount(p.PID) {
			return false
		}
	}
	return n.Unchanged(line)
}
