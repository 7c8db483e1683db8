package waiting

import (
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// Room is a shared GPU as a place for a large request.
type Room struct {
	GPU gpu.UUID
	// Open: it takes jobs.
	Open bool
	// Largest is the largest budget there, Free what is left of it.
	Largest, Free gpu.MiB
}

// Reserve chooses the GPU that is closed to requests smaller than the large one that waits,
// none where none waits or no GPU has room for it some day. Fresh: it is another one than
// the last time.
func (q *Queue) Reserve(rooms []Room, now time.Time) (u gpu.UUID, least gpu.MiB, fresh bool) {
	least = q.Large(now)
	q.mu.Lock()
	defer q.mu.Unlock()
	u = choose(least, q.reserved, rooms)
	fresh = u != "" && u != q.reserved
	q.reserved = u
	return u, least, fresh
}

// choose prefers the GPU that is closed to small requests already, else the one that has
// the most VRAM free.
func choose(want gpu.MiB, last gpu.UUID, rooms []Room) (chosen gpu.UUID) {
	most := gpu.MiB(-1)
	for _, r := range rooms {
		switch {
		case want <= 0 || !r.Open || r.Largest < want:
		case r.GPU == last:
			return last
		case r.Free > most:
			chosen, most = r.GPU, r.Free
		}
	}
	return chosen
}
