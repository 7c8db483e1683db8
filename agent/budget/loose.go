package budget

import (
	"maps"
	"sync"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/gpu"
)

// loose are the jobs that their limit does not bind.
type loose struct {
	mu sync.Mutex
	// outside are jobs of which the last sample shows a process on the GPU that their limit
	// does not bind.
	outside map[jobs.Key]bool
	// off are running jobs that switched off the controller of their limit; true if they had
	// their limit before.
	off map[jobs.Key]bool
}

// setOutside notes whether the last sample shows a process of a job outside its limit.
func (l *loose) setOutside(key jobs.Key, outside bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if outside {
		l.outside[key] = true
	} else {
		delete(l.outside, key)
	}
}

// isOutside says whether the last sample shows a process of a job outside its limit.
func (l *loose) isOutside(key jobs.Key) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.outside[key]
}

// switchOff notes a job that switched off the controller of its limit; true if that is new.
func (l *loose) switchOff(key jobs.Key, had bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	was, known := l.off[key]
	l.off[key] = had || was
	return !known
}

// isOff says whether a job had its limit and switched off the limit's controller, or never had
// the limit for that.
func (l *loose) isOff(key jobs.Key) (off, never bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	off, known := l.off[key]
	return off, known && !off
}

// keep drops the jobs that have ended.
func (l *loose) keep(running map[jobs.Key]gpu.MiB) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ended := func(key jobs.Key, _ bool) bool {
		_, runs := running[key]
		return !runs
	}
	maps.DeleteFunc(l.off, ended)
	maps.DeleteFunc(l.outside, ended)
}
