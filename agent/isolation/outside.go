package isolation

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu/devices"
)

// HTCondor runs code of users outside the cgroups of jobs, too, as the job's account and in
// the cgroup of its own daemons: the setup of condor_ssh_to_job, the test of a container,
// file transfer plugins that load the user's modules. This file closes the device nodes of
// all MIG devices there. The cgroups of jobs are beside that one, never below it (HTCondor
// 25.14.1 makes them in its parent), so they keep what they are given.
//
// A user can also have programs started that are no part of a job: by the service manager of the
// account (systemd-run --user), by cron and by at. This file closes the nodes to them, too, except
// to root, and with them the nodes of undivided GPUs that jobs share. It does so from the beginning,
// because a job could open a node for later use.

// outside is one look at the cgroups outside of jobs.
type outside struct {
	*Nodes
	now Conditions
}

// divided closes the nodes of all MIG devices to HTCondor's daemons and to what they run in their own cgroup, and to
// users' programs outside of jobs. A new startd may be in a new cgroup.
func (n outside) divided(read func() (devices.Capabilities, error)) {
	c, err := read()
	var r devices.Rule
	if err == nil {
		r, err = c.Rule(nil)
	}
	if err == nil {
		own, _ := n.processes.UnifiedCgroup(os.Getpid())
		var daemons []string
		daemons, err = n.htcondor.DaemonCgroups()
		for _, p := range daemons {
			no := mayClose(p, own)
			if no == nil {
				no = n.put(p, r, errDaemonsAndJobs)
			}
			err = errors.Join(err, no)
		}
		err = errors.Join(err, n.users(r, daemons))
	}
	n.report(err)
}

// undivided closes the nodes of shared GPUs to users' programs outside of jobs, on a node without MIG devices.
// HTCondor's daemons, in whose cgroup the site's monitors run, open all.
func (n outside) undivided() {
	if n.kernel == nil || n.now.Observed || len(n.now.ForJobs) == 0 {
		n.complainOfDaemons(nil)
		if n.now.Planned {
			_ = n.OpenOutside() // logged, and tried again
		}
		return
	}
	for _, j := range n.jobs.Running() {
		if leaf := n.processes.JobCgroup(j.Starter); leaf != "" {
			n.runsIn(leaf)
		}
	}
	daemons, err := n.htcondor.DaemonCgroups()
	if n.now.Planned {
		n.takeBack(daemons)
	}
	n.report(errors.Join(err, n.users(devices.Rule{}, daemons)))
}

// users puts a rule on the cgroups of users, for all but root: that of MIG's nodes, with those of shared GPUs. A cgroup
// with HTCondor's daemons or jobs below it has none.
func (n outside) users(r devices.Rule, daemons []string) (err error) {
	r.Closed, err = n.proc.Nodes(n.now.ForJobs)
	if err != nil && !errors.Is(err, devices.ErrUnknown) || r.Empty() {
		return err // what was closed stays
	}
	r.NotRoot = true
	for _, p := range starter.UserCgroups {
		no := errUsersAndJobs
		if slices.ContainsFunc(daemons, func(daemon string) bool { return belowCgroup(daemon, p) }) {
			n.takeBack([]string{p})
		} else {
			no = n.put(p, r, errUsersAndJobs)
		}
		if no != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", p, no))
		}
	}
	return err
}

// report says why nodes are open outside of jobs, nil if they are not.
func (n outside) report(err error) {
	if n.complainOfDaemons(err) {
		n.log.Warn("programs outside the cgroups of jobs can open device nodes that are closed to them", "err", err)
	}
}

// put puts the rule on one cgroup, or returns the error for one that has jobs below it.
func (n outside) put(p string, r devices.Rule, withJobs error) error {
	n.turn.Lock()
	defer n.turn.Unlock()
	dir, err := starter.CgroupAt(filepath.Join(n.root, p))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it has ended
	}
	if err != nil {
		return err
	}
	d, _ := n.daemonsAt(dir)
	if d.together {
		return withJobs
	}
	if d.rule.Equal(r) {
		return nil
	}
	if err := n.kernel.Put(dir.Path, r); err != nil {
		if !dir.Exists() {
			return nil
		}
		return err
	}
	d.rule = r
	n.enterDaemons(dir, d)
	n.log.Info("device nodes are closed to programs outside of jobs", "cgroup", p, "mig", r.Major != 0,
		"gpus", len(r.Closed))
	return nil
}

// takeBack takes back the rules on these cgroups, also those of an earlier agent.
func (n outside) takeBack(cgroups []string) {
	n.turn.Lock()
	defer n.turn.Unlock()
	for _, p := range cgroups {
		dir, err := starter.CgroupAt(filepath.Join(n.root, p))
		if err != nil || p == "/" {
			continue
		}
		if d, known := n.daemonsAt(dir); known && d.rule.Empty() {
			continue
		}
		if err := n.openDaemonCgroup(dir); err != nil {
			n.staysOutside(err)
		}
	}
}
