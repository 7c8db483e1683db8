// Package starter finds HTCondor's starters on this node and the cgroups of their jobs: who
// is in which slot. A condor_starter runs one job in one slot, and lives exactly as long as
// the job holds it.
//
// Start at Node. Identify says in which slot a process is, and IdentifyPeer the same of the
// other end of a socket. Arrivals finds starters as they come. JobCgroup, Leaf and Alone are
// about the cgroups that HTCondor makes. Everything here rests on facts of the kernel that a
// job cannot change: accounts, the files of programs, parents and cgroups, never names alone.
package starter

import (
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/gpuslot/gpuslot/agent/deep"
	"github.com/gpuslot/gpuslot/agent/room"
	"github.com/gpuslot/gpuslot/gpu/foreign"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// Starter names the condor_starter that runs one job: the process, and the slot it was started for.
type Starter struct {
	process.ID
	// Slot is the value of -a: "slot1_2".
	Slot string
}

// Is says whether both are one process.
func (s Starter) Is(o Starter) bool { return s.ID == o.ID }

// Daemons keep the cgroups of HTCondor's daemons.
type Daemons = deep.List

// Node is this node as /proc shows it, with those whose HTCondor counts.
type Node struct {
	process.FS
	// Own is the account of the agent. Starters of root and of this account count: where
	// the agent is not root (a personal pool), both are one trust domain.
	Own uint32
	// Mount is that of cgroup v2; /sys/fs/cgroup where empty.
	Mount string
	// Subuid gives ranges of accounts to users; /etc/subuid where empty.
	Subuid string
	// Turns bound what is looked up for callers of the agent's socket. The agent's own looks have none:
	// they are few at a time, and no caller is to keep them waiting.
	Turns *room.Turns
	// Daemons keep where HTCondor's daemons are; nil keeps nothing.
	Daemons *Daemons
	// pass are the looks into slots that serve for all processes of one pass; nil makes each process look anew.
	pass func() (deep.Looks, error)
	// asker is the account of the caller for whom something is looked up; root's if it is the agent.
	asker uint32
}

func (n Node) trusts(uid uint32) bool { return uid == 0 || uid == n.Own }

// maxAncestors bounds the walk from a caller up to its starter. A hook is the
// starter's child; a site's chained hook adds a few shells.
const maxAncestors = 16

// starterAbove finds the condor_starter above a process: the outermost one, because
// what a job starts stands below the node's own, a pilot's HTCondor too.
func (n Node) starterAbove(pid int) (Starter, error) {
	line, err := process.Line(n.FS, pid, maxAncestors)
	if err != nil {
		return Starter{}, err
	}
	why := ErrNoSlot
	for i, p := range slices.Backward(line) {
		s, err := n.starterAt(p)
		switch {
		case err == nil && n.Unchanged(line[:i+1]):
			return s, nil
		case err == nil:
			return Starter{}, errors.New("a process above the caller ended while the caller was being identified: ask again")
		case errors.Is(err, ErrSlotless):
			return s, err
		case !errors.Is(err, errNoDaemon):
			why = err
		}
	}
	return Starter{}, why
}

// belowStartd says whether a process was started by the startd itself, as STARTD_CRON's are, and not by a job.
func (n Node) belowStartd(pid int) bool {
	if slot, err := n.cgroupSlot(pid); err != nil || slot != "" {
		return false
	}
	line, err := process.Line(n.FS, pid, maxAncestors)
	if err != nil {
		return false
	}
	startd := false
	for _, p := range line {
		program, err := n.daemon(p.PID, starterProgram, startdProgram)
		if err == nil && program == starterProgram {
			return false
		}
		startd = startd || err == nil && program == startdProgram
	}
	return startd && n.Unchanged(line)
}

// HTCondor's programs, by the names of their files.
const (
	starterProgram = "condor_starter"
	startdProgram  = "condor_startd"
	masterProgram  = "condor_master"
)

// errNoDaemon says that a process runs none of HTCondor's programs.
var errNoDaemon = errors.New("not a program of HTCondor's")

// daemon says which of HTCondor's programs a process runs as a daemon of this node. Its account and the file of its
// program decide, because anybody can take a name: the real uid is root's ("Uid: 0 <condor> 0 <condor>" on 25.14.1)
// or, in a personal pool, the agent's own, and no other account can write the file.
func (n Node) daemon(pid int, among ...string) (program string, err error) {
	exe, err := n.Exe(pid)
	if errors.Is(err, process.ErrHeld) {
		return "", err
	}
	if program = path.Base(exe); err != nil || !slices.Contains(among, program) {
		return "", errNoDaemon // kernel threads have no file
	}
	uids, err := n.UIDs(pid)
	if err != nil {
		return "", err
	}
	if !n.trusts(uids.Real) {
		return "", fmt.Errorf("process %d above the caller runs %s as uid %d, which is not this node's HTCondor: %w", pid,
			foreign.Clip(exe), uids.Real, ErrNoSlot)
	}
	file, err := n.ExeFile(pid)
	if err != nil {
		return "", fmt.Errorf("look at the program of process %d: %w", pid, err)
	}
	if !n.trusts(file.UID) || file.Mode&0o022 != 0 {
		return "", fmt.Errorf("process %d above the caller runs %s, which others than root can change (uid %d, mode %#o): "+
			"chown root and chmod go-w that file: %w", pid, foreign.Clip(exe), file.UID, file.Mode&0o7777, ErrNoSlot)
	}
	return program, nil
}

// starterAt is the starter that a process is: a daemon whose parent is a startd. One
// that lost its startd runs on below PID 1 for a while; only root's counts then.
func (n Node) starterAt(p process.Stat) (Starter, error) {
	startd := p.Parent
	if startd <= 1 {
		n.Own, startd = 0, 0
	}
	if _, err := n.daemon(p.PID, starterProgram); err != nil {
		return Starter{}, err
	}
	if _, err := n.daemon(startd, startdProgram); startd != 0 && err != nil {
		return Starter{}, fmt.Errorf("process %d above the caller runs condor_starter, "+
			"but its parent %d is no condor_startd: %w", p.PID, startd, ErrNoSlot)
	}
	slot, err := n.starterSlot(p.PID, startd)
	return Starter{ID: p.ID, Slot: slot}, err
}

// Startds are the local names of the GPUs' startds that run in this node.
func (n Node) Startds() []string {
	var names []string
	startds, _ := n.startds() // who asks those that are known asks again
	for _, pid := range startds {
		args, err := n.Args(pid)
		if name := parseStartdArgs(args); err == nil && name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return slices.Sorted(slices.Values(names))
}
