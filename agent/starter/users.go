package starter

import (
	"slices"
	"strings"
)

// UserCgroups are where systemd keeps sessions and service managers of users, and where cron and at
// run programs of users that get no session. They are below the mount of cgroup v2.
var UserCgroups = []string{
	"/user.slice", "/system.slice/cron.service", "/system.slice/crond.service", "/system.slice/atd.service",
}

// Users finds the processes that users run outside of all jobs.
type Users struct{ Node }

// OfUser says whether a process runs in one of UserCgroups, as an account other than root's and the
// agent's.
func (n Users) OfUser(pid int) bool {
	cgroup, err := n.UnifiedCgroup(pid)
	in := func(of string) bool { return strings.HasPrefix(cgroup+"/", of+"/") }
	if err != nil || !slices.ContainsFunc(UserCgroups, in) {
		return false
	}
	uids, err := n.UIDs(pid)
	return err == nil && !n.trusts(uids.Real)
}
