package deep

import (
	"sync"
	"time"
)

// lookTimeout is how long a look into a cgroup of a job is waited for. A test changes it.
var lookTimeout = 2 * time.Second

var looks = struct {
	mu sync.Mutex
	by map[string]*look
}{by: map[string]*look{}}

// A look that took longer than slow is not repeated for a while: what it found counts for as long.
const (
	slow  = 50 * time.Millisecond
	while = time.Second
)

// look is one that is under way, or was a moment ago. Late: somebody has waited for it in vain.
type look struct {
	done  chan struct{}
	late  bool
	found any
}

// Look returns what find sees in a cgroup of a job, and false if that takes long. The kernel lets a look for
// a name that is not there wait for a lock, which the owner of that directory keeps busy by making and
// removing cgroups. One look for each key is under way, with one thread; others share its result.
func Look[T any](key string, find func() T) (found T, ok bool) {
	looks.mu.Lock()
	l, late := looks.by[key], false
	if l == nil {
		l = &look{done: make(chan struct{})}
		looks.by[key] = l
		go l.run(key, func() any { return find() })
	} else {
		late = l.late
	}
	looks.mu.Unlock()
	select {
	case <-l.done:
		found, ok = l.found.(T)
		return found, ok
	default:
	}
	if late {
		return found, false
	}
	t := time.NewTimer(lookTimeout)
	defer t.Stop()
	select {
	case <-l.done:
		found, ok = l.found.(T)
		return found, ok
	case <-t.C:
		looks.mu.Lock()
		l.late = true
		looks.mu.Unlock()
		return found, false
	}
}

func (l *look) run(key string, find func() any) {
	began := time.Now()
	l.found = find()
	if time.Since(began) > slow {
		defer time.AfterFunc(while, func() { forget(key) })
	} else {
		forget(key)
	}
	close(l.done)
}

func forget(key string) {
	looks.mu.Lock()
	defer looks.mu.Unlock()
	delete(looks.by, key)
}
