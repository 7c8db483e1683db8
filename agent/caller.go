package agent

import (
	"errors"
	"fmt"
	"path"
)

// Starter names the condor_starter that runs one job: the process, and the slot
// it was started for. It lives exactly as long as the job holds the slot.
type Starter struct {
	PID int
	// Started is the process's start time in clock ticks since boot; PID and
	// Started together are never used twice.
	Started uint64
	// Slot is the value of -a: "slot1_2".
	Slot string
}

// Caller is who asks, as the kernel says it.
type Caller struct {
	// UID and PID are the socket's peer credentials.
	UID uint32
	PID int
	// Hook: below a starter, but not in the cgroup of a slot. Otherwise a
	// process of the job itself.
	Hook bool
	// Starter runs the job. For a job process that left its parents behind
	// only the slot is known: PID is 0.
	Starter Starter
}

// errNoSlot is what a process outside any slot hears.
var errNoSlot = errors.New("the caller runs in no slot: neither its cgroup nor a condor_starter above it names one; only HTCondor's hooks and jobs may ask for a GPU")

// maxAncestors bounds the walk from a caller up to its starter. A hook is the
// starter's child; a site's chained hook adds a few shells.
const maxAncestors = 16

// identify finds the slot of a process: by its cgroup if it is a job's, and by
// the condor_starter above it (hooks run in the starter's cgroup,
// which names no slot). Both must agree where both are known.
func (fs procFS) identify(uid uint32, pid int, trusted func(uint32) bool) (Caller, error) {
	c := Caller{UID: uid, PID: pid}
	inCgroup, err := fs.cgroupSlot(pid)
	if err != nil {
		return c, fmt.Errorf("read the caller's cgroup: %w", err)
	}
	c.Hook = inCgroup == ""
	s, err := fs.starterAbove(pid, trusted)
	if c.Hook {
		c.Starter = s
		return c, err
	}
	if err != nil {
		// It left its parents behind; its cgroup it cannot leave.
		s = Starter{Slot: inCgroup}
	}
	if !sameSlot(s.Slot, inCgroup) {
		return c, fmt.Errorf("the caller's cgroup says %s, the condor_starter above it %s", inCgroup, s.Slot)
	}
	c.Starter = s
	return c, nil
}

// starterAbove walks up to the nearest condor_starter.
func (fs procFS) starterAbove(pid int, trusted func(uint32) bool) (Starter, error) {
	p, err := fs.ancestor(pid, func(comm string) bool { return comm == starterProgram })
	if err != nil {
		return Starter{}, err
	}
	if err := fs.isHTCondor(p, trusted); err != nil {
		return Starter{}, err
	}
	slot, err := fs.starterSlot(p.PID)
	if err != nil {
		return Starter{}, err
	}
	return Starter{PID: p.PID, Started: p.Started, Slot: slot}, nil
}

// belowStartd says whether a process was started by the startd itself, as
// STARTD_CRON's are, and not by a job.
func (fs procFS) belowStartd(pid int, trusted func(uint32) bool) bool {
	slot, err := fs.cgroupSlot(pid)
	if err != nil || slot != "" {
		return false
	}
	p, err := fs.ancestor(pid, func(comm string) bool { return comm == starterProgram || comm == startdProgram })
	return err == nil && p.Comm == startdProgram && fs.isHTCondor(p, trusted) == nil
}

// ancestor walks up to the nearest process of a name, pid itself included.
func (fs procFS) ancestor(pid int, is func(comm string) bool) (process, error) {
	for range maxAncestors {
		p, err := fs.process(pid)
		if err != nil {
			return process{}, fmt.Errorf("walk up from the caller: %w", err)
		}
		if is(p.Comm) {
			return p, nil
		}
		if p.Parent <= 1 {
			break
		}
		pid = p.Parent
	}
	return process{}, errNoSlot
}

// HTCondor's programs; both names fit into the kernel's comm.
const (
	starterProgram = "condor_starter"
	startdProgram  = "condor_startd"
)

// isHTCondor decides whether a process that calls itself condor_starter or
// condor_startd is one: by the program it runs and by its real uid, which is
// root's ("Uid: 0 <condor> 0 <condor>" on 25.14.1) or, in a personal
// pool, the agent's own. Anybody can take the name.
func (fs procFS) isHTCondor(p process, trusted func(uint32) bool) error {
	uid, err := fs.realUID(p.PID)
	if err != nil {
		return err
	}
	if !trusted(uid) {
		return fmt.Errorf("process %d above the caller calls itself %s but runs as uid %d: %w", p.PID, p.Comm, uid, errNoSlot)
	}
	exe, err := fs.exe(p.PID)
	if err != nil {
		return err
	}
	if path.Base(exe) != p.Comm {
		return fmt.Errorf("process %d above the caller calls itself %s but runs %s: %w", p.PID, p.Comm, clip(exe), errNoSlot)
	}
	return nil
}

// starterUID says whose starters an agent trusts: root's, and its own account's
// where it is not root itself (a personal pool: one trust domain).
func starterUID(agent uint32) func(uint32) bool {
	return func(uid uint32) bool { return uid == 0 || uid == agent }
}
