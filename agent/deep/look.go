package deep

import (
	"sync"
	"time"
)

// How long a look is waited for since it began, however many wait for it. Brief is for gpuslotd's own
// rounds, which ask again soon.
const (
	Patient = 2 * time.Second
	Brief   = 20 * time.Millisecond
)

var looks = struct {
	mu sync.Mutex
	by map[string]*look
}{by: map[string]*look{}}

// look is one that is under way, or was a moment ago.
type look struct {
	began time.Time
	done  chan struct{}
	found any
}

// Looking is a look of which the result is to be known.
type Looking[T any] struct{ of *look }

// Begin begins a look at what a job made, and does not wait for it. The kernel lets a look for the name of a
// cgroup that is not there wait for a lock, which the owner of that directory keeps busy by making and
// removing cgroups. It needs seconds for a list of mounts that stand on each other. One look for each key is
// under way, with one thread; others share its result. Who needs several looks begins all of them, and then
// waits for each: that takes as long as one.
func Begin[T any](key string, find func() T) Looking[T] { return begin(key, find, kept) }

// Again is Begin, but the kept result of a slow look does not count.
func Again[T any](key string, find func() T) Looking[T] {
	looks.mu.Lock()
	if l := looks.by[key]; l != nil && l.ended() {
		delete(looks.by, key)
	}
	looks.mu.Unlock()
	return Begin(key, find)
}

func begin[T any](key string, find func() T, kept func(took time.Duration) time.Duration) Looking[T] {
	looks.mu.Lock()
	defer looks.mu.Unlock()
	l := looks.by[key]
	if l == nil {
		l = &look{began: time.Now(), done: make(chan struct{})}
		looks.by[key] = l
		go l.run(key, func() any { return find() }, kept)
	}
	return Looking[T]{l}
}

// Known is a look that was not needed.
func Known[T any](found T) Looking[T] {
	l := &look{done: make(chan struct{}), found: found}
	close(l.done)
	return Looking[T]{l}
}

// Within waits for the result until so long after the look began.
func (l Looking[T]) Within(wait time.Duration) (found T, ok bool) {
	t := time.NewTimer(time.Until(l.of.began.Add(wait)))
	defer t.Stop()
	select {
	case <-l.of.done:
	case <-t.C:
		select {
		case <-l.of.done: // both
		default:
			return found, false
		}
	}
	found, ok = l.of.found.(T)
	return found, ok
}

// Hidden says whether the look takes so long that somebody keeps it from its end.
func (l Looking[T]) Hidden() bool { return !l.of.ended() && time.Since(l.of.began) >= Patient }

func (l *look) ended() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// kept is for how long the result of a look counts: a slow one is not repeated for a while.
func kept(took time.Duration) time.Duration {
	const slow = 50 * time.Millisecond
	if took > slow {
		return time.Second
	}
	return 0
}

func (l *look) run(key string, find func() any, kept func(time.Duration) time.Duration) {
	began := time.Now()
	l.found = find()
	if stays := kept(time.Since(began)); stays > 0 {
		defer time.AfterFunc(stays, func() { l.forget(key) })
	} else {
		l.forget(key)
	}
	close(l.done)
}

func (l *look) forget(key string) {
	looks.mu.Lock()
	defer looks.mu.Unlock()
	if looks.by[key] == l {
		delete(looks.by, key)
	}
}
