package elastic

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// job is one job of the model.
type job struct {
	whole int // GPUs, 0 for a shared job
	// came is when it was submitted, left the ticks that it runs.
	came, left int
	ids        []int
	// transfer is how long it takes from the match to its hook, which asks at the tick
	// prepare; running says that it was let in.
	transfer, prepare int
	running           bool
	// phantom: it waits and matches nothing. Rogue: its slot was matched against START,
	// and the agent has not heard of it.
	phantom, rogue bool
}

// pool is a model of HTCondor and the agent around Decide: the startd acts on what it
// heard last, gives whole jobs the first free GPUs, and hooks come late, since input
// is transferred before them. One tick is a second.
type pool struct {
	rules  Rules
	known  bool
	shares int
	now    int
	state  State
	// heard is what the startd acts on, coming what it was told last, one tick ago.
	heard, coming State
	told          time.Time
	deaf          int // ticks for which the startd hears nothing
	ready         []int
	jobs          []*job // those that wait and run
	// every is how many ticks pass between two counts of what waits, counted the last one.
	every   int
	counted Demand
	// refused counts jobs that were matched and sent back.
	refused int
	// last are the ticks of the last starts, of shared and of whole jobs.
	last map[bool]int
}

func at(tick int) time.Time { return time.Unix(1e9, 0).Add(time.Duration(tick) * time.Second) }

func newPool(r Rules, n, shares int, known bool) *pool {
	s := New(n, func(int) bool { return false }, at(0))
	return &pool{rules: r, known: known, shares: shares, every: 1, state: s, heard: s, coming: s, told: at(0), ready: make([]int, n), last: map[bool]int{}}
}

func (p *pool) gpus() []GPU {
	out := make([]GPU, len(p.state.Sides))
	for _, j := range p.jobs {
		for _, i := range j.ids {
			g := &out[i]
			g.Shared = g.Shared || j.running && j.whole == 0
			g.Whole = g.Whole || j.running && j.whole > 0
			g.Held = g.Held || !j.running && !j.rogue
		}
	}
	for i := range out {
		// The control daemon is stopped, and the mode set, a little later.
		if p.state.Sides[i] != Whole {
			p.ready[i] = p.now + 2
		}
		out[i].Ready = p.now >= p.ready[i]
	}
	return out
}

// demand is what the access points would tell.
func (p *pool) demand() Demand {
	if !p.known {
		return Demand{}
	}
	d := Demand{Known: true}
	jobs := slices.Clone(p.jobs)
	slices.SortStableFunc(jobs, func(a, b *job) int { return a.came - b.came })
	for _, j := range jobs {
		switch {
		case j.ids != nil || time.Duration(p.now-j.came)*time.Second < p.rules.Patience:
		case j.whole == 0:
			d.Shared = true
		case !slices.Contains(d.Whole, Request{j.whole, at(p.now)}):
			d.Whole = append(d.Whole, Request{j.whole, at(p.now)})
		}
	}
	return d
}

// wholeJob is that one whole job waits, which was counted at a time.
func wholeJob(gpus int, counted time.Time) Demand {
	return Demand{Known: true, Whole: []Request{{gpus, counted}}}
}

// tick is one second: the agent decides, the startd hears of it, matches, and hooks ask.
func (p *pool) tick(order []*job) {
	p.now++
	for _, j := range p.jobs {
		if j.running {
			j.left--
		}
	}
	p.jobs = slices.DeleteFunc(p.jobs, func(j *job) bool { return j.running && j.left <= 0 })
	if p.now%p.every == 0 {
		p.counted = p.demand()
	}
	p.state = Decide(p.rules, p.state, Now{At: at(p.now), Heard: p.told, GPUs: p.gpus(), Demand: p.counted})
	for _, j := range order {
		p.match(j)
	}
	for _, j := range p.jobs {
		if j.ids != nil && !j.running && p.now >= j.prepare {
			p.admit(j)
		}
	}
	if p.deaf > 0 {
		p.deaf--
	} else {
		p.heard, p.coming, p.told = p.coming, p.state, at(p.now)
	}
}

// match is the startd's START, with its own knowledge and its own accounts.
func (p *pool) match(j *job) {
	if j.ids != nil || j.phantom {
		return
	}
	j.prepare = p.now + j.transfer
	if j.whole == 0 {
		for i, side := range p.heard.Sides {
			if side == Shared && p.on(i, false) < p.shares {
				j.ids = []int{i}
				return
			}
		}
		return
	}
	used := 0
	var free []int
	for i := range p.heard.Sides {
		if p.on(i, true) > 0 {
			used++
		} else {
			free = append(free, i)
		}
	}
	if used+j.whole <= p.heard.Open && j.whole >= p.heard.Least {
		j.ids = free[:j.whole]
	}
}

// rogue is a match that START did not allow, as with a site's own START.
func (p *pool) rogue(rnd *rand.Rand, j *job) {
	if j.ids == nil {
		j.ids, j.rogue, j.prepare = rnd.Perm(len(p.state.Sides))[:max(1, j.whole)], true, p.now
	}
}

func (p *pool) on(i int, whole bool) int {
	n := 0
	for _, j := range p.jobs {
		if slices.Contains(j.ids, i) && (j.whole > 0) == whole {
			n++
		}
	}
	return n
}

// admit is the hook, which knows what is.
func (p *pool) admit(j *job) {
	gpus := p.gpus()
	for _, i := range j.ids {
		if j.whole == 0 && !p.state.AdmitsShared(i, gpus[i]) || j.whole > 0 && !p.state.AdmitsWhole(i, gpus[i]) {
			p.refused++
			j.ids, j.rogue = nil, false
			return
		}
	}
	j.running = true
	p.last[j.whole > 0] = p.now
}

// check fails if a GPU serves both sides.
func (p *pool) check(t *rapid.T) {
	s := p.state
	for i := range s.Sides {
		var shared, whole int
		for _, j := range p.jobs {
			if j.running && slices.Contains(j.ids, i) {
				if j.whole > 0 {
					whole++
				} else {
					shared++
				}
			}
		}
		if whole > 1 || whole > 0 && shared > 0 {
			t.Fatalf("tick %d: GPU %d runs %d whole and %d shared jobs", p.now, i, whole, shared)
		}
		if whole > 0 && s.Sides[i] != Whole || shared > 0 && s.Sides[i] == Whole {
			t.Fatalf("tick %d: GPU %d is on side %d with %d whole and %d shared jobs", p.now, i, s.Sides[i], whole, shared)
		}
	}
	if s.Open > s.Target || s.Target > p.rules.Max {
		t.Fatalf("tick %d: open %d, target %d of at most %d", p.now, s.Open, s.Target, p.rules.Max)
	}
}

const longestJob = 30

func drawRules(t *rapid.T, n int) Rules {
	seconds := func(name string, least, most int) time.Duration {
		return time.Duration(rapid.IntRange(least, most).Draw(t, name)) * time.Second
	}
	most := rapid.IntRange(1, n).Draw(t, "max")
	return Rules{Max: most, Min: rapid.IntRange(0, most-1).Draw(t, "min"),
		Patience: seconds("patience", 0, 20), Stay: seconds("stay", 1, 40), Offer: seconds("offer", 15, 40)}
}

// stream is a random stream of jobs, from one drawn number.
func stream(t *rapid.T) *rand.Rand { return rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "stream"), 0)) }

func newJob(rnd *rand.Rand, r Rules, now int, whole bool) *job {
	j := &job{came: now, left: 1 + rnd.IntN(longestJob), transfer: rnd.IntN(5)}
	if whole {
		j.whole = 1 + rnd.IntN(r.Max)
	}
	return j
}

// Streams of jobs: no GPU ever serves both sides, hooks refuse nobody while the
// startd hears, and when no more jobs come all have run.
func TestNeverBothAndAllRun(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "n")
		r := drawRules(t, n)
		p := newPool(r, n, rapid.IntRange(1, 3).Draw(t, "shares"), rapid.Bool().Draw(t, "known"))
		p.every = rapid.IntRange(1, 30).Draw(t, "every")
		deaf, wild, rnd := rapid.Bool().Draw(t, "deaf"), rapid.Bool().Draw(t, "wild"), stream(t)
		for range rapid.IntRange(1, 300).Draw(t, "ticks") {
			if rnd.IntN(3) == 0 {
				p.jobs = append(p.jobs, newJob(rnd, r, p.now, rnd.IntN(2) == 0))
			}
			if deaf && rnd.IntN(30) == 0 {
				p.deaf = 1 + rnd.IntN(10)
			}
			if wild && len(p.jobs) > 0 {
				p.rogue(rnd, p.jobs[rnd.IntN(len(p.jobs))])
			}
			order := slices.Clone(p.jobs)
			rnd.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
			p.tick(order)
			p.check(t)
		}
		for range len(p.jobs) * int(r.Stay/time.Second+r.Offer/time.Second+4*longestJob) * 16 {
			if len(p.jobs) == 0 {
				break
			}
			p.tick(slices.Clone(p.jobs))
			p.check(t)
		}
		if len(p.jobs) > 0 {
			t.Fatalf("tick %d: %d jobs never ran, such as one for %d GPUs; %s", p.now, len(p.jobs), p.jobs[0].whole, p.describe())
		}
		if p.refused > 0 && !deaf && !wild {
			t.Fatalf("%d jobs were matched and sent back", p.refused)
		}
	})
}

// Both sides have more jobs than they can ever run: neither waits longer for its next
// start than it takes to give and take back, and the jobs of the other to end.
func TestNeitherSideStarves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "n")
		r := drawRules(t, n)
		p := newPool(r, n, rapid.IntRange(1, 3).Draw(t, "shares"), rapid.Bool().Draw(t, "known"))
		p.every = rapid.IntRange(1, 30).Draw(t, "every")
		rnd := stream(t)
		bound := 2*(int(r.Stay/time.Second)+longestJob+int(r.Patience/time.Second)+p.every) + 40
		for range 1200 {
			for _, whole := range []bool{true, false} {
				for waiting := p.waiting(whole); waiting < 6; waiting++ {
					p.jobs = append(p.jobs, newJob(rnd, r, p.now, whole))
				}
			}
			p.tick(slices.Clone(p.jobs))
			p.check(t)
			for _, whole := range []bool{true, false} {
				if gap := p.now - p.last[whole]; gap > bound {
					t.Fatalf("tick %d: no job started for %d s (whole: %v), more than %d; %s", p.now, gap, whole, bound, p.describe())
				}
			}
		}
		if p.refused > 0 {
			t.Fatalf("%d jobs were matched and sent back", p.refused)
		}
	})
}

// A stream of whole jobs for one GPU each does not keep away the one that wants all.
func TestTheLargestWholeJobRuns(t *testing.T) {
	r := Rules{Max: 3, Patience: 5 * time.Second, Stay: 20 * time.Second, Offer: 20 * time.Second}
	p := newPool(r, 3, 1, true)
	large := &job{whole: 3, left: 5}
	p.jobs = append(p.jobs, large)
	for p.now < 300 && !large.running {
		for p.waiting(true) < 5 {
			p.jobs = append(p.jobs, &job{whole: 1, came: p.now, left: 7 + p.now%11})
		}
		order := slices.Clone(p.jobs)
		slices.Reverse(order)
		p.tick(order)
	}
	if !large.running {
		t.Errorf("it waits; %s", p.describe())
	}
}

// A job that waits and matches nothing gets an offer, then rarer ones.
func TestOffersThatNobodyTakes(t *testing.T) {
	r := Rules{Max: 2, Patience: time.Second, Stay: 10 * time.Second, Offer: 15 * time.Second}
	p := newPool(r, 2, 1, true)
	p.jobs = append(p.jobs, &job{whole: 2, phantom: true})
	var began []int
	open := 0
	for range 800 {
		before := p.state.Target
		p.tick(nil)
		if before == 0 && p.state.Target > 0 {
			began = append(began, p.now)
		}
		if p.state.Open > 0 {
			open++
		}
	}
	for i := 2; i < len(began) && i < 5; i++ {
		if began[i]-began[i-1] <= began[i-1]-began[i-2] {
			t.Errorf("offers at %v do not become rarer", began)
		}
	}
	if len(began) < 4 || open > 800/4 {
		t.Errorf("offers at %v, open for %d of 800 s", began, open)
	}
}

// A GPU in front of the others that takes no jobs takes the whole side with it, and
// gives the shared side the rest.
func TestBrokenGPU(t *testing.T) {
	r := Rules{Max: 3, Stay: time.Second, Offer: time.Minute}
	s := New(3, func(int) bool { return false }, at(0))
	gpus := []GPU{{Ready: true}, {Ready: true}, {Ready: true}}
	step := func(from, ticks int, d Demand) {
		for i := range ticks {
			s = Decide(r, s, Now{At: at(from + i), Heard: at(from + i), GPUs: gpus, Demand: d})
		}
	}
	step(0, 10, wholeJob(3, at(0)))
	if s.Open != 3 {
		t.Fatalf("open %d of 3", s.Open)
	}
	gpus[1].Broken = true
	step(10, 1, wholeJob(3, at(0)))
	if s.Open != 1 || s.Target != 1 {
		t.Errorf("open %d, target %d, although the second takes no jobs", s.Open, s.Target)
	}
	step(11, 10, wholeJob(3, at(0)))
	if want := []Side{Whole, Shared, Shared}; !slices.Equal(s.Sides, want) {
		t.Errorf("sides %v, want %v", s.Sides, want)
	}
}

func (p *pool) waiting(whole bool) int {
	n := 0
	for _, j := range p.jobs {
		if j.ids == nil && (j.whole > 0) == whole {
			n++
		}
	}
	return n
}

func (p *pool) describe() string {
	return fmt.Sprintf("%+v, target %d (%s), open %d, sides %v, settled %v for %s, in vain %v", p.rules, p.state.Target, p.state.Why, p.state.Open,
		p.state.Sides, p.state.Settled, at(p.now).Sub(p.state.Since), p.state.Vain)
}

// A job that was counted before the last whole job started may be that one: no GPU is
// cleared for it again until it is counted once more.
func TestOldCount(t *testing.T) {
	r := Rules{Max: 4, Stay: time.Second, Offer: time.Minute}
	s := New(4, func(int) bool { return false }, at(0))
	gpus := make([]GPU, 4)
	for i := range gpus {
		gpus[i].Ready = true
	}
	step := func(from, ticks int, d Demand) {
		for i := range ticks {
			s = Decide(r, s, Now{At: at(from + i), Heard: at(from + i), GPUs: gpus, Demand: d})
		}
	}
	old := wholeJob(2, at(0))
	step(0, 10, old)
	gpus[0].Whole, gpus[1].Whole = true, true
	step(10, 20, old)
	if s.Target != 2 {
		t.Errorf("target %d after the job for two GPUs has started", s.Target)
	}
	step(30, 1, wholeJob(2, at(29)))
	if s.Target != 4 {
		t.Errorf("target %d although another one is counted", s.Target)
	}
}

// Of whole jobs only that one keeps smaller ones out which has waited longest, and for which GPUs make way.
func TestLeast(t *testing.T) {
	now := at(1000)
	for name, c := range map[string]struct {
		demand Demand
		target int
		want   int
	}{
		"it gets three":            {wholeJob(3, now), 3, 3},
		"it did not come":          {wholeJob(2, now), 2, 1},
		"it gets none yet":         {Demand{Known: true, Whole: []Request{{3, now}}, Shared: true}, 1, 1},
		"none waits":               {Demand{Known: true}, 3, 1},
		"what waits is not known":  {Demand{}, 4, 1},
		"two wait, one in vain":    {Demand{Known: true, Whole: []Request{{2, now}, {3, now}}}, 3, 3},
		"the smaller waits longer": {Demand{Known: true, Whole: []Request{{1, now}, {3, now}}}, 3, 1},
	} {
		s := New(4, func(i int) bool { return i < c.target }, at(0))
		s.Target, s.Open, s.Settled = c.target, c.target, true
		s.Vain = s.Vain.Note(2, now, time.Hour)
		r := Rules{Max: 4, Stay: time.Hour, Offer: time.Hour}
		gpus := slices.Repeat([]GPU{{Ready: true}}, 4)
		s = Decide(r, s, Now{At: now, Heard: now, GPUs: gpus, Demand: c.demand})
		if s.Least != c.want {
			t.Errorf("%s: %d, want %d", name, s.Least, c.want)
		}
	}
}
