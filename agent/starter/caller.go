package starter

import (
	"errors"
	"fmt"

	"github.com/gpuslot/gpuslot/condor/cgroup"
)

// Caller is who asks, as the kernel says it.
type Caller struct {
	// UID and PID are the socket's peer credentials.
	UID uint32
	PID int
	// Started is when the process began, in ticks since boot, of a caller that IdentifyPeer identified.
	Started uint64
	// Hook: below a starter, but not in the cgroup of a slot; for an admission, the
	// PREPARE_JOB hook itself (see IsHook). Otherwise a process of the job.
	Hook bool
	// Confirmed: the startd says the same of the slot as the caller.
	Confirmed bool
	// Starter runs the job. For a job process that left its parents behind
	// only the slot is known: PID is 0.
	Starter Starter
	// Cgroup is the caller's own, and Leaf the one that HTCondor made around it: as they were
	// when the caller was identified, because its PID may be another's afterwards.
	Cgroup string
	Leaf   Leaf
}

// ErrNoSlot is the error for a process outside any slot.
var ErrNoSlot = errors.New("the caller runs in no slot: neither its cgroup nor a condor_starter above it names one; " +
	"only HTCondor's hooks and jobs may ask for a GPU")

// Identify finds the slot of a process: by its cgroup if it is a job's, and by
// the condor_starter above it (hooks run in the starter's cgroup,
// which names no slot). Both must agree where both are known. The agent asks for itself as root.
// Only IdentifyPeer looks whether a user remade the caller's leaf: the agent's own rounds are not to wait for that.
func (n Node) Identify(uid uint32, pid int) (Caller, error) {
	n.asker = uid
	c := Caller{UID: uid, PID: pid}
	text, err := n.trustedCgroup(pid)
	if err != nil {
		return c, fmt.Errorf("read the caller's cgroup: %w", err)
	}
	inCgroup := cgroup.SlotIn(text)
	c.Cgroup, c.Leaf = unified(text), leafOf(text)
	c.Hook = inCgroup == ""
	s, err := n.starterAbove(pid)
	if c.Hook {
		c.Starter = s
		return c, err
	}
	if err != nil {
		// It left its parents behind; its cgroup it cannot leave.
		s = Starter{Slot: inCgroup}
	}
	if !SameSlot(s.Slot, inCgroup) {
		return c, fmt.Errorf("the caller's cgroup says %s, the condor_starter above it %s", inCgroup, s.Slot)
	}
	c.Starter = s
	return c, nil
}

// RunsBelow says whether a process is of a starter's job, by its cgroup or by the
// starter above it; the job table may not know the job any more.
func (n Node) RunsBelow(pid int, s Starter) bool {
	c, err := n.Identify(0, pid)
	if now, _ := n.Stat(s.PID); err != nil || !now.Shows(s.ID) {
		return false
	}
	if c.Starter.PID != 0 {
		return c.Starter.Is(s)
	}
	return SameSlot(c.Starter.Slot, s.Slot)
}
