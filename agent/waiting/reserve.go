package waiting

import (
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/backoff"
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
	// since is when the GPU closed, whatever starts there. roomy is from when on it has room for least;
	// zero while it has none.
	since, roomy time.Time
	// free is the VRAM of the GPU that was free at the last look.
	free gpu.MiB
	// served: a large job started there.
	served bool
	// pause is until when no GPU closes.
	pause time.Time
	// vain are the sizes for which a GPU was closed in vain.
	vain backoff.Vain[gpu.MiB]
}

// Reserve chooses the GPU that is closed to requests smaller than the large one that waits,
// none where none waits or no GPU has room for it some day. Fresh: it is another one than
// the last time.
//
// The GPU opens when no such request waits any more, when it had room for one for an hour and
// none came, and after a day. Then no GPU closes for as long as this one was closed, and if no
// large job started there, requests of that size rest for longer.
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
		r.least, r.since = r.next(q.large, rooms, now), now
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
		r.served, r.roomy = true, time.Time{}
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
	closed := now.Sub(r.since)
	if late && !r.served {
		r.vain = r.vain.Note(r.least, now, closed)
	}
	*r = reservation{pause: now.Add(closed), vain: r.vain}
}

// next is the size that has waited longest, of those that do not rest and have room some day; 0
// where there is none.
func (r *reservation) next(sizes []gpu.MiB, rooms []Room, now time.Time) gpu.MiB {
	for _, s := range sizes {
		if choose(s, "", rooms) != "" && !r.vain.Rests(s, now) {
			return s
		}
	}
	return 0
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
