package agent

import (
	"context"
	"time"
)

// starters are the condor_starters that were seen in /proc.
type starters struct {
	// pids are the processes that were looked at already.
	pids map[int]bool
	// full is when all of them were, lastly.
	full time.Time
}

// lookAgain bounds how long a starter can be missed whose PID another process had.
const lookAgain = time.Minute

// news are the starters that came since the last look. What is not one is looked at
// once: reading each process each second would cost more than all else.
func (s *starters) news(fs procFS, trusted func(uint32) bool, now time.Time) (found []Starter) {
	seen := map[int]bool{}
	if now.Sub(s.full) >= lookAgain {
		s.pids, s.full = nil, now
	}
	for _, pid := range fs.PIDs() {
		if s.pids[pid] {
			seen[pid] = true
			continue
		}
		starter, is, settled := fs.starterIn(pid, trusted)
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
func (fs procFS) starterIn(pid int, trusted func(uint32) bool) (s Starter, is, settled bool) {
	p, err := fs.Stat(pid)
	if err != nil || p.Ended() {
		return s, false, false
	}
	program, err := fs.daemon(pid, trusted)
	if err != nil || program != starterProgram {
		return s, false, program != startdProgram
	}
	if !fs.SameNamespace(pid) {
		return s, false, true // a container's is not this node's startd's
	}
	s, err = fs.starterAbove(pid, trusted)
	is = err == nil && s.PID == pid
	return s, is, is // else it is just being executed, a self-test, or a pilot's
}

// discover takes note of the starters that came. It says whether there are any that
// the startd is to be asked about.
func (b *books) discover(s *starters, trusted func(uint32) bool, now time.Time) bool {
	found := s.news(b.proc, trusted, now)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, starter := range found {
		if !b.met(starter) {
			b.unbooked = append(b.unbooked, unbooked{Starter: starter, fresh: true})
		}
	}
	return len(found) > 0
}

// met: the starter is in the books, or waits for the startd's word. The caller holds mu.
func (b *books) met(s Starter) bool {
	for _, u := range b.unbooked {
		if u.is(s) {
			return true
		}
	}
	return len(b.held(s)) > 0 || b.elsewhere[s.ID]
}

// sampledLately: the sampling loop goes on, and looks after each sample for jobs that
// ended, so that a job's record has its last seconds. Nobody waits for its GPU.
func (a *Agent) sampledLately(v *view, now time.Time) bool {
	return v.plan.Observe && a.sampler != nil && now.Sub(a.sampler.Snapshot().At) <= staleAfter*v.config.Usage.Interval
}

// discoverJobs follows the jobs of an observed node. It has a loop of its own, as
// the sampling has, at the same pace.
func (a *Agent) discoverJobs(ctx context.Context) {
	seen := &starters{}
	for ctx.Err() == nil {
		v := a.view.Load()
		if v.plan.Observe {
			if a.books.discover(seen, starterUID(a.own), time.Now()) {
				nudge(a.booked)
			}
		}
		pause(ctx, v.config.Usage.Interval)
	}
}
