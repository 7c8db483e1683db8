package reads

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// thing is a target that the kernel answers after a time.
type thing struct {
	name   string
	uid    uint32
	takes  time.Duration
	costly bool
	err    error
	// now is the account, if it changes.
	now *atomic.Uint32
}

func (t thing) String() string { return t.name }

func (t thing) Account() (uint32, error) {
	if t.now != nil {
		return t.now.Load(), t.err
	}
	return t.uid, t.err
}

// node is a kernel.
type node struct {
	*bounds
	asked atomic.Int64
}

func newNode() *node { return &node{bounds: newBounds()} }

func (n *node) of(uid uint32, name string, takes time.Duration) thing {
	return thing{name: name, uid: uid, takes: takes}
}

// read reads something, and says how long that took.
func (n *node) read(t thing) (took time.Duration, err error) {
	begin := time.Now()
	_, err = together(n.bounds, func(c *Conversation) (struct{}, error) {
		return One(c, t, func(at *Reading) (struct{}, error) {
			n.asked.Add(1)
			time.Sleep(t.takes)
			if t.costly {
				at.Costly()
			}
			return struct{}{}, nil
		})
	})
	return time.Since(begin), err
}

// expect wants a read to be answered, not answered, or not tried.
func (n *node) expect(t *testing.T, target thing, want error) {
	t.Helper()
	took, err := n.read(target)
	got := error(nil)
	switch {
	case errors.Is(err, ErrNotAsked) && errors.Is(err, ErrHeld) && took < answerWithin:
		got = ErrNotAsked
	case errors.Is(err, ErrHeld):
		got = ErrHeld
	}
	if !errors.Is(got, want) || errors.Is(got, ErrNotAsked) != errors.Is(want, ErrNotAsked) || (err == nil) != (want == nil) {
		t.Errorf("%s, after %s: %v, want %v", target, took, err, want)
	}
}

// none waits until all reads have come back.
func (n *node) none(t *testing.T) {
	t.Helper()
	time.Sleep(4 * time.Hour)
	synctest.Wait()
	if len(n.held) > 0 || len(n.turns) > 0 {
		t.Errorf("held: %v, %d turns", n.held, len(n.turns))
	}
}

// TestHeld: a read has a deadline. It is not tried again before it has come back, and others are.
func TestHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		for i, within := range []time.Duration{answerWithin, 0} {
			took, err := n.read(n.of(1000, "7", time.Hour))
			if took != within || !errors.Is(err, ErrHeld) || !strings.HasPrefix(err.Error(), "7, of uid 1000: ") {
				t.Errorf("%d: after %s: %v", i, took, err)
			}
		}
		n.expect(t, n.of(1000, "9", 0), nil)
		n.expect(t, n.of(1000, "8", answerWithin/2), nil)
		n.none(t)
		n.expect(t, n.of(1000, "7", 0), nil)
		if n.some.Load() {
			t.Error("all else is looked at for ever")
		}
	})
}

// TestHeldOfAnAccount: the kernel is not asked for an account that has so many reads without an answer, but for others.
func TestHeldOfAnAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		for i := range mostOfAccount {
			time.Sleep(period) // their time counts, too
			n.expect(t, n.of(1000, fmt.Sprint(i), time.Hour), ErrHeld)
		}
		time.Sleep(period)
		n.expect(t, n.of(1000, "other", 0), ErrNotAsked)
		n.expect(t, n.of(1001, "other", 0), nil)
		n.expect(t, n.of(0, "other", 0), nil)
		gone := n.of(1000, "gone", 0)
		gone.err = fs.ErrNotExist
		if _, err := n.read(gone); !errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrHeld) {
			t.Error("what is no more is held:", err)
		}
		n.none(t)
		n.expect(t, n.of(1000, "other", 0), nil)
	})
}

// TestHeldOfAll: with so many reads without an answer of users root's are tried alone.
func TestHeldOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		for i := range mostHeld {
			if i%8 == 0 {
				time.Sleep(period)
			}
			n.expect(t, n.of(uint32(1000+i), fmt.Sprint(i), time.Hour), ErrHeld)
		}
		time.Sleep(period)
		n.expect(t, n.of(1, "other", 0), ErrNotAsked)
		n.expect(t, n.of(0, "other", 0), nil)
		n.none(t)
	})
}

// TestCostly: all time counts of reads that their owner makes long.
func TestCostly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		long, took := n.of(1000, "long", late/5), time.Duration(0)
		long.costly = true
		for ; took < ofAccount; took += long.takes {
			n.expect(t, long, nil)
		}
		n.expect(t, long, ErrNotAsked)
		n.expect(t, n.of(1000, "other", 0), ErrNotAsked)
		n.expect(t, n.of(1001, "other", 0), nil)
		long.uid = 0
		for range 1000 {
			n.expect(t, long, nil)
		}
		n.none(t)
	})
}

// TestAtOnce: very many callers at once lose few more threads than may be under way, and wait for these alone. Then others
// are answered.
func TestAtOnce(t *testing.T) {
	for name, c := range map[string]func(n *node, i int) thing{
		"one process":    func(n *node, _ int) thing { return n.of(1000, "7", time.Hour) },
		"many processes": func(n *node, i int) thing { return n.of(1000, fmt.Sprint(i), time.Hour) },
		"late answers":   func(n *node, i int) thing { return n.of(1000, fmt.Sprint(i), answerWithin*9/10) },
	} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode()
			var callers sync.WaitGroup
			begin := time.Now()
			for i := range 1000 {
				callers.Go(func() { _, _ = n.read(c(n, i)) })
			}
			callers.Wait()
			n.mu.Lock()
			lost := 0
			for _, h := range n.held {
				lost += h.n
			}
			n.mu.Unlock()
			if took := time.Since(begin); took > 3*answerWithin || lost > 2*MostAtOnce {
				t.Errorf("%s: after %s, %d threads wait", name, took, lost)
			}
			n.expect(t, n.of(1001, "other", 0), nil)
			n.none(t)
		})
	}
}

// TestLate: an account whose reads are answered late has so much time in each period. All have so much together.
func TestLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		const slow = answerWithin * 9 / 10
		for range 22 {
			n.expect(t, n.of(1000, "soon", late/2), nil)
			n.expect(t, n.of(0, "slow", slow), nil)
		}
		n.expect(t, n.of(0, "slow", slow), nil)
		n.expect(t, n.of(0, "other", 0), ErrNotAsked)
		n.expect(t, n.of(1001, "other", 0), nil)
		time.Sleep(period)
		for range 100 {
			n.expect(t, n.of(0, "busy", answerWithin/3), nil)
		}
		time.Sleep(period)
		for _, want := range []error{nil, nil, nil, ErrNotAsked} {
			n.expect(t, n.of(1000, "slow", slow), want)
		}
		n.expect(t, n.of(1000, "other", 0), ErrNotAsked)
		n.expect(t, n.of(1001, "other", 0), nil)
		time.Sleep(period)
		n.expect(t, n.of(1000, "other", 0), nil)
		time.Sleep(period)
		for uid := uint32(1); uid <= 22; uid++ {
			n.expect(t, n.of(1000+uid, "slow", slow), nil)
		}
		n.expect(t, n.of(1030, "slow", slow), nil)
		_, err := n.read(n.of(1031, "other", 0))
		if !errors.Is(err, ErrNotAsked) || errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "other is not read, because of uid 10") {
			t.Error(err)
		}
		n.expect(t, n.of(0, "other", 0), nil)
		n.none(t)
	})
}

// TestOwners: the accounts of one owner count together, and those of HTCondor's daemons as root's.
func TestOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		group := func(uid uint32) uint32 { return uid / 1000 * 1000 }
		n.group.Store(&group)
		for uid := uint32(1000); uid < 1003; uid++ {
			n.expect(t, n.of(uid, "slow", answerWithin*9/10), nil)
		}
		if _, err := n.read(n.of(1003, "other", 0)); !errors.Is(err, ErrRefused) || !errors.Is(err, ErrNotAsked) {
			t.Error(err)
		}
		n.expect(t, n.of(2000, "other", 0), nil)
		n.trust([]uint32{1003, 0})
		n.trust([]uint32{1004, 1003})
		for uid := uint32(1003); uid < 1005; uid++ {
			n.expect(t, n.of(uid, "other", answerWithin/3), nil) // root's
		}
		n.expect(t, n.of(1005, "other", 0), ErrNotAsked)
		for range 10 {
			n.expect(t, n.of(1004, "busy", answerWithin/3), nil)
		}
	})
}

// TestAccountGivenUp: a read of root's that is a user's before its end, as of a setuid program, is the user's, and ends.
func TestAccountGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		for i := range mostOfAccount {
			time.Sleep(period)
			given := n.of(0, fmt.Sprint(i), 0)
			given.now = &atomic.Uint32{}
			_, err := together(n.bounds, func(c *Conversation) (int, error) {
				return One(c, given, func(at *Reading) (int, error) {
					if err := at.Step(); err != nil {
						t.Error(err)
					}
					given.now.Store(1000)
					if err := at.Step(); !errors.Is(err, ErrNotAsked) {
						t.Error(err)
					}
					time.Sleep(time.Hour)
					return 0, nil
				})
			})
			if !errors.Is(err, ErrHeld) || !strings.Contains(err.Error(), "of uid 1000") {
				t.Error(err)
			}
		}
		time.Sleep(period)
		n.expect(t, n.of(1000, "other", 0), ErrNotAsked)
		n.expect(t, n.of(0, "other", 0), nil)
		n.none(t)
	})
}

// TestSteps: a read of many steps goes on while each is answered, up to a time in all, which is its owner's doing. One
// that is late counts.
func TestSteps(t *testing.T) {
	for name, c := range map[string]struct {
		each time.Duration
		want int
	}{
		"soon": {late / 2, int(longest / (late / 2))}, "late": {answerWithin / 2, 4}, "not answered": {2 * answerWithin, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			n, steps := newNode(), 0
			_, err := together(n.bounds, func(talk *Conversation) (int, error) {
				return One(talk, n.of(1000, "7", 0), func(at *Reading) (int, error) {
					for ; ; steps++ {
						if err := at.Step(); err != nil {
							return 0, err
						}
						time.Sleep(c.each)
					}
				})
			})
			if refused := errors.Is(err, ErrRefused); !errors.Is(err, ErrHeld) || refused != (name != "not answered") {
				t.Errorf("%s: %v, because of its owner: %t", name, err, refused)
			}
			if n.none(t); steps != c.want {
				t.Errorf("%s: %d steps, want %d", name, steps, c.want)
			}
		})
	}
}

// TestConversation: what reads do besides has no deadline, and each read has its own. Another goroutine that reads with
// it has a conversation of its own, and what was abandoned reads no more.
func TestConversation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, after := newNode(), error(nil)
		begin := time.Now()
		_, err := together(n.bounds, func(c *Conversation) (struct{}, error) {
			read := func(takes time.Duration) error {
				_, err := One(c, thing{name: "7"}, func(*Reading) (struct{}, error) {
					time.Sleep(takes)
					return struct{}{}, nil
				})
				return err
			}
			time.Sleep(time.Minute + answerWithin/3) // between two looks at it
			for range 100 {
				if err := read(answerWithin / 3); err != nil {
					t.Error(err)
				}
			}
			_ = read(time.Hour)
			after = read(0)
			return struct{}{}, nil
		})
		if took := time.Since(begin); !errors.Is(err, ErrHeld) || took < time.Minute+33*answerWithin || took > time.Minute+36*answerWithin {
			t.Errorf("after %s: %v", took, err)
		}
		n.none(t)
		if !errors.Is(after, ErrHeld) {
			t.Error("it reads on:", after)
		}
		c := &Conversation{bounds: n.bounds}
		at, err := c.begin(thing{name: "9"})
		if at == nil || err != nil {
			t.Fatal(at, err)
		}
		if other, err := c.begin(thing{name: "9"}); other != nil || err != nil {
			t.Error("two read at once:", other, err)
		}
		c.end(at)
		n.none(t)
	})
}

// TestPanic: a panic is the caller's, and leaves nothing behind.
func TestPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		defer func() {
			if p := recover(); !strings.HasPrefix(fmt.Sprint(p), "oops\n") {
				t.Errorf("recovered %v", p)
			}
			n.none(t)
		}()
		_, _ = together(n.bounds, func(c *Conversation) (int, error) {
			return One(c, thing{name: "7"}, func(*Reading) (int, error) { panic("oops") })
		})
	})
}
