package elastic

import "time"

// target is how many GPUs the whole side shall have, and why.
func (s *State) target(r Rules, now Now) (int, string) {
	d := now.Demand
	if !d.Known {
		d.Whole, d.Shared = r.Max, true
	}
	stayed := s.Settled && now.At.Sub(s.Since) >= r.Stay
	free := s.Target - s.Used
	switch {
	case s.Target > r.Max:
		return r.Max, "one of its GPUs takes no jobs"
	case s.Target < r.Min:
		return r.Min, "so many are always whole"
	case s.Target > r.Min && d.Whole == 0 && (d.Shared || !s.Settled || s.idle(now.At) >= r.Offer):
		return r.Min, "no whole job waits"
	case s.Target > r.Min && d.Shared && stayed:
		return r.Min, "shared jobs wait, and whole ones had their time"
	case s.Target > r.Min && s.unclaimed(r, d, now.At):
		s.Unclaimed++
		return r.Min, "no whole job came"
	case d.Whole > free && s.news(d) && s.mayGrow(r, d, now):
		if t := min(r.Max, s.Used+d.Whole); t > s.Target {
			return t, "a whole job waits"
		}
	}
	return s.Target, ""
}

// news: the whole job was counted after the last one started or ended here. Before, it may
// be the one that has started.
func (s *State) news(d Demand) bool { return !d.Known || s.Used == 0 || d.At.After(s.Busy) }

// mostDoublings bounds how long a group is left alone whose offers no job takes.
const mostDoublings = 4

// mayGrow: at once where no shared job waits; else after they had their time, and
// later each time that no job came.
func (s *State) mayGrow(r Rules, d Demand, now Now) bool {
	if s.Unclaimed == 0 && !d.Shared {
		return true
	}
	return s.Settled && now.At.Sub(s.Since) >= r.Stay<<min(s.Unclaimed, mostDoublings)
}

// unclaimed: GPUs are open, they would do, and no job came in the time of an offer.
func (s *State) unclaimed(r Rules, d Demand, at time.Time) bool {
	return s.Settled && s.Open == s.Target && s.Target-s.Used >= max(1, min(d.Whole, s.Target)) && s.idle(at) >= r.Offer
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
