package elastic

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// days are jobs that wait without end, over some days with a look each minute. It returns for how many
// looks a GPU was closed to shared jobs, and how many in a row at most.
func days(n int, r Rules, demand func(now time.Time) Demand, gpus func(s State) []GPU) (looks, closed, row int) {
	s, run := New(4, func(int) bool { return false }, at(0)), 0
	for looks = range n * 24 * 60 {
		now := at(60 * looks)
		s = Decide(r, s, Now{At: now, Heard: now, GPUs: gpus(s), Demand: demand(now)})
		run++
		if !slices.ContainsFunc(s.Sides, func(side Side) bool { return side != Shared }) {
			run = 0
		} else {
			closed++
		}
		row = max(row, run)
	}
	return looks + 1, closed, row
}

// TestDrainEnds: a whole job for which GPUs cannot be made free, or that never comes, closes GPUs to
// shared jobs for half of the time at most, whatever numbers of GPUs its user asks for; with one number for a quarter.
func TestDrainEnds(t *testing.T) {
	site := Rules{Max: 4, Patience: time.Minute, Stay: time.Hour, Offer: 5 * time.Minute}
	long := site
	long.Stay = 6 * time.Hour
	for name, c := range map[string]struct {
		rules  Rules
		wants  []int
		busy   []int // GPUs on which a shared job stays
		shared bool  // a shared job waits, too
		row    time.Duration
	}{
		"one shared job stays":               {site, []int{4}, []int{3}, true, time.Hour},
		"one stays, for longer":              {long, []int{4}, []int{3}, true, 6 * time.Hour},
		"one stays, and no other waits":      {site, []int{4}, []int{3}, false, time.Hour},
		"all stay":                           {site, []int{4}, []int{0, 1, 2, 3}, true, 24 * time.Hour},
		"all stay, for all numbers":          {site, []int{4, 3, 2, 1}, []int{0, 1, 2, 3}, true, 24 * time.Hour},
		"one stays, for all numbers":         {site, []int{4, 3, 2, 1}, []int{3}, true, time.Hour},
		"none stays, and no whole job comes": {site, []int{4, 3, 2, 1}, nil, true, 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			gpus := func(s State) []GPU {
				out := make([]GPU, 4)
				for i := range out {
					out[i] = GPU{Ready: true, Shared: slices.Contains(c.busy, i) && s.Sides[i] != Whole}
				}
				return out
			}
			demand := func(now time.Time) Demand {
				d := Demand{Known: true, Shared: c.shared}
				for _, n := range c.wants {
					d.Whole = append(d.Whole, Request{n, now})
				}
				return d
			}
			looks, closed, row := days(30, c.rules, demand, gpus)
			if 2*closed > looks || len(c.wants) == 1 && 4*closed > looks {
				t.Errorf("closed for %d of %d minutes", closed, looks)
			}
			if want := int(c.row / time.Minute); row < want || row > want+5 {
				t.Errorf("closed for %d minutes in a row, want %d", row, want)
			}
		})
	}
}

// TestWholeJobBesideOneThatNeverComes: a request for which GPUs could not be made free, or that did not
// come, delays no other for longer than that takes once.
func TestWholeJobBesideOneThatNeverComes(t *testing.T) {
	r := Rules{Max: 4, Patience: time.Minute, Stay: time.Hour, Offer: 5 * time.Minute}
	for _, busy := range []int{0, 1} { // GPUs on which a shared job stays
		t.Run(fmt.Sprint(busy), func(t *testing.T) {
			s, began := New(4, func(int) bool { return false }, at(0)), 0
			for minute := range 30 * 24 * 60 {
				now := at(60 * minute)
				gpus := slices.Repeat([]GPU{{Ready: true}}, 4)
				gpus[3].Shared = busy > 0
				gpus[0].Whole = began > 0 && minute < began+20
				d := Demand{Known: true, Shared: true, Whole: []Request{{4, now}}}
				if minute%(24*60) == 1200 && s.Vain.Rests(4, now) {
					began = 0
				}
				if began == 0 {
					d.Whole = append(d.Whole, Request{1, now})
				}
				s = Decide(r, s, Now{At: now, Heard: now, GPUs: gpus, Demand: d})
				if began == 0 && s.Open > 0 && s.Least == 1 {
					began = minute
				}
				if began == 0 && minute%(24*60) == 1199 {
					t.Fatalf("a job for one GPU waits for a day: %+v", s)
				}
			}
		})
	}
}

// TestWholeJobShowsThatItComes: a number of GPUs that a whole job took is made free again at once.
func TestWholeJobShowsThatItComes(t *testing.T) {
	for used, want := range []int{0, 0, 2} {
		s := New(2, func(int) bool { return false }, at(0))
		s.Settled, s.Vain = true, s.Vain.Note(2, at(0), time.Hour)
		gpus := []GPU{{Ready: true, Whole: used > 0}, {Ready: true, Whole: used > 1}}
		s = Decide(Rules{Max: 2, Stay: time.Hour}, s, Now{At: at(1), Heard: at(1), GPUs: gpus})
		gpus = []GPU{{Ready: true}, {Ready: true}}
		s = Decide(Rules{Max: 2, Stay: time.Hour}, s, Now{At: at(2), Heard: at(2), GPUs: gpus, Demand: wholeJob(2, at(2))})
		if s = Decide(Rules{Max: 2, Stay: time.Hour}, s, Now{At: at(3), Heard: at(3), GPUs: gpus, Demand: wholeJob(2, at(3))}); s.Target != want {
			t.Errorf("after whole jobs on %d GPUs: target %d, want %d", used, s.Target, want)
		}
	}
}

// TestGPUsOfWholeJobsForDays: they are not given back because one is not ready for a while, nor
// because another one begins to make way.
func TestGPUsOfWholeJobsForDays(t *testing.T) {
	r := Rules{Max: 3, Stay: time.Hour, Offer: 5 * time.Minute}
	s := New(3, func(int) bool { return false }, at(0))
	for minute := range 4 * 24 * 60 {
		now, day, of := at(60*minute), minute/(24*60), minute%(24*60)
		whole := minute > 4
		gpus := []GPU{{Ready: true, Whole: whole}, {Ready: true, Whole: whole}, {Ready: true, Broken: true}}
		gpus[0].Ready = day != 1 || of > 90
		want := 2
		if day == 3 {
			gpus[2] = GPU{Ready: true, Shared: of < 10, Whole: of > 12}
			want = 3
		}
		wants := 1
		if !whole {
			wants = 2
		}
		s = Decide(r, s, Now{At: now, Heard: now, GPUs: gpus, Demand: wholeJob(wants, now)})
		if whole && s.Target < min(want, 2+of) {
			t.Fatalf("minute %d of day %d: %+v", of, day, s)
		}
	}
	for minute := range 10 { // they end, and no other comes
		now := at((4*24*60 + minute) * 60)
		gpus := []GPU{{Ready: true}, {Ready: true}, {Ready: true}}
		s = Decide(r, s, Now{At: now, Heard: now, GPUs: gpus, Demand: wholeJob(1, now)})
	}
	if now := at((4*24*60 + 10) * 60); s.Target != 0 || now.Before(s.Pause) || s.Vain.Rests(1, now.Add(2*time.Hour)) {
		t.Errorf("after the last: %+v", s)
	}
}

// TestStuck: what counts is how long a GPU has stood empty, and how long GPUs have made way in all.
func TestStuck(t *testing.T) {
	hours := func(n int) time.Time { return at(3600 * n) }
	now := hours(100)
	empty, used, shared := GPU{Ready: true}, GPU{Ready: true, Whole: true}, GPU{Ready: true, Shared: true}
	for name, c := range map[string]struct {
		first         GPU
		moved, began  int
		since, target int
		want          bool
	}{
		"empty for an hour":                  {empty, 99, 90, 50, 2, true},
		"empty for less":                     {empty, 100, 90, 50, 2, false},
		"empty before they made way":         {empty, 20, 100, 50, 2, false},
		"empty before one was not ready":     {empty, 20, 10, 100, 2, false},
		"used":                               {used, 20, 90, 50, 2, false},
		"used, and the other stays for long": {used, 20, 76, 50, 2, true},
		"nothing makes way":                  {empty, 20, 20, 20, 0, false},
	} {
		s := State{Sides: []Side{Whole, Leaving}, Moved: []time.Time{hours(c.moved), hours(10)}, Target: c.target,
			Began: hours(c.began), Since: hours(c.since)}
		if got := s.stuck(Rules{Stay: time.Minute}, Now{At: now, GPUs: []GPU{c.first, shared}}); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestDrainThatGrows: a request for more GPUs that comes on the way makes it no longer, and a way that
// begins before the last has ended is a new one.
func TestDrainThatGrows(t *testing.T) {
	r := Rules{Max: 4, Stay: time.Hour}
	gpus := []GPU{{Whole: true}, {Shared: true}, {Shared: true}, {Shared: true}}
	s := New(4, func(i int) bool { return i == 0 }, at(0))
	for hour, wants := range []int{1, 1, 2, 2, 3} {
		now := at(3600 * hour)
		s = Decide(r, s, Now{At: now, Heard: now, GPUs: gpus, Demand: wholeJob(wants, now.Add(1))})
	}
	if s.Target != 4 || !s.Began.Equal(at(0)) {
		t.Errorf("%+v", s)
	}
	now := at(3600 * 24)
	s = Decide(r, s, Now{At: now, Heard: now, GPUs: gpus, Demand: wholeJob(3, now)})
	if s.Target != 0 || s.Settled {
		t.Errorf("after a day: %+v", s)
	}
	s = Decide(r, s, Now{At: now, Heard: now, GPUs: gpus, Demand: wholeJob(2, now)})
	if now = at(3600 * 25); s.Target != 3 || s.stuck(r, Now{At: now, GPUs: gpus}) {
		t.Errorf("the next: %+v", s)
	}
}
