package usage

import (
	"math"
	"time"
)

// levels is a regression of a device's activity on the jobs that come and go, for jobs behind
// MPS, of which no counter shows the parts. The bounds of Divide hold whatever jobs do; these
// intervals are narrower and rest on three assumptions (docs/decisions/0012-sm-time-by-steps.md):
//
//   - activities of jobs add up while the device is not saturated;
//   - what changes while one job settles, or goes, is that job's doing;
//   - any other change is one job's doing, and it is not known whose: all intervals widen by it.
type levels struct {
	jobs map[SlotKey]*level
	// settled is the mean activity of so many blocks, since the last change.
	settled float64
	blocks  float64
	known   bool
	// gone says that a job ended since the last block.
	gone  bool
	block block
	// before are the intervals before the last drop that nothing explained, at dropped: the
	// job that ended its work may go yet.
	before  map[SlotKey]level
	dropped time.Time
}

// level is the interval of one job's activity, which was first seen at since with so many processes.
type level struct {
	low, high float64
	// guess is between them.
	guess   float64
	since   time.Time
	clients int
	// sure says that the interval is narrower than what the device does.
	sure bool
}

// block is a time in which nobody came or went.
type block struct {
	begin       time.Time
	sum, square float64
	samples     int
}

const (
	// blockTime is the time whose mean activity counts as one measurement.
	blockTime = 10 * time.Second
	// settling is how long changes count as those of a job that came, or that is about to go.
	settling = time.Minute
	// noise is the least error of a block's mean. saturated is the activity from which kernels wait for each other.
	noise, saturated = 0.01, 0.95
	// working is more than a job shows that has not begun; unknown is no guess.
	working, unknown = 0.05, -1
)

// mean of the block's activity, and its error: four standard errors, so that chance alone is rarely taken for a change.
func (b block) mean() (mean, off float64) {
	n := float64(b.samples)
	mean = b.sum / n
	return mean, noise + 4*math.Sqrt(max(b.square/n-mean*mean, 0)/n)
}

// take adds one sample: the activity, and how many processes each job has on the device.
func (l *levels) take(now time.Time, activity float64, clients map[SlotKey]int) {
	if l.jobs == nil {
		l.jobs = map[SlotKey]*level{}
	}
	if l.follow(now, clients) || l.block.samples == 0 {
		l.block = block{begin: now}
	}
	l.block.sum += activity
	l.block.square += activity * activity
	l.block.samples++
	if now.Sub(l.block.begin) < blockTime {
		return
	}
	mean, off := l.block.mean()
	l.block = block{}
	l.measure(now, mean, off)
}

// follow notes who came and who went, and reports whether anybody did.
func (l *levels) follow(now time.Time, clients map[SlotKey]int) (changed bool) {
	for k, j := range l.jobs {
		n, there := clients[k]
		if there && n == j.clients {
			continue
		}
		changed, l.gone = true, true
		delete(l.jobs, k)
		if now.Sub(l.dropped) < settling {
			for other, was := range l.before {
				if o := l.jobs[other]; o != nil {
					o.low = min(max(o.low, was.low), o.high)
					o.guess = min(max(was.guess, o.low), o.high)
				}
			}
		}
	}
	for k, n := range clients {
		if l.jobs[k] == nil {
			changed = true
			l.jobs[k] = &level{since: now, clients: n}
		}
	}
	return changed
}

// measure takes the mean activity of a block.
func (l *levels) measure(now time.Time, mean, off float64) {
	if mean > saturated {
		l.forget()
		return
	}
	step := mean - l.settled
	fresh := l.settlingAt(now)
	switch {
	case !l.known || l.gone && len(fresh) > 0:
		for _, j := range l.jobs { // whoever is new may have all that is not another's
			if fresh[j] || !l.known {
				j.low, j.high, j.guess = 0, 1, unknown
			}
		}
	case math.Abs(step) <= off && !l.gone:
		step = 0
	case len(fresh) == 1:
		for j := range fresh {
			j.low, j.high, j.guess = max(j.low+step-off, 0), max(j.high+step+off, 0), max(j.guess+step, 0)
		}
	case l.gone:
	default:
		l.widen(now, step, off, fresh)
	}
	if step != 0 || !l.known || l.gone {
		l.settled, l.blocks = mean, 0
	}
	l.blocks++
	l.settled += (mean - l.settled) / l.blocks
	l.known, l.gone = true, false
	l.close(l.settled, off)
	for _, j := range l.jobs {
		j.sure = !fresh[j]
	}
}

// settlingAt are the jobs that came less than settling ago.
func (l *levels) settlingAt(now time.Time) map[*level]bool {
	fresh := map[*level]bool{}
	for _, j := range l.jobs {
		if now.Sub(j.since) <= settling {
			fresh[j] = true
		}
	}
	return fresh
}

// widen gives a change to each job that may have made it: to those that settle, or to all.
func (l *levels) widen(now time.Time, step, off float64, fresh map[*level]bool) {
	if step < 0 && len(fresh) == 0 {
		l.before, l.dropped = map[SlotKey]level{}, now
		for k, j := range l.jobs {
			l.before[k] = *j
		}
	}
	var those []*level
	for _, j := range l.jobs {
		if len(fresh) == 0 || fresh[j] {
			those = append(those, j)
		}
	}
	guess(those, step)
	for _, j := range those {
		if step > 0 {
			j.high += step + off
		} else {
			j.low = max(j.low+step-off, 0)
		}
	}
}

// guess gives a change to jobs: a rise to those that have not worked yet, anything else in proportion to what they do.
func guess(jobs []*level, step float64) {
	var sum, idle float64
	for _, j := range jobs {
		sum += j.guess
		if j.high <= working {
			idle++
		}
	}
	for _, j := range jobs {
		switch {
		case step > 0 && idle > 0 && j.high <= working:
			j.guess += step / idle
		case (step < 0 || idle == 0) && sum > 0:
			j.guess += step * j.guess / sum
		}
	}
}

// close narrows the intervals by their sum, which is the device's activity.
func (l *levels) close(mean, off float64) {
	var low, high float64
	for _, j := range l.jobs {
		low, high = low+j.low, high+j.high
	}
	if low > mean+2*off || high < mean-2*off {
		l.forget() // an assumption does not hold
		return
	}
	for _, j := range l.jobs {
		least, most := mean-off-(high-j.high), mean+off-(low-j.low)
		j.high = min(j.high, max(most, j.low))
		j.low = max(j.low, min(least, j.high))
		if j.guess == unknown {
			j.guess = (j.low + j.high) / 2
		}
		j.guess = min(max(j.guess, j.low), j.high)
	}
}

// forget begins again: of nobody is anything known.
func (l *levels) forget() {
	for _, j := range l.jobs {
		j.low, j.high, j.guess, j.sure = 0, 1, unknown, false
	}
	l.known = false
}

// of is the interval of a job within its bounds; not known for one that settles.
func (l *levels) of(k SlotKey, bounds Range) (r Range, ok bool) {
	j := l.jobs[k]
	if j == nil || !j.sure || !l.known {
		return bounds, false
	}
	inside := func(x float64) float64 { return min(max(x, bounds.Lower), bounds.Upper) }
	r = Range{Lower: inside(j.low - noise), Upper: inside(j.high + noise)}
	r.Estimate = inside(j.guess)
	return r, true
}
