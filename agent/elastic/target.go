package elastic

import "time"

// wanted is what counts of the demand.
type wanted struct {
	// whole is how many GPUs the whole job wants that has waited longest of those for which none are
	// kept in vain; 0 if there is none. It was counted at that time.
	whole   int
	counted time.Time
	shared  bool
}

func (s *State) wanted(r Rules, now Now) (w wanted) {
	d := now.Demand
	if !d.Known {
		d = Demand{Whole: []Request{{r.Max, now.At}}, Shared: true}
	}
	w.shared = d.Shared
	for _, j := range d.Whole {
		if !s.Vain.Rests(j.GPUs, now.At) {
			w.whole, w.counted = j.GPUs, j.At
			break
		}
	}
	return w
}

// target is how many GPUs the whole side shall have, and why.
func (s *State) target(r Rules, now Now, d wanted) (int, string) {
	stayed := s.Settled && now.At.Sub(s.Since) >= r.Stay
	free := s.Target - s.Used
	switch {
	case s.Target > r.Max:
		return r.Max, "one of its GPUs takes no jobs"
	case s.Target < r.Min:
		return r.Min, "so many are always whole"
	case s.Target > r.Min && d.whole == 0 && (d.shared || !s.Settled || s.idle(now.At) >= r.Offer):
		return r.Min, "no whole job waits"
	case s.Target > r.Min && d.shared && stayed:
		return r.Min, "shared jobs wait, and whole ones had their time"
	case s.Target > r.Min && s.unclaimed(r, d, now.At):
		s.inVain(r, d, later(s.Began, s.Busy), now.At)
		return r.Min, "no whole job came"
	case s.Target > r.Min && s.stuck(r, now):
		s.inVain(r, d, s.began(), now.At)
		return r.Min, "shared jobs stay on GPUs that a whole job waits for"
	case d.whole > free && (s.Used == 0 || d.counted.After(s.Busy)) && s.mayGrow(r, d, now.At):
		// Counted before the last whole job started or ended here, it may be the one that has started.
		if t := min(r.Max, s.Used+d.whole); t > s.Target {
			return t, "a whole job waits"
		}
	}
	return s.Target, ""
}

// mayGrow: at once where no shared job waits; else after they had their time.
func (s *State) mayGrow(r Rules, d wanted, at time.Time) bool {
	return !d.shared || s.Settled && at.Sub(s.Since) >= r.Stay && !at.Before(s.Pause)
}

// unclaimed: GPUs are open, they would do, and no job came in the time of an offer.
func (s *State) unclaimed(r Rules, d wanted, at time.Time) bool {
	return s.Settled && s.Open == s.Target && s.Target-s.Used >= max(1, min(d.whole, s.Target)) && s.idle(at) >= r.Offer
}

// How long GPUs make way for whole jobs at most: while one stands empty and the others are waited for,
// if Rules.Stay is not longer, and in all.
const (
	longestEmpty = time.Hour
	longest      = 24 * time.Hour
)

// stuck: the last shared jobs do not end in time.
func (s *State) stuck(r Rules, now Now) bool {
	for i := s.Open; i < s.Target; i++ {
		empty := now.At.Sub(later(s.Moved[i], s.began()))
		if s.Sides[i] == Whole && !now.GPUs[i].Whole && empty >= max(r.Stay, longestEmpty) {
			return true
		}
	}
	return s.Open < s.Target && now.At.Sub(s.began()) >= longest
}

// began is when GPUs began to make way, or one that was open no longer was.
func (s *State) began() time.Time { return later(s.Began, s.Since) }

// inVain: GPUs made way since then for a job that did not come.
func (s *State) inVain(r Rules, d wanted, since, at time.Time) {
	s.Vain = s.Vain.Note(d.whole, at, max(r.Stay, at.Sub(since)))
	s.Pause = at.Add(at.Sub(since))
}

// idle is for how long open GPUs have waited for a whole job.
func (s *State) idle(at time.Time) time.Duration {
	return at.Sub(later(s.Since, s.Busy))
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
