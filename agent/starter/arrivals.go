package starter

import "time"

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
// once: reading each process each second would cost more than all else.
func (s *Arrivals) New(n Node, now time.Time) (found []Starter) {
	seen := map[int]bool{}
	if now.Sub(s.full) >= lookAgain {
		s.pids, s.full = nil, now
	}
	for _, pid := range n.PIDs() {
		if s.pids[pid] {
			seen[pid] = true
			continue
		}
		starter, is, settled := n.starterIn(pid)
		if settled {
			seen[pid] = true
		}
		if is {
			found = append(found, starter)
		}
	}
	s.pids = seen
	return found
}

// starterIn says whether a process is a starter of this node's startd, and whether
// that stays so: one that the startd has just forked still runs the startd's program.
func (n Node) starterIn(pid int) (s Starter, is, settled bool) {
	p, err := n.Stat(pid)
	if err != nil || p.Ended() {
		return s, false, false
	}
	program, err := n.daemon(pid)
	if err != nil || program != starterProgram {
		return s, false, program != startdProgram
	}
	if !n.SameNamespace(pid) {
		return s, false, true // a container's is not this node's startd's
	}
	s, err = n.starterAbove(pid)
	is = err == nil && s.PID == pid
	return s, is, is // else it is just being executed, a self-test, or a pilot's
}
