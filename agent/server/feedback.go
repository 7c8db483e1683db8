package server

import (
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
)

// Feedback is what became of the answers to the startd's programs, by what they
// ask for. What the startd makes of them nobody sees from here. The zero value is ready.
type Feedback struct {
	mu sync.Mutex
	by map[api.Op]handover
}

// handover is the last one of a program: whether it worked, and when one last did.
type handover struct {
	ok bool
	at time.Time
}

// Note takes note of an answer, and whether it was taken.
func (f *Feedback) Note(op api.Op, ok bool, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.by == nil {
		f.by = map[api.Op]handover{}
	}
	h := f.by[op]
	h.ok = ok
	if ok {
		h.at = now
	}
	f.by[op] = h
}

// TookAt is when a program of the startd's last took its answer; zero if never.
func (f *Feedback) TookAt(op api.Op) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.by[op].at
}

// Worst is that of the program which has been without an answer for longest: whether all took
// their last answers, and when it last took one. Asked is false if none ever asked.
func (f *Feedback) Worst() (ok bool, at time.Time, asked bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.by {
		if !asked {
			ok, at, asked = true, h.at, true
		}
		ok = ok && h.ok
		if h.at.Before(at) {
			at = h.at
		}
	}
	return ok, at, asked
}
