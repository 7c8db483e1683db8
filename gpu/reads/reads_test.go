package reads

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// thing is a target of an account, that the kernel answers after a time.
type thing struct {
	name  string
	uid   uint32
	err   error
	takes time.Duration
}

func (t thing) String() string           { return t.name }
func (t thing) Account() (uint32, error) { return t.uid, t.err }

// node is a kernel.
type node struct {
	*bounds
	asked atomic.Int64
}

func newNode() *node { return &node{bounds: newBounds()} }

// read reads something, and says how long that took.
func (n *node) read(at thing) (took time.Duration, err error) {
	begin := time.Now()
	_, err = together(n.bounds, func(c *Conversation) (struct{}, error) {
		return One(c, at, func(func() error) (struct{}, error) {
			n.asked.Add(1)
			time.Sleep(at.takes)
			return struct{}{}, nil
		})
	})
	return time.Since(begin), err
}

func (n *node) held(t *testing.T, at thing, want bool) {
	t.Helper()
	if took, err := n.read(at); errors.Is(err, ErrHeld) != want {
		t.Errorf("%s of %d, after %s: %v", at.name, at.uid, took, err)
	}
}

// none waits until all reads have come back.
func (n *node) none(t *testing.T) {
	t.Helper()
	time.Sleep(2 * time.Hour)
	synctest.Wait()
	if len(n.bounds.held) > 0 || len(n.turns) > 0 {
		t.Errorf("held: %v, %d turns", n.bounds.held, len(n.turns))
	}
}

// TestHeld: a read has a deadline. It is not tried again before it has come back, and others are.
func TestHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		for i, within := range []time.Duration{answerWithin, 0} {
			took, err := n.read(thing{"7", 1000, nil, time.Hour})
			if took != within || !errors.Is(err, ErrHeld) || !strings.HasPrefix(err.Error(), "7, of uid 1000: ") || n.asked.Load() != 1 {
				t.Errorf("%d: after %s, asked %d times: %v", i, took, n.asked.Load(), err)
			}
		}
		n.held(t, thing{"9", 1000, nil, 0}, false)
		n.held(t, thing{"6", 1000, fs.ErrNotExist, time.Hour}, true)
		if took, err := n.read(thing{"8", 1001, nil, time.Hour}); took != nextWithin || !errors.Is(err, ErrHeld) {
			t.Errorf("beside it: after %s: %v", took, err)
		}
		n.none(t)
		n.held(t, thing{"7", 1000, nil, 0}, false)
		if n.some.Load() {
			t.Error("all else is looked at for ever")
		}
	})
}

// TestHeldOfAnAccount: the kernel is not asked for an account that has so many reads without an answer, but for root
// and for what is nobody's.
func TestHeldOfAnAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		for i := range MostOfAccount {
			if i == MostOfAccount/2 {
				time.Sleep(period) // their time counts, too
			}
			n.held(t, thing{fmt.Sprint(i), 1000, nil, time.Hour}, true)
		}
		n.held(t, thing{"other", 1000, nil, 0}, true)
		if n.asked.Load() != MostOfAccount {
			t.Errorf("asked %d times", n.asked.Load())
		}
		time.Sleep(period) // what they took counts no longer, that they wait does
		n.held(t, thing{"other", 1000, nil, 0}, true)
		n.held(t, thing{"other", 1001, nil, 0}, false)
		n.held(t, thing{"other", 0, nil, 0}, false)
		n.held(t, thing{"other", 0, ErrOwner, 0}, false)
		if _, err := n.read(thing{"gone", 0, fs.ErrNotExist, 0}); !errors.Is(err, fs.ErrNotExist) {
			t.Error("what is no more is held:", err)
		}
		n.none(t)
		n.held(t, thing{"other", 1000, nil, 0}, false)
	})
}

// TestHeldOfAll: with so many reads without an answer root's are tried alone.
func TestHeldOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		for i := range mostHeld {
			if i%MostOfAccount == 0 {
				time.Sleep(period)
			}
			n.held(t, thing{fmt.Sprint(i), uint32(1000 + i), nil, time.Hour}, true)
		}
		n.asked.Store(0)
		n.held(t, thing{"other", 1, nil, 0}, true)
		n.held(t, thing{"other", 0, nil, 0}, false)
		n.held(t, thing{"other", 0, ErrOwner, 0}, false)
		if n.asked.Load() != 2 {
			t.Errorf("asked %d times", n.asked.Load())
		}
		n.none(t)
	})
}

// TestHeldOfNobody: what says whose things are is bounded as well.
func TestHeldOfNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		for i := range mostHeld + 1 {
			n.held(t, thing{fmt.Sprint(i), 0, ErrOwner, time.Hour}, true)
		}
		if n.asked.Load() != mostHeld {
			t.Errorf("asked %d times", n.asked.Load())
		}
		n.none(t)
	})
}

// TestLate: an account whose reads are answered late has so much time in each period. All have so much together.
func TestLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		const slow = answerWithin * 9 / 10
		for range 100 {
			n.held(t, thing{"soon", 1000, nil, late / 2}, false)
			n.held(t, thing{"slow", 0, nil, slow}, false)
		}
		for i, want := range []bool{false, false, false, true} {
			if took, err := n.read(thing{"slow", 1000, nil, slow}); errors.Is(err, ErrHeld) != want || want && took > 0 {
				t.Errorf("%d: after %s: %v", i, took, err)
			}
		}
		n.held(t, thing{"other", 1000, nil, 0}, true)
		n.held(t, thing{"other", 1001, nil, 0}, false)
		time.Sleep(period)
		n.held(t, thing{"other", 1000, nil, 0}, false)
		time.Sleep(period)
		for uid := uint32(1); uid < 12; uid++ {
			n.held(t, thing{"slow", 1000 + uid, nil, slow}, false)
		}
		n.held(t, thing{"slow", 1012, nil, slow}, false)
		n.held(t, thing{"other", 1013, nil, 0}, true)
		n.held(t, thing{"other", 0, nil, 0}, false)
		n.none(t)
	})
}

// TestSteps: a read of many steps goes on while each is answered, up to a time in all. One that is late counts.
func TestSteps(t *testing.T) {
	for name, c := range map[string]struct {
		each time.Duration
		want int
	}{
		"soon": {late / 2, int(longest / (late / 2))}, "late": {answerWithin / 2, 4}, "not answered": {2 * answerWithin, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			b, steps := newBounds(), 0
			_, err := together(b, func(c1 *Conversation) (int, error) {
				return One(c1, thing{"7", 1000, nil, 0}, func(step func() error) (int, error) {
					for ; ; steps++ {
						if err := step(); err != nil {
							return 0, err
						}
						time.Sleep(c.each)
					}
				})
			})
			if !errors.Is(err, ErrHeld) {
				t.Errorf("%s: %v", name, err)
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			if steps != c.want || len(b.turns) > 0 || len(b.held) > 0 {
				t.Errorf("%s: %d steps, want %d; %d turns, held %v", name, steps, c.want, len(b.turns), b.held)
			}
		})
	}
}

// TestConversation: reads one after the other have one goroutine. Another one that reads with it has its own, and what
// was abandoned reads no more.
func TestConversation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, after := newNode(), error(nil)
		begin := time.Now()
		_, err := together(n.bounds, func(c *Conversation) (struct{}, error) {
			time.Sleep(time.Minute) // what it does besides has no deadline
			_, _ = One(c, thing{"7", 1000, nil, 0}, func(func() error) (struct{}, error) {
				time.Sleep(time.Hour)
				return struct{}{}, nil
			})
			_, after = One(c, thing{"8", 1000, nil, 0}, func(func() error) (struct{}, error) { return struct{}{}, nil })
			return struct{}{}, nil
		})
		if took := time.Since(begin); !errors.Is(err, ErrHeld) || took > time.Minute+2*answerWithin {
			t.Errorf("after %s: %v", took, err)
		}
		n.none(t)
		if !errors.Is(after, ErrHeld) {
			t.Error("it reads on:", after)
		}
		c, at := &Conversation{bounds: n.bounds}, Target(thing{"9", 1000, nil, 0})
		if alone, err := c.begin(&at); !alone || err != nil {
			t.Error(alone, err)
		}
		if alone, err := c.begin(&at); alone || err != nil {
			t.Error("two read at once:", alone, err)
		}
		c.end()
		n.none(t)
	})
}
