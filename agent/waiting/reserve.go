package waiting

import (
	"slices"
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

// How long a GPU is closed to small requests at most: while it has room for the large one,
// and in all.
const (
	longestRoomy = time.Hour
	longest      = 24 * time.Hour
)

// reservation is the GPU that is closed to requests smaller than least, and what bounds its
// time: a job that no slot fits waits without end.
type reservation struct {
	gpu   gpu.UUID
	least gpu.MiB
	// since is when the GPU closed, or a large job last started there. roomy is from when on
	// it has room for least; zero while it has none.
	since, roomy time.Time
	// free is the VRAM of the GPU that was free at the last look.
	free gpu.MiB
	// served: a large job started there.
	served bool
	// pause is until when no GPU closes.
	pause time.Time
	// failed is when a GPU was last closed to no avail for a size that still waits.
	failed map[gpu.MiB]time.Time
}

// Reserve chooses the GPU that is closed to requests smaller than the large one that waits,
// none where none waits or no GPU has room for it some day. Fresh: it is another one than
// the last time.
//
// The GPU opens when no such request waits any more, when it had room for one for an hour and
// none came, and after a day without one. Then, if no large job started there, no GPU closes
// for as long as this one was closed, and requests of other sizes come first.
func (q *Queue) Reserve(rooms []Room, now time.Time) (u gpu.UUID, least gpu.MiB, fresh bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.known(now) {
		return "", 0, false
	}
	r := &q.reserved
	r.look(rooms, now)
	r.end(q.large, now)
	if r.least == 0 && now.Before(r.pause) {
		return "", 0, false
	}
	if r.least == 0 {
		r.least, r.since = r.next(q.large, rooms), now
	}
	last := r.gpu
	r.gpu = choose(r.least, last, rooms)
	if r.gpu != last {
		r.roomy, r.free = time.Time{}, 0
	}
	return r.gpu, r.least, r.gpu != "" && r.gpu != last
}

// look notes what became of the GPU that is closed.
func (r *reservation) look(rooms []Room, now time.Time) {
	i := slices.IndexFunc(rooms, func(room Room) bool { return room.GPU == r.gpu })
	if i < 0 {
		return
	}
	if rooms[i].Free < r.free { // small requests do not start there
		r.served, r.since, r.roomy = true, now, time.Time{}
	}
	r.free = rooms[i].Free
	switch {
	case r.free < r.least:
		r.roomy = time.Time{}
	case r.roomy.IsZero():
		r.roomy = now
	}
}

// end opens the GPU if its request waits no more or its time is over.
func (r *reservation) end(sizes []gpu.MiB, now time.Time) {
	late := now.Sub(r.since) >= longest || !r.roomy.IsZero() && now.Sub(r.roomy) >= longestRoomy
	if r.least == 0 || !late && slices.Contains(sizes, r.least) {
		return
	}
	next := reservation{pause: r.pause, failed: map[gpu.MiB]time.Time{}}
	for _, size := range sizes {
		next.failed[size] = r.failed[size]
	}
	if late || !r.served {
		next.failed[r.least], next.pause = now, now.Add(now.Sub(r.since))
	}
	*r = next
}

// next is the size that has failed least lately, of those that never did the one that has
// waited longest; 0 where none waits that has room some day.
func (r *reservation) next(sizes []gpu.MiB, rooms []Room) (size gpu.MiB) {
	for _, s := range sizes {
		if choose(s, "", rooms) != "" && (size == 0 || r.failed[s].Before(r.failed[size])) {
			size = s
		}
	}
	return size
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
