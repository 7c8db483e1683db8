package rules

import (
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/usage"
)

// Looks are the times of the samples that the budget watch has judged.
type Looks struct {
	mu sync.Mutex
	// began is when the watch did; zero before.
	began time.Time
	at    map[usage.Device]time.Time
}

// Begin says that the watch looks from now on.
func (l *Looks) Begin(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.began, l.at = now, map[usage.Device]time.Time{}
}

// Note takes a sample that was judged.
func (l *Looks) Note(snap *usage.Snapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range snap.Devices {
		if l.at != nil {
			l.at[snap.Devices[i].Device] = snap.Devices[i].At
		}
	}
}

// Last is the time of the last look at a device, or of the watch's begin; zero
// if the watch has not begun.
func (l *Looks) Last(d usage.Device) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := l.at[d]; at.After(l.began) {
		return at
	}
	return l.began
}
