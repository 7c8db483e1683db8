// Package room bounds what the callers of the agent's socket cost it at a time, so that those of one
// account keep no place from others, and none from the agent itself.
//
// Start at Room. Turns are the rooms of what is looked up to find out who asks, Owners say which
// accounts are one.
package room

import (
	"errors"
	"sync"
	"time"
)

// How much is looked up at a time for callers of the agent's socket, of all and of one owner. Reads of processes wait
// as long as a job wants (package reads). Before Linux 6.8 one of /proc/<pid>/cgroup waits for a lock that a job keeps
// busy by changes of its own cgroups. All callers have fewer than package reads does at a time: gpuslotd's own never
// wait for callers'. A deep look opens up to many cgroups of each slot.
const (
	mostReads      = 24
	mostReadsOfOne = 4
	readsWait      = 2 * time.Second
	mostDeep       = 4
	mostDeepOfOne  = 1
)

// ErrBusy refuses a caller while too much is looked up for its owner, or for all.
var ErrBusy = errors.New("gpuslotd looks up too many callers at this time: ask again")

// Turns bound what is looked up for callers, except for root and the agent's own account.
type Turns struct{ Reads, Deep *Room }

// NewTurns are those of one socket.
func NewTurns(owners *Owners) *Turns {
	return &Turns{
		Reads: New(owners, mostReadsOfOne, mostReads, readsWait), Deep: New(owners, mostDeepOfOne, mostDeep, 0),
	}
}

// Room has places for each owner, and some for all together.
type Room struct {
	owners *Owners
	each   int
	all    chan struct{}
	// wait is how long a place is waited for.
	wait time.Duration

	mu sync.Mutex
	of map[uint64]*places
}

// places are those of one Part, in which some have one or wait for one.
type places struct {
	taken   chan struct{}
	callers int
}

// New has places for each owner and for all, and lets callers wait for one.
func New(owners *Owners, each, all int, wait time.Duration) *Room {
	return &Room{owners: owners, each: each, all: make(chan struct{}, all), wait: wait, of: map[uint64]*places{}}
}

// Enter takes a place until leave is called; the error is ErrBusy. A room that is nil has places without end.
func (r *Room) Enter(uid uint32) (leave func(), err error) {
	if r == nil {
		return func() {}, nil
	}
	owner := r.owners.Of(uid)
	parts := Parts(owner, owner, r.each, cap(r.all))
	queues := append(r.queue(parts), r.all)
	late := time.NewTimer(r.wait)
	defer late.Stop()
	for i, q := range queues {
		if !take(q, late.C) {
			r.leave(parts, queues[:i])
			return nil, ErrBusy
		}
	}
	return func() { r.leave(parts, queues) }, nil
}

// leave gives the places back that a caller has, and forgets the parts that have no other caller.
func (r *Room) leave(parts []Part, has []chan struct{}) {
	for _, q := range has {
		<-q
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range parts {
		if r.of[p.Key].callers--; r.of[p.Key].callers == 0 {
			delete(r.of, p.Key)
		}
	}
}

// take takes a place, if one is free or becomes free in time.
func take(places chan<- struct{}, late <-chan time.Time) bool {
	select {
	case places <- struct{}{}:
		return true
	default:
	}
	select {
	case places <- struct{}{}:
		return true
	case <-late:
		return false
	}
}

// queue counts a caller in its parts until it leaves.
func (r *Room) queue(parts []Part) (queues []chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range parts {
		its := r.of[p.Key]
		if its == nil {
			its = &places{taken: make(chan struct{}, p.Most)}
			r.of[p.Key] = its
		}
		its.callers++
		queues = append(queues, its.taken)
	}
	return queues
}
