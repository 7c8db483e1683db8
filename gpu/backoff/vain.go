package backoff

import (
	"maps"
	"time"
)

// Vain has the requests for which room was kept in vain, by what they ask for. Such a request rests: a
// job that can never start keeps no room without end. It is a value: each step makes the next.
type Vain[K comparable] map[K]rest

type rest struct {
	times int
	until time.Time
}

// forgotten is how long after its rest a request is one like any other.
const forgotten = 7 * 24 * time.Hour

// Rests says that no room is kept for a request now.
func (v Vain[K]) Rests(k K, now time.Time) bool { return now.Before(v[k].until) }

// Note notes that room was kept in vain. The request rests for twice the unit, after the next times for
// four, eight and sixteen times as long.
func (v Vain[K]) Note(k K, now time.Time, unit time.Duration) Vain[K] {
	next := Vain[K]{}
	for k, r := range v {
		if now.Sub(r.until) < forgotten {
			next[k] = r
		}
	}
	times := next[k].times + 1
	next[k] = rest{times, now.Add(Doubling{First: 2 * unit, Longest: 16 * unit}.After(times))}
	return next
}

// Took notes that a job took its room.
func (v Vain[K]) Took(k K) Vain[K] {
	v = maps.Clone(v)
	delete(v, k)
	return v
}
