package ending

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu/backoff"
)

// endPause is the least time between two answers to one job: each costs the
// control daemon a conversation, and a job may ask as often as it likes.
const endPause = 200 * time.Millisecond

// turns are the ends of jobs that are asked for.
type turns struct {
	mu sync.Mutex
	by map[starter.Starter]*turn
}

// turn is one job's: free holds its owner, waiting counts the owner too.
type turn struct {
	free    chan struct{}
	last    time.Time
	waiting int
}

// take lets one question of a job's end in at a time, and one wait.
func (t *turns) take(ctx context.Context, s starter.Starter) (release func(), err error) {
	t.mu.Lock()
	mine := t.by[s]
	if mine == nil {
		mine = &turn{free: make(chan struct{}, 1)}
		t.by[s] = mine
	}
	mine.waiting++
	waiting := mine.waiting
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		mine.waiting--
	}
	if waiting > 2 {
		leave()
		return nil, errors.New("the job's end is being asked for already: wait for that answer")
	}
	select {
	case mine.free <- struct{}{}:
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
	_ = backoff.Wait(ctx, endPause-time.Since(mine.last)) // who asked may be gone by then
	return func() {
		mine.last = time.Now()
		<-mine.free
		leave()
	}, nil
}

// forget drops the turns of a job that has ended.
func (t *turns) forget(s starter.Starter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.by, s)
}
