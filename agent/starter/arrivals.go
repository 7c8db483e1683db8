package starter

import (
	"errors"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/gpu/process"
)

// Arrivals finds starters as they come. The zero value has seen none.
type Arrivals struct {
	// pids are the processes that were looked at already.
	pids map[int]bool
	// full is when all of them were, lastly.
	full time.Time
}

// lookAgain bounds how long a starter can be missed whose PID another process had.
const lookAgain = time.Minute

// New are the starters that came since the last look. What is not one is looked at
// once: reading each process each second would cost more than all else. With an error there may be more.
func (s *Arrivals) New(n Node, now time.Time) (found []Starter, err error) {
	seen := map[int]bool{}
	if now.Sub(s.full) >= lookAgain {
		s.pids, s.full = nil, now
	}
	pids, err := n.PIDs()
	for _, pid := range pids {
		if s.pids[pid] {
			seen[pid] = true
			continue
		}
		starter, settled, no := n.starterIn(pid)
		switch {
		case no != nil:
			err = no
		case settled:
			seen[pid] = true
		}
		if starter.PID == pid {
			found = append(found, starter)
		}
	}
	s.pids = seen
	return found, err
}

// starterIn is the starter of this node's startd that a process is, if it is one, and says whether
// that stays so: one that the startd has just forked still runs the startd's program. The error is that
// of a process which could not be looked at. The account is first: the rest may take the kernel long (ErrHeld).
func (n Node) starterIn(pid int) (s Starter, settled bool, err error) {
	if uid, guess, err := process.RealUID(n.FS, pid); err != nil || !n.trusts(uid) {
		return s, err == nil && !guess, unlessGone(err)
	}
	p, err := n.Stat(pid)
	if errors.Is(err, process.ErrHeld) && !strings.HasPrefix(n.Comm(pid), "condor_") {
		err = errNoDaemon // another program of root's, with files on NFS for example
	}
	if err != nil || p.Ended() {
		return s, false, unlessGone(err)
	}
	program, err := n.daemon(pid, starterProgram, startdProgram)
	if err != nil || program != starterProgram {
		return s, program != startdProgram, unlessGone(err)
	}
	if !n.SameNamespace(pid) {
		return s, true, nil // a container's is not this node's startd's
	}
	switch s, err = n.starterAbove(pid); {
	case err == nil && s.PID == pid:
		return s, true, nil
	case n.Runs(p.ID):
		return Starter{}, false, unlessGone(err) // it is just being executed, a self-test, or a pilot's
	}
	return Starter{}, false, nil // it has ended
}

// unlessGone is the error of a look at a process that may be a starter all the same.
func unlessGone(err error) error {
	if process.Gone(err) || errors.Is(err, ErrNoSlot) || errors.Is(err, ErrSlotless) || errors.Is(err, errNoDaemon) {
		return nil
	}
	return err
}
