package deep

import (
	"slices"
	"sync"

	"github.com/gpuslot/gpuslot/gpu/process"
)

// List keeps the cgroups of HTCondor's daemons for a while. To find them costs a look at each process of the
// node, of which a job can have very many. Nil keeps nothing. Many goroutines may use it.
type List struct {
	mu    sync.Mutex
	paths []string
	// at is when the look for them began, in ticks since boot.
	at uint64
}

// keptList is for how many ticks a list counts: what a look missed is soon found.
const keptList = 10 * process.TicksPerSecond

// For is the list for a process that began at a time, in ticks since boot. All jobs of a daemon that came since the
// last look are younger than that look, so the last list has all that a process from before it can be in. No lock
// is held during a look: the agent's own looks wait for none of a caller's.
func (l *List) For(began uint64, find func() ([]string, error)) ([]string, error) {
	if l == nil {
		return find()
	}
	boot, _ := process.SinceBoot() // where the kernel does not tell it is 0, and nothing is kept
	now := process.Ticks(boot)
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
