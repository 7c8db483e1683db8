package isolation

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu/devices"
)

// daemonCgroup is the cgroup of a startd, and of the starters that it starts.
type daemonCgroup struct {
	// rule is the zero one where none of ours is there.
	rule devices.Rule
	// together: a job was seen in this cgroup, or below it, and would lose its own nodes by
	// a rule.
	together bool
}

// Reasons why there is no rule on the cgroup of HTCondor's daemons.
var (
	errDaemonsNoCgroup = errors.New("HTCondor's daemons are in no cgroup of their own in cgroup v2")
	errDaemonsNoUnit   = errors.New("HTCondor's daemons do not run in a service of systemd")
	errDaemonsAndJobs  = errors.New("HTCondor gives jobs no cgroup of their own beside that of its daemons")
	errUsersAndJobs    = errors.New("HTCondor's jobs run below it, so it does not run as a service of the system")
)

// errNotInJob refuses a start from outside the cgroups of jobs.
var errNotInJob = errors.New("HTCondor gives each job of this node a cgroup of its own, and the caller is in none of " +
	"them: if it is the job, look for \"cgroup\" in the slot's StarterLog; where BASE_CGROUP was made " +
	"empty, systemctl reload gpuslotd")

// mayClose says why no rule may be on a cgroup of HTCondor's daemons.
func mayClose(p string) error {
	switch {
	case p == "" || p == "/" || strings.Contains(p, "/../") || strings.HasSuffix(p, "/.."):
		return errDaemonsNoCgroup
	case !strings.Contains(p+"/", ".service/"):
		return fmt.Errorf("%w: %s", errDaemonsNoUnit, p) // it may be an administrator's session
	}
	return nil
}

// OpenOutside takes back the rules on the cgroups of HTCondor's daemons and of users, also those
// of an earlier agent. Errors are of the kernel.
func (n *Nodes) OpenOutside() error {
	n.turn.Lock()
	defer n.turn.Unlock()
	if n.kernel == nil || n.opened && len(n.above) == 0 && !ruled(n.allDaemons()) {
		return nil
	}
	daemons, _, err := n.htcondor.OfDaemons()
	errs := []error{err, n.closeGraphics(daemons, nil, nil)}
	for _, p := range append(daemons, starter.UserCgroups...) {
		if dir, err := starter.CgroupAt(filepath.Join(n.root, p)); err == nil && p != "/" {
			errs = append(errs, n.openDaemonCgroup(dir))
		}
	}
	err = errors.Join(errs...)
	if n.opened = err == nil; err != nil {
		n.staysOutside(err)
	}
	return err
}

func (n *Nodes) staysOutside(err error) {
	n.log.Warn("a rule for device nodes on a cgroup outside of jobs stays", "err", err)
}

// openDaemonCgroup takes the rule of one cgroup back. The caller holds turn.
func (n *Nodes) openDaemonCgroup(dir starter.Cgroup) error {
	err := n.kernel.Remove(dir.Path)
	if err != nil && dir.Exists() && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	delete(n.above, dir) // the kernel has taken that rule back, too
	d, _ := n.daemonsAt(dir)
	d.rule = devices.Rule{}
	n.enterDaemons(dir, d)
	return nil
}

// Starts notes where HTCondor runs a job, or a login to it, that asks for its start. Where jobs
// have cgroups of their own, who asks from elsewhere is refused with an error for the user: it is
// users' code in the cgroup of HTCondor's daemons, or a job that was moved to a service manager
// of its account.
func (n *Nodes) Starts(now Conditions, c starter.Caller) error {
	switch {
	case c.Leaf.Path != "":
		n.runsIn(c.Leaf.Path)
		return nil
	case !c.Hook:
		return nil // its cgroup is of version 1
	}
	// A starter gives its job a cgroup if HTCondor is set up to, and it can write the tree
	// (HTCondor's vanilla_proc.cpp).
	if now.JobCgroups && !n.htcondor.ReadOnly(c.Starter.PID, n.root) {
		if now.Divided() && !now.Observed && n.Enforced() {
			return errNotInJob
		}
		return nil
	}
	beside := func(p string) bool { return mayClose(p) == nil && belowCgroup(c.Cgroup, p) }
	here, _ := starter.CgroupAt(filepath.Join(n.root, c.Cgroup))
	daemons, _, err := n.htcondor.OfDaemons()
	if here.Exists() && slices.ContainsFunc(daemons, beside) {
		n.runsIn(c.Cgroup)
		return nil
	}
	return err
}

// runsIn notes a cgroup in which a job runs. A rule on a cgroup of the daemons at or above
// it would take the job's own nodes, and goes.
func (n *Nodes) runsIn(cgroup string) {
	n.turn.Lock()
	defer n.turn.Unlock()
	for dir, d := range n.allDaemons() {
		in := belowCgroup(filepath.Join(n.root, cgroup), dir.Path)
		if in == d.together {
			continue
		}
		d.together = in
		n.enterDaemons(dir, d)
		if !in {
			n.Wake() // the rule may stand
			continue
		}
		if err := n.openDaemonCgroup(dir); err != nil {
			n.staysOutside(err)
		}
	}
}

// belowCgroup says whether a cgroup is another one or below it, by their paths.
func belowCgroup(cgroup, above string) bool {
	return strings.HasPrefix(cgroup+"/", strings.TrimSuffix(above, "/")+"/")
}
