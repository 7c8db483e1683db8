package mig

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// Reservation keeps instances free of new jobs until an instance for work that
// has waited long can be made in their room. No job is stopped for it.
type Reservation struct {
	GPU gpu.UUID `json:"gpu"`
	// Profile is what the work needs, Place where it will be.
	Profile string    `json:"profile"`
	Place   gpu.Place `json:"place"`
	// Keep are the instances in its room, idle and busy: no new job starts there.
	Keep gpu.Layout `json:"keep"`
	// Since is when it began; Progress is when a job on them last ended.
	Since    time.Time `json:"since"`
	Progress time.Time `json:"progress"`
	// Busy is how many of them are still in use.
	Busy int `json:"busy"`
}

func (v *view) reservation(u gpu.UUID) (Reservation, bool) {
	for _, r := range v.past.Reservations {
		if r.GPU == u {
			return r, true
		}
	}
	return Reservation{}, false
}

// kept are the instances of a GPU that a reservation keeps free.
func (v *view) kept(b board) uint64 {
	r, _ := v.reservation(b.gpu.UUID)
	return b.sets(r.Keep) & b.now
}

// ready tells whether the reserved place can be made now.
func (v *view) ready(b board, r Reservation) bool {
	kept := b.sets(r.Keep) & b.now
	return kept&(b.pinned|v.young(b)) == 0 && v.past.changes(b.gpu.UUID) < v.rules.PerHour
}

// upkeep ends reservations whose reason or hope is gone.
func (v *view) upkeep() {
	if v.rules.Repartition != Auto {
		v.past.Reservations = nil
		return
	}
	var kept []Reservation
	for _, r := range v.past.Reservations {
		i := slices.IndexFunc(v.boards, func(b board) bool { return b.gpu.UUID == r.GPU })
		if i >= 0 {
			r = v.progress(v.boards[i], r)
		}
		switch {
		case v.now.Sub(r.Progress) >= v.rules.ReserveFor:
			v.past.GaveUp = append(slices.Clone(v.past.GaveUp), Changed{r.GPU, v.now})
		case i >= 0 && !v.possible(v.boards[i], r):
		case v.wanted(r.Profile) <= v.idle(r.Profile):
		default:
			kept = append(kept, r)
		}
	}
	v.past.Reservations = kept
}

// progress counts the jobs that are in the way.
func (v *view) progress(b board, r Reservation) Reservation {
	busy := int(count(b.sets(r.Keep) & b.now & b.pinned))
	if busy < r.Busy || r.Progress.After(v.now) {
		r.Progress = v.now
	}
	r.Busy = busy
	return r
}

// possible tells whether the place could be made if no job used what is kept.
func (v *view) possible(b board, r Reservation) bool {
	place, kept := b.one(r.Place), b.sets(r.Keep)
	return place != 0 && b.now&place == 0 && kept&b.foreign() == 0 && b.ls.legal(b.now&^kept|place)
}

// wanted is the number of jobs that wait for a profile.
func (v *view) wanted(profile string) (n int) {
	for _, d := range v.demand {
		if d.Profile == profile {
			n += d.Count
		}
	}
	return n
}

// reserve keeps room for the work that has waited longest, if no instance of its
// kind is there whose job could end.
func (v *view) reserve(steady []Demand) {
	if len(v.past.Reservations) >= v.rules.Reservations {
		return
	}
	var starving []Demand
	for _, d := range steady {
		if d.Count > 0 && v.waited(d) >= v.rules.ReserveAfter && !v.any(d.Profile) && !v.reservedFor(d.Profile) {
			starving = append(starving, d)
		}
	}
	slices.SortStableFunc(starving, func(a, b Demand) int { return cmp.Compare(v.waited(b), v.waited(a)) })
	for _, d := range starving {
		if r, ok := v.room(d.Profile); ok {
			v.past.Reservations = append(slices.Clone(v.past.Reservations), r)
			return
		}
	}
}

func (v *view) reservedFor(profile string) bool {
	return slices.ContainsFunc(v.past.Reservations, func(r Reservation) bool { return r.Profile == profile })
}

// waited is the age of a demand, or how long it has been seen where no age is told.
func (v *view) waited(d Demand) time.Duration {
	if d.Age > 0 {
		return d.Age
	}
	for _, m := range v.past.Missing {
		if m.Profile == d.Profile {
			return v.now.Sub(m.Since)
		}
	}
	return 0
}

// site is a place that could be made, and what is in its way.
type site struct {
	board       int
	place, lost uint64
	jobs        int // instances in use; less is better
}

// room finds where a profile can be made with the fewest jobs in the way.
func (v *view) room(profile string) (Reservation, bool) {
	best, found := site{}, false
	for i, b := range v.boards {
		if _, taken := v.reservation(b.gpu.UUID); taken || v.gaveUp(b.gpu.UUID) {
			continue
		}
		made := v.justMade(b)
		for s := range b.sites(i, profile) {
			if s.lost&made == 0 && (!found || s.jobs < best.jobs) {
				best, found = s, true
			}
		}
	}
	if !found {
		return Reservation{}, false
	}
	b := v.boards[best.board]
	return Reservation{GPU: b.gpu.UUID, Profile: profile, Place: b.ls.layout(best.place)[0], Keep: b.ls.layout(best.lost),
		Since: v.now, Progress: v.now, Busy: best.jobs}, true
}

// justMade are young idle instances of a GPU for whose like work waits: it has not been
// matched yet. Kept free for other work they would serve neither.
func (v *view) justMade(b board) (set uint64) {
	for _, d := range v.demand {
		if _, places, ok := b.profileOn(d.Profile); ok {
			set |= places & v.young(b) &^ b.pinned
		}
	}
	return set
}

func (v *view) gaveUp(u gpu.UUID) bool {
	return slices.ContainsFunc(v.past.GaveUp, func(c Changed) bool { return c.GPU == u })
}

// sites are the layouts with one instance more of the profile, and none else
// more, that leave foreign instances and others of the profile alone.
func (b board) sites(number int, profile string) func(yield func(site) bool) {
	return func(yield func(site) bool) {
		_, places, ok := b.profileOn(profile)
		if !ok {
			return
		}
		stay := b.foreign() | b.now&places
		for _, e := range b.ls.all {
			more := e.set &^ b.now
			if more&places != more || count(more) != 1 || e.set&stay != stay {
				continue
			}
			lost := b.now &^ e.set
			s := site{board: number, place: more, lost: lost, jobs: int(count(lost & b.pinned))}
			if !yield(s) {
				return
			}
		}
	}
}

// describe tells what a reservation waits for.
func (v *view) describe(r Reservation) string {
	for _, b := range v.boards {
		if b.gpu.UUID != r.GPU {
			continue
		}
		text := fmt.Sprintf("%s on GPU %d is for %s, which waited at %s", b.ls.chip.FormatPlace(r.Place), b.gpu.Index,
			r.Profile, r.Since.UTC().Format(time.RFC3339))
		if idle := b.names(b.sets(r.Keep) & b.now &^ b.pinned); len(idle) > 0 {
			text += "; idle, kept free for it: " + strings.Join(idle, ", ")
		}
		for _, in := range b.gpu.Instances {
			if r.Keep.Contains(in.Place) && in.Pinned() {
				text += "; " + b.why(in)
			}
		}
		return text
	}
	return fmt.Sprintf("%s is kept free for %s on %s, which is being changed", r.Profile, r.Profile, r.GPU)
}
