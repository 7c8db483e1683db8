package mig

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// Past is what the policy remembers from one look to the next. It is a value:
// Decide changes no part of what it is given.
type Past struct {
	// Seen is since when each instance has been seen.
	Seen []Seen `json:"seen,omitempty"`
	// Unmet is the demand beyond idle instances at the last looks, the newest last.
	Unmet []Unmet `json:"unmet,omitempty"`
	// Missing is since when there has been such a demand for a profile.
	Missing []Missing `json:"missing,omitempty"`
	// Changed are the changes of the last hour.
	Changed []Changed `json:"changed,omitempty"`
	// Reservations in force.
	Reservations []Reservation `json:"reservations,omitempty"`
	// GaveUp are the reservations that no ended job made room for; the GPU gets none for a while.
	GaveUp []Changed `json:"gave_up,omitempty"`
}

// Seen is when an instance was first seen at its place.
type Seen struct {
	GPU gpu.UUID `json:"gpu"`
	gpu.Place
	Since time.Time `json:"since"`
}

// Unmet is a number of jobs by profile, ordered by name.
type Unmet []Short

// Short is how many instances of a profile are missing.
type Short struct {
	Profile string `json:"profile"`
	Count   int    `json:"count"`
}

// Missing is since when instances of a profile have been missing.
type Missing struct {
	Profile string    `json:"profile"`
	Since   time.Time `json:"since"`
}

// Changed is when something was decided about a GPU.
type Changed struct {
	GPU gpu.UUID  `json:"gpu"`
	At  time.Time `json:"at"`
}

func (u Unmet) of(profile string) int {
	for _, s := range u {
		if s.Profile == profile {
			return s.Count
		}
	}
	return 0
}

func (u Unmet) total() (n int) {
	for _, s := range u {
		n += s.Count
	}
	return n
}

func (u Unmet) names() string {
	var words []string
	for _, s := range u {
		if s.Count > 0 {
			words = append(words, s.Profile)
		}
	}
	return strings.Join(words, ", ")
}

// String is "2 of 1g.5gb, 1 of 3g.20gb".
func (u Unmet) String() string {
	var words []string
	for _, s := range u {
		if s.Count > 0 {
			words = append(words, fmt.Sprintf("%d of %s", s.Count, s.Profile))
		}
	}
	return strings.Join(words, ", ")
}

// less takes away what is being made, down to 0.
func (u Unmet) less(made Unmet) Unmet {
	rest := make(Unmet, len(u))
	for i, s := range u {
		rest[i] = Short{s.Profile, max(0, s.Count-made.of(s.Profile))}
	}
	return rest
}

// observe takes a look into the past.
func (v *view) observe(now Sight) {
	v.past.Seen = v.past.seen(now)
	v.past.Changed = recent(v.past.Changed, now.At, time.Hour)
	v.past.GaveUp = recent(v.past.GaveUp, now.At, v.rules.ReserveFor)
	v.upkeep()
	unmet := v.unmet()
	v.past.Missing = v.past.missing(unmet, now.At)
	v.past.Unmet = append(slices.Clone(v.past.Unmet), unmet)
	v.past.Unmet = v.past.Unmet[max(0, len(v.past.Unmet)-v.rules.Samples):]
}

// seen keeps the times of instances that are still there, and of GPUs that are
// not looked at now. A time ahead of the clock is one from before it was set back.
func (p Past) seen(now Sight) (seen []Seen) {
	looked := map[gpu.UUID]bool{}
	for _, g := range now.GPUs {
		looked[g.UUID] = true
		for _, in := range g.Instances {
			s := Seen{g.UUID, in.Place, now.At}
			for _, old := range p.Seen {
				if old.GPU == s.GPU && old.Place == s.Place && old.Since.Before(now.At) {
					s = old
				}
			}
			seen = append(seen, s)
		}
	}
	for _, old := range p.Seen {
		if !looked[old.GPU] {
			seen = append(seen, old)
		}
	}
	return seen
}

// recent drops what is older; what lies ahead of the clock counts as now.
func recent(all []Changed, now time.Time, age time.Duration) (kept []Changed) {
	for _, c := range all {
		if c.At.After(now) {
			c.At = now
		}
		if now.Sub(c.At) < age {
			kept = append(kept, c)
		}
	}
	return kept
}

// missing is of the demand that idle instances do not serve now, or did not at
// one of the last looks: work that waited long is still the same until it starts.
func (p Past) missing(unmet Unmet, now time.Time) (all []Missing) {
	for _, s := range unmet {
		lately := slices.ContainsFunc(p.Unmet, func(u Unmet) bool { return u.of(s.Profile) > 0 })
		if s.Count == 0 && !lately {
			continue
		}
		m := Missing{s.Profile, now}
		for _, old := range p.Missing {
			if old.Profile == s.Profile && old.Since.Before(now) {
				m = old
			}
		}
		all = append(all, m)
	}
	return all
}

// unmet is the demand that idle instances do not serve, by profile.
func (v *view) unmet() (u Unmet) {
	for _, d := range v.demand {
		i := slices.IndexFunc(u, func(s Short) bool { return s.Profile == d.Profile })
		if i < 0 {
			i, u = len(u), append(u, Short{Profile: d.Profile})
		}
		u[i].Count += d.Count
	}
	for i := range u {
		u[i].Count = max(0, u[i].Count-v.idle(u[i].Profile))
	}
	slices.SortFunc(u, func(a, b Short) int { return strings.Compare(a.Profile, b.Profile) })
	return u
}

func (v *view) newest() Unmet { return v.past.Unmet[len(v.past.Unmet)-1] }

// steady is the demand cut to what idle instances serve and what was missing in
// all the last looks; missing is the sum of the latter.
func (v *view) steady() (ds []Demand, missing int) {
	left := map[string]int{}
	for _, s := range v.newest() {
		n := s.Count
		for _, u := range v.past.Unmet {
			n = min(n, u.of(s.Profile))
		}
		if len(v.past.Unmet) < v.rules.Samples {
			n = 0
		}
		missing += n
		left[s.Profile] = n + v.idle(s.Profile)
	}
	for _, d := range v.demand {
		d.Count = min(d.Count, left[d.Profile])
		left[d.Profile] -= d.Count
		ds = append(ds, d)
	}
	return ds, missing
}

// changed writes a change down; what it makes is not missing any more.
func (v *view) changed(plan Plan, made Unmet) {
	for _, g := range plan.GPUs {
		if len(g.Created)+len(g.Destroyed) == 0 {
			continue
		}
		v.past.Changed = append(slices.Clone(v.past.Changed), Changed{g.GPU, v.now})
		v.past.Reservations = slices.DeleteFunc(slices.Clone(v.past.Reservations), func(r Reservation) bool {
			return r.GPU == g.GPU && g.Layout.Contains(r.Place)
		})
	}
	unmet := make([]Unmet, len(v.past.Unmet))
	for i, u := range v.past.Unmet {
		unmet[i] = u.less(made)
	}
	v.past.Unmet = unmet
}

// number of changes of a GPU in the last hour.
func (p Past) changes(u gpu.UUID) (n int) {
	for _, c := range p.Changed {
		if c.GPU == u {
			n++
		}
	}
	return n
}

// since is when an instance was first seen.
func (p Past) since(u gpu.UUID, at gpu.Place) (t time.Time, ok bool) {
	for _, s := range p.Seen {
		if s.GPU == u && s.Place == at {
			return s.Since, true
		}
	}
	return t, false
}
