package isolation

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu/devices"
)

// HTCondor runs code of users outside the cgroups of jobs, too, as the job's account and in
// the cgroup of its own daemons: the setup of condor_ssh_to_job, the test of a container,
// file transfer plugins that load the user's modules. And a user can have programs started that
// are no part of a job: by the service manager of the account (systemd-run --user), by cron and by at.
//
// This file closes the nodes of all MIG devices there, and those of undivided GPUs that jobs share,
// to all accounts but root and HTCondor's own, whose monitors open all. The cgroups of jobs are beside
// that of the daemons, never below it (HTCondor 25.14.1 makes them in its parent), so they keep what they
// are given. Users' cgroups are closed from the beginning, because a job could open a node for later use.

// outside is one look at the cgroups outside of jobs.
type outside struct {
	*Nodes
	now Conditions
}

// divided closes the nodes of all MIG devices and of shared GPUs. A new startd may be in a new cgroup.
func (n outside) divided(read func() (devices.Capabilities, error)) {
	c, err := read()
	var r devices.Rule
	if err == nil {
		r, err = c.Rule(nil)
	}
	if err == nil {
		err = n.close(r)
	}
	n.report(err)
}

// undivided closes the nodes of shared GPUs, on a node without MIG devices.
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
	n.report(n.close(devices.Rule{}))
}

// close puts a rule on the cgroups of HTCondor's daemons and of users: that of MIG's nodes, with those of shared GPUs.
// What cannot be read now leaves what was closed.
func (n outside) close(r devices.Rule) error {
	closed, err := n.proc.Nodes(n.now.ForJobs)
	if err != nil && !errors.Is(err, devices.ErrUnknown) {
		return err
	}
	graphics, no := n.proc.Graphics(n.now.ForJobs)
	if no != nil {
		return no
	}
	daemons, accounts, no := n.htcondor.OfDaemons()
	n.turn.Lock()
	spared := n.spare(accounts)
	err = errors.Join(err, no, n.closeGraphics(daemons, graphics, spared))
	n.turn.Unlock()
	if r.Closed = append(closed, graphics...); r.Empty() {
		return err
	}
	r.Spared = spared
	switch {
	case r.Major != 0 || n.now.asksFirst():
		for _, p := range daemons {
			no := mayClose(p)
			if no == nil {
				no = n.put(p, r, errDaemonsAndJobs)
			}
			err = errors.Join(err, no)
		}
	case n.now.Planned: // what is divided is known
		n.takeBack(daemons)
	}
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

// asksFirst says that a job without a cgroup of its own asks before its program opens a shared GPU, and takes the rule
// on the cgroup of HTCondor's daemons away.
func (c Conditions) asksFirst() bool { return c.Planned && c.Supervised && c.JobCgroups }

// spare are the accounts that open all nodes outside of jobs: root, and those of HTCondor's daemons, as now seen. A
// daemon that acts as root for a moment shows none. The caller holds turn.
func (n outside) spare(daemons []uint32) []uint32 {
	if len(daemons) > 0 || n.spared == nil {
		n.spared = append([]uint32{0}, daemons...)
	}
	return n.spared
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
