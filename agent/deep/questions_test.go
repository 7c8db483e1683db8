package deep

import (
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/test/together"
)

// kernel answers when the test lets it: at once for the processes that it does not hold.
type kernel struct {
	hold  chan struct{}
	holds int // PIDs below it

	mu    sync.Mutex
	begun map[int]int
}

func newKernel(holds int) *kernel {
	return &kernel{hold: make(chan struct{}), holds: holds, begun: map[int]int{}}
}

func (k *kernel) ask(p process.ID) int {
	k.mu.Lock()
	k.begun[p.PID]++
	k.mu.Unlock()
	if p.PID < k.holds {
		<-k.hold
	}
	return -p.PID
}

// asked is how often each process was asked about.
func (k *kernel) asked() map[int]int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.begun)
}

func ids(pids ...int) (out []process.ID) {
	for _, pid := range pids {
		out = append(out, process.ID{PID: pid, Started: 1})
	}
	return out
}

// TestQuestions: who asks waits for a fixed time in all, and not for what is answered. Questions of one group keep no
// other group from its answers, however many they are, and have a few threads. Those under way are begun once, and
// are answered later.
func TestQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKernel(100)
		q := NewQuestions(k.ask)
		stuck := ids(1, 2, 3, 4, 5, 6, 7, 8, 9)
		for round := range 3 {
			began := time.Now()
			found := q.Ask(map[string][]process.ID{"a": stuck, "b": ids(100, 101)})(began.Add(time.Second))
			if took := time.Since(began); took != time.Second || len(found) != 2 || found[ids(101)[0]] != -101 {
				t.Fatalf("round %d: %v after %s", round, found, took)
			}
			if asked := k.asked(); len(asked) != mostThreads+2 || asked[1] != 1 || asked[100] != round+1 {
				t.Fatalf("round %d: begun are %v", round, asked)
			}
		}
		close(k.hold)
		began := time.Now()
		found := q.Ask(map[string][]process.ID{"a": stuck})(began.Add(time.Second))
		if len(found) != len(stuck) || time.Since(began) != 0 || found[stuck[8]] != -9 {
			t.Errorf("%v after %s", found, time.Since(began))
		}
		for _, p := range stuck {
			if asked := k.asked(); asked[p.PID] != 1 {
				t.Errorf("begun are %v", asked)
			}
		}
	})
}

// TestQuestionsBesideThoseThatWait: what is asked later is begun beside those that the kernel keeps, while there are
// threads.
func TestQuestionsBesideThoseThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKernel(100)
		q := NewQuestions(k.ask)
		q.Ask(map[string][]process.ID{"a": ids(1, 2, 3)})(time.Now())
		synctest.Wait()
		began := time.Now()
		found := q.Ask(map[string][]process.ID{"a": ids(1, 2, 3, 100)})(began.Add(time.Second))
		if len(found) != 1 || found[ids(100)[0]] != -100 {
			t.Errorf("answered is %v", found)
		}
		close(k.hold)
	})
}

// TestQuestionsAreDropped: what is not asked any more is not begun. What is under way is begun once, also when it is
// asked again after a while. Nothing of all that stays.
func TestQuestionsAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKernel(100)
		q := NewQuestions(k.ask)
		q.Ask(map[string][]process.ID{"a": ids(1, 2, 3, 4, 5, 6)})(time.Now())
		synctest.Wait()
		if got := q.Ask(nil)(time.Now()); len(got) > 0 {
			t.Error(got)
		}
		q.Ask(map[string][]process.ID{"a": ids(1)})(time.Now())
		close(k.hold)
		synctest.Wait()
		if asked := k.asked(); asked[1] != 1 || asked[5]+asked[6] > 0 {
			t.Errorf("begun are %v", asked)
		}
		if q.Ask(nil); len(q.by) > 0 {
			t.Errorf("left behind: %v", q.by)
		}
	})
}

// TestQuestionsTakeTurns: one that is asked again waits behind those that were never begun.
func TestQuestionsTakeTurns(t *testing.T) {
	g := &group[int]{by: map[process.ID]*question[int]{}}
	g.ask(ids(2, 3))
	g.ask(ids(1, 2, 3))
	if !slices.Equal(g.queue, ids(2, 3, 1)) {
		t.Errorf("the order is %v", g.queue)
	}
}

// TestQuestionsTogether: many ask at a time.
func TestQuestionsTogether(t *testing.T) {
	q := NewQuestions(newKernel(0).ask)
	together.Methods(t, q, map[string][]process.ID{"a": ids(1, 2)}, together.Call(func() {
		q.Ask(map[string][]process.ID{"a": ids(1, 3), "b": ids(4)})(time.Now().Add(time.Millisecond))
	}))
}
