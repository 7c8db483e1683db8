// Package elastic decides which GPUs of a group serve shared jobs and which whole
// ones, and when one side makes way for the other.
//
// The GPUs stand in one order, in which HTCondor gives them out to whole jobs: the
// whole side has some from the first on, the shared side the rest. A GPU changes
// sides only when no job of the other is on it, so no job is ended.
//
// Start at Decide, which is pure: the next state, by what runs and what waits. Group
// has the state of this node's GPUs. Round takes it one step, about once a second;
// Refuse holds each job to the side that its GPUs are on; Open is what HTCondor hears.
package elastic

import (
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/gpu/backoff"
)

// Side is what a GPU serves.
type Side int

// The sides. A leaving GPU takes no new shared jobs and waits for the last to end.
const (
	Shared Side = iota
	Leaving
	Whole
)

// Rules are the site's.
type Rules struct {
	// Min and Max are how many GPUs the whole side has at least and at most.
	Min, Max int
	// Patience is how long a job waits before GPUs are closed to the other side for it.
	Patience time.Duration
	// Stay is how long a side keeps what it got while the other waits.
	Stay time.Duration
	// Offer is how long open GPUs wait for a whole job.
	Offer time.Duration
}

// State is what was decided. The zero value has no GPUs; see New.
type State struct {
	// Sides of the GPUs in their order, and when each last changed.
	Sides []Side
	Moved []time.Time
	// Target is how many of them the whole side shall have, Open how many take whole
	// jobs: HTCondor may have so many of them in use, and picks the first free ones.
	Target, Open int
	// Least is the fewest GPUs that a new whole job must ask for: smaller ones are kept from what the
	// longest waiting one gets.
	Least int
	// Settled: everything is as Target says, Since when. Lowered is when Open last fell.
	Settled        bool
	Since, Lowered time.Time
	// Used is how many GPUs whole jobs have, Busy when that last changed.
	Used int
	Busy time.Time
	// Began is when GPUs last began to change sides. Pause is until when none makes way for whole jobs
	// while shared ones wait.
	Began, Pause time.Time
	// Vain has the numbers of GPUs that were made free, or could not be, and of which no whole job came.
	Vain backoff.Vain[int]
	// Why is a sentence about Target.
	Why string
}

// GPU is one GPU of the group now.
type GPU struct {
	// Shared and Whole say that jobs of that kind run. Held: HTCondor has given it to
	// a slot of which the agent has not heard yet.
	Shared, Whole, Held bool
	// Ready: it is set up for whole jobs. Broken: it takes no jobs at all.
	Ready, Broken bool
}

// Demand is what waits. Without knowledge each side is taken to wait always.
type Demand struct {
	Known bool
	// Whole are the whole jobs that have waited for Rules.Patience, that which has waited longest
	// first, one for each number of GPUs. Shared says that a shared job has.
	Whole  []Request
	Shared bool
}

// Request is a whole job that waits.
type Request struct {
	GPUs int
	// At is when it was counted.
	At time.Time
}

// Now is what Decide looks at.
type Now struct {
	At time.Time
	// Heard is when the startd was last told of the State.
	Heard  time.Time
	GPUs   []GPU
	Demand Demand
}

// settle is for how long HTCondor may act on what it heard before.
const settle = 2 * time.Second

// New is a group of n GPUs, those of whole on the whole side already: its jobs may
// run there since before the agent.
func New(n int, whole func(int) bool, at time.Time) State {
	s := State{Sides: make([]Side, n), Moved: make([]time.Time, n), Least: 1, Since: at, Busy: at, Lowered: at}
	for i := range s.Sides {
		if whole(i) {
			s.Sides[i] = Whole
		}
		s.Moved[i] = at
	}
	return s
}

// AdmitsShared says whether a shared job may start on a GPU. One that HTCondor
// matched before it heard that the GPU leaves may.
func (s State) AdmitsShared(i int, g GPU) bool { return s.Sides[i] != Whole && !g.Whole }

// AdmitsWhole says whether a whole job may start there, one that was matched before
// Open fell too.
func (s State) AdmitsWhole(i int, g GPU) bool {
	return s.Sides[i] == Whole && g.Ready && !g.Shared && !g.Whole
}

// Moving says that GPUs are on their way from one side to the other.
func (s State) Moving() bool {
	for i, side := range s.Sides {
		if side == Leaving || side == Whole != (i < s.Target) {
			return true
		}
	}
	return s.Open != s.Target
}

// Decide is the next state. It never changes the slices of the last one.
func Decide(r Rules, s State, now Now) State {
	s.Sides, s.Moved = slices.Clone(s.Sides), slices.Clone(s.Moved)
	r = r.within(now.GPUs)
	s.count(now)
	d := s.wanted(r, now)
	if t, why := s.target(r, now, d); t != s.Target {
		if s.Settled || s.Target <= r.Min { // a Target that rises again on the way makes it no longer
			s.Began = now.At
		}
		s.Target, s.Why, s.Settled = t, why, false
	}
	s.move(now)
	s.open(now)
	s.Least = 1
	if now.Demand.Known && d.whole <= s.Target {
		s.Least = max(1, d.whole)
	}
	if settled := !s.Moving(); settled != s.Settled {
		s.Settled, s.Since = settled, now.At
	}
	return s
}

// within are the rules with what the hardware allows: HTCondor picks the first free
// GPUs, so those behind a broken one cannot be given out whole.
func (r Rules) within(gpus []GPU) Rules {
	most := len(gpus)
	if i := slices.IndexFunc(gpus, func(g GPU) bool { return g.Broken }); i >= 0 {
		most = i
	}
	r.Max = min(r.Max, most)
	r.Min = min(r.Min, r.Max)
	return r
}

// count notes whole jobs that came. One that came shows that its number of GPUs is wanted.
func (s *State) count(now Now) {
	used := 0
	for _, g := range now.GPUs {
		if g.Whole {
			used++
		}
	}
	if used > s.Used {
		s.Vain = s.Vain.Took(used - s.Used)
	}
	if used != s.Used {
		s.Used, s.Busy = used, now.At
	}
}

// move changes the sides of GPUs without jobs of the other, once HTCondor has heard
// that there shall be none.
func (s *State) move(now Now) {
	for i, g := range now.GPUs {
		before, idle := s.Sides[i], !g.Shared && !g.Whole && !g.Held
		switch {
		case i < s.Target && before == Shared:
			s.Sides[i] = Leaving
		case i < s.Target && before == Leaving && idle && now.Heard.Sub(s.Moved[i]) >= settle:
			s.Sides[i] = Whole
		case i >= s.Target && before == Leaving && !g.Whole:
			s.Sides[i] = Shared
		case i >= s.Target && before == Whole && i >= s.Open && idle && now.Heard.Sub(s.Lowered) >= settle:
			s.Sides[i] = Shared
		}
		if s.Sides[i] != before {
			s.Moved[i] = now.At
		}
	}
}

// open says how many GPUs take whole jobs: all of a new Target at once, or a job that
// wants several would see them go one by one to those that want one.
func (s *State) open(now Now) {
	ready := 0
	for ready < s.Target && s.Sides[ready] == Whole && now.GPUs[ready].Ready && !now.GPUs[ready].Broken {
		ready++
	}
	switch open := min(s.Open, ready); {
	case ready == s.Target && s.Target >= s.Open:
		s.Open = s.Target
	case open < s.Open:
		s.Open, s.Lowered = open, now.At
	}
}
