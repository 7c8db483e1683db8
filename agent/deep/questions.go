package deep

import (
	"slices"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/gpu/process"
)

// mostThreads bounds the questions of one group that are under way, each with a thread of its own.
const mostThreads = 4

// Questions ask the kernel one thing about many processes. Before Linux 6.8 a read of /proc/<pid>/cgroup waits for a
// lock, which any job keeps busy by changes of its own cgroups. So each question goes on in the background until
// it is answered, and who asks waits for a fixed time in all.
//
// Those of a group wait for each other, and for no other group: a group is what one job may keep busy, such as its
// GPU. About a process one question is under way, however often it is asked, and each answer is given once.
// Many goroutines may use it.
type Questions[T any] struct {
	find func(process.ID) T

	mu sync.Mutex
	by map[string]*group[T]
}

// group are the questions that have no answer yet, or one that was not given yet.
type group[T any] struct {
	by map[process.ID]*question[T]
	// queue are those that no thread has begun, in the order in which they were asked.
	queue   []process.ID
	threads int
}

type question[T any] struct {
	begun  bool
	done   chan struct{}
	answer T // to be read when done is closed
}

// NewQuestions ask this. Several goroutines call it at a time.
func NewQuestions[T any](find func(process.ID) T) *Questions[T] {
	return &Questions[T]{find: find, by: map[string]*group[T]{}}
}

// Ask begins all questions, by group, and does not wait. What was asked before and is not asked now is dropped, unless
// it is under way. The returned function waits until a time at most. A process without an answer is not in
// what it returns: nothing is known of it yet.
func (q *Questions[T]) Ask(wanted map[string][]process.ID) (answers func(until time.Time) map[process.ID]T) {
	q.begin(wanted)
	return func(until time.Time) map[process.ID]T {
		if len(wanted) == 0 {
			return nil
		}
		return q.answers(wanted, until)
	}
}

func (q *Questions[T]) begin(wanted map[string][]process.ID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for name := range wanted {
		if q.by[name] == nil {
			q.by[name] = &group[T]{by: map[process.ID]*question[T]{}}
		}
	}
	for name, g := range q.by {
		g.ask(wanted[name])
		for range min(mostThreads-g.threads, len(g.queue)) { // those that run already may be kept for long
			g.threads++
			go q.answer(g)
		}
		if len(g.by) == 0 && g.threads == 0 {
			delete(q.by, name)
		}
	}
}

// ask appends what is new to the queue, so that no process waits for one that is asked about again and again.
func (g *group[T]) ask(ids []process.ID) {
	wanted := make(map[process.ID]bool, len(ids))
	for _, id := range ids {
		wanted[id] = true
		if g.by[id] == nil {
			g.by[id] = &question[T]{done: make(chan struct{})}
			g.queue = append(g.queue, id)
		}
	}
	for id, one := range g.by {
		if !wanted[id] && (!one.begun || one.answered()) {
			delete(g.by, id)
		}
	}
	g.queue = slices.DeleteFunc(g.queue, func(id process.ID) bool { return g.by[id] == nil })
}

func (one *question[T]) answered() bool {
	select {
	case <-one.done:
		return true
	default:
		return false
	}
}

// answer goes through the queue of a group. The kernel may keep it at each question.
func (q *Questions[T]) answer(g *group[T]) {
	for {
		q.mu.Lock()
		if len(g.queue) == 0 {
			g.threads--
			q.mu.Unlock()
			return
		}
		id := g.queue[0]
		g.queue = g.queue[1:]
		one := g.by[id]
		one.begun = true
		q.mu.Unlock()
		one.answer = q.find(id)
		close(one.done)
	}
}

// answers waits for what is asked, and gives the answers that are there then.
func (q *Questions[T]) answers(wanted map[string][]process.ID, until time.Time) map[process.ID]T {
	late := time.NewTimer(time.Until(until))
	defer late.Stop()
	isLate, found := false, map[process.ID]T{}
	for name, ids := range wanted {
		for _, id := range ids {
			one := q.of(name, id)
			if one == nil {
				continue // it is asked twice, and given
			}
			if !isLate {
				select {
				case <-one.done:
				case <-late.C:
					isLate = true
				}
			}
			if one.answered() {
				found[id] = one.answer
				q.given(name, id, one)
			}
		}
	}
	return found
}

func (q *Questions[T]) of(name string, id process.ID) *question[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	if g := q.by[name]; g != nil {
		return g.by[id]
	}
	return nil
}

func (q *Questions[T]) given(name string, id process.ID, one *question[T]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if g := q.by[name]; g != nil && g.by[id] == one { // else it was given, and asked again
		delete(g.by, id)
	}
}
