package deep

import (
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// List keeps the cgroups of HTCondor's daemons for a while. To find them costs a look at each process of the
// node, of which a job can have very many. Nil keeps nothing. Many goroutines may use it.
type List struct {
	mu    sync.Mutex
	paths []string
	// at is when the look for them began, in ticks since boot.
	at uint64
}

const (
	// ticksPerSecond is USER_HZ, which the kernel counts the start times of processes in.
	ticksPerSecond = 100
	// keptList is for how many ticks a list counts: what a look missed is soon found.
	keptList = 10 * ticksPerSecond
)

// For is the list for a process that began at a time, in ticks since boot. All jobs of a daemon that came since the
// last look are younger than that look, so the last list has all that a process from before it can be in. No lock
// is held during a look: the agent's own looks wait for none of a caller's.
func (l *List) For(began uint64, find func() ([]string, error)) ([]string, error) {
	if l == nil {
		return find()
	}
	var boot unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) // without this clock it is 0, and nothing is kept
	now := uint64(boot.Nano()) / uint64(time.Second/ticksPerSecond)
	l.mu.Lock()
	paths, at := l.paths, l.at
	l.mu.Unlock()
	if began < at && now < at+keptList {
		return paths, nil
	}
	paths, err := find()
	if err == nil {
		l.mu.Lock()
		l.paths, l.at = slices.Clip(paths), now
		l.mu.Unlock()
	}
	return paths, err
}
