package simulate

import (
	"cmp"
	"math"
	"slices"
)

// negotiate gives slots to the jobs that wait, one after the other.
func (w *world) negotiate() {
	w.cycle = math.Inf(1)
	slices.Sort(w.freed)
	q := &w.queue
	q.begin(w.matching.Order)
	starved := false
	for len(q.heap) > 0 {
		i := q.heap[0].class
		if now := q.turn(i, w.matching.Order); now != q.heap[0] {
			q.heap[0] = now // its owner got slots meanwhile
			q.sink(0)
			continue
		}
		c := q.classes[i]
		at, need := w.search(c)
		if at < 0 {
			starved = true
			q.drop()
			continue
		}
		w.begin(at, q.pop(i), need, w.now)
		if c.count() == 0 {
			q.drop()
		}
	}
	for _, i := range w.freed {
		w.slots[i].freed = false
	}
	w.freed = w.freed[:0]
	w.sums.starving = starved
}

// search finds a slot for the next job of a class; -1 if none has room.
func (w *world) search(c *class) (int32, amount) {
	if c.blocked {
		return w.searchFreed(c)
	}
	for k, i := range c.shapes {
		s := w.shapes[i]
		if !w.follow.admits(i, c) {
			continue
		}
		if j := s.free.find(1, c.needs[k], w.matching.Rank == Spread); j >= 0 {
			return s.slots[j], c.needs[k]
		}
	}
	c.blocked, c.seen = true, len(w.freed)
	return -1, amount{}
}

// searchFreed looks at the slots that have more room than at the last search.
func (w *world) searchFreed(c *class) (int32, amount) {
	for ; c.seen < len(w.freed); c.seen++ {
		i := w.freed[c.seen]
		s := &w.slots[i]
		if k := slices.Index(c.shapes, s.shape); k >= 0 && !s.off && !s.kept && s.free.holds(c.needs[k]) &&
			w.follow.admits(s.shape, c) {
			return i, c.needs[k]
		}
	}
	return -1, amount{}
}

// begin starts a job on a slot. Claimed is when its claim was made.
func (w *world) begin(at int32, j job, takes amount, claimed float64) {
	s := &w.slots[at]
	i := w.spare
	if i >= 0 {
		w.spare = w.runs[i].next
	} else {
		i = int32(len(w.runs))
		w.runs = append(w.runs, run{})
	}
	w.progress(s)
	w.runs[i] = run{job: j, takes: takes, claimed: claimed, began: w.now, left: 1,
		limit: float32(w.shapes[s.shape].limit(takes)), next: s.first}
	s.first = i
	s.jobs++
	s.free = s.free.less(takes)
	w.offer(at)
	w.queue.owners[w.queue.classes[j.class].owner].running++
	w.sums.start(w.now-j.arrival, w.asked(j, takes))
	w.sums.starving = w.sums.starving && w.queue.n > 0
	if j.peak > takes.vram {
		w.sums.over++
	}
	w.tell(Start, j.number, at)
	w.load(at, takes.cpus)
}

// end ends the first job of a slot that is done, and gives its claim to the next
// one of the class or its room back.
func (w *world) end(at int32) {
	s := &w.slots[at]
	w.progress(s)
	i := w.done(s)
	r := w.runs[i]
	s.jobs--
	s.free = s.free.plus(r.takes)
	w.runs[i].next = w.spare
	w.spare = i
	w.queue.owners[w.queue.classes[r.job.class].owner].running--
	w.sums.end(w.now-r.began, w.asked(r.job, r.takes))
	w.tell(End, r.job.number, at)
	c := w.queue.classes[r.job.class]
	if age := w.now - r.claimed; c.count() > 0 && !s.kept && age < w.matching.Worklife.Seconds() &&
		w.follow.admits(s.shape, c) {
		w.nodes[s.node].used -= r.takes.cpus
		w.begin(at, w.queue.pop(r.job.class), r.takes, r.claimed)
		return
	}
	w.offer(at)
	w.release(at)
	w.load(at, -r.takes.cpus)
}

// asked is the VRAM that a job asked for; what it was given if it did not say.
func (w *world) asked(j job, takes amount) float64 {
	return float64(cmp.Or(w.queue.classes[j.class].vram, int64(takes.vram)))
}

// release says that a slot has more room.
func (w *world) release(at int32) {
	if s := &w.slots[at]; !s.freed {
		s.freed = true
		w.freed = append(w.freed, at)
	}
	if w.queue.n > 0 {
		w.wake()
	}
}

// done unlinks the job that has least left; of equals the one that came first.
func (w *world) done(s *slot) int32 {
	best, before, last := int32(-1), int32(-1), int32(-1)
	for i := s.first; i >= 0; i = w.runs[i].next {
		r := &w.runs[i]
		if best < 0 || r.left*w.runs[best].rate < w.runs[best].left*r.rate ||
			r.left*w.runs[best].rate == w.runs[best].left*r.rate && r.job.number < w.runs[best].job.number {
			best, before = i, last
		}
		last = i
	}
	if before < 0 {
		s.first = w.runs[best].next
	} else {
		w.runs[before].next = w.runs[best].next
	}
	return best
}

// progress counts what the jobs of a slot have done since it was last touched.
func (w *world) progress(s *slot) {
	if dt := w.now - s.touched; dt > 0 {
		for i := s.first; i >= 0; i = w.runs[i].next {
			r := &w.runs[i]
			r.left = max(0, r.left-r.rate*dt)
		}
	}
	s.touched = w.now
}

// load changes the CPUs in use on a slot's node. If that changes how fast the
// host's part goes, all slots of the node are told, else only this one.
func (w *world) load(at, cpus int32) {
	n := &w.nodes[w.slots[at].node]
	n.used += cpus
	stretch := w.pool.Model.hostStretch(float64(n.used) / float64(max(1, n.cpus)))
	if stretch == n.stretch {
		w.refresh(at)
		return
	}
	n.stretch = stretch
	for i := n.first; i < n.last; i++ {
		w.refresh(i)
	}
}

// refresh finds how fast the jobs of a slot are now, and when the next one ends.
func (w *world) refresh(at int32) {
	s := &w.slots[at]
	sh := w.shapes[s.shape]
	w.progress(s)
	w.parts = w.parts[:0]
	for i := s.first; i >= 0; i = w.runs[i].next {
		r := &w.runs[i]
		crowdOf := int(s.jobs)
		if sh.kind != shared {
			crowdOf = 1 // neighbours on other whole GPUs are none
		}
		w.parts = append(w.parts, w.pool.Model.partOf(r.job.work(), &sh.hw, crowdOf, float64(r.limit),
			w.nodes[s.node].stretch))
	}
	c := 1.0
	if sh.kind == shared {
		c = w.pool.Model.Case.Contention(w.parts, sh.hw.slicing)
	}
	next, k := math.Inf(1), 0
	var does activity
	for i := s.first; i >= 0; i = w.runs[i].next {
		r, p := &w.runs[i], &w.parts[k]
		k++
		total := max(p.Host+c*p.Kernel, leastSeconds)
		r.rate = 1 / total
		next = min(next, w.now+r.left*total)
		does.add(p, c, total, r, sh, w.nodes[s.node].stretch)
	}
	w.account(s, sh, does)
	if s.first < 0 {
		w.agenda.drop(at)
		return
	}
	w.agenda.set(at, next)
}

// leastSeconds is how long every job takes at least.
const leastSeconds = 1e-3
