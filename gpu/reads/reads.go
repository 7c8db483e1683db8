// Package reads gives reads that the kernel may never answer a deadline. Such a read keeps a thread of this
// process, which no signal frees, so their number is bounded.
//
// Start at Together, and at One, which is a read in it.
package reads

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// ErrHeld says that the kernel does not answer a read of a process. It may hang in exec(2), which closes a file whose
// file system does not answer (FUSE, NFS): other processes' reads of it wait for that, from Linux 6.18.40 and 6.12.97
// on. A process that ends may leave such a file to the last reader of its memory. What the process is, is not known.
var ErrHeld = errors.New("the kernel does not answer, as for a program that hangs in exec(2) or at its end, " +
	"because a file system (FUSE, NFS) does not answer")

const (
	// answerWithin is how long a read may take, nextWithin the same while another one is not answered.
	answerWithin, nextWithin = time.Second, 100 * time.Millisecond
	// MostOfAccount bounds the reads of one account that are not answered, mostHeld those of all. The kernel is not
	// asked for more of that account then, or of any but root.
	MostOfAccount, mostHeld = 16, 256
	// mostAtOnce bounds the reads under way, each of which may become such a one.
	mostAtOnce = 64
	// What is answered late counts, too: in each period an account may have so much of our time, and all may. A busy
	// machine keeps a read for less than late.
	period, ofAccount, ofAll = 30 * time.Second, 2 * time.Second, 10 * time.Second
	late                     = 50 * time.Millisecond
	// longest is how long a read of many steps may take: some millions of files, on a busy machine.
	longest = 30 * time.Second
)

// ErrOwner says that a target has no account of its own.
var ErrOwner = errors.New("nobody's")

// Target is what is read.
type Target interface {
	// String is what all reads of it are known by.
	String() string
	// Account is whose it is. Without one (ErrOwner, ErrHeld) it is read for every account. Another error is that of
	// the read itself.
	Account() (uid uint32, err error)
}

// bounds count the reads that the kernel does not answer, or answers late.
type bounds struct {
	turns chan struct{}
	// some says that there are any: all else is looked at only then.
	some atomic.Bool

	mu   sync.Mutex
	held map[string]held // by the target
	// took is how long accounts let us wait in this period.
	took  map[owner]time.Duration
	since time.Time
}

func newBounds() *bounds {
	return &bounds{turns: make(chan struct{}, mostAtOnce), held: map[string]held{}, took: map[owner]time.Duration{}}
}

// held are the reads of one target.
type held struct {
	owner
	n int
}

// owner is an account, if it is known.
type owner struct {
	uid   uint32
	known bool
}

// root is never refused: nothing of it waits for a user's file system.
var root = owner{0, true}

// ofProcess are the reads of this process: its threads are all callers' together.
var ofProcess = newBounds()

// Conversation is some reads one after the other.
type Conversation struct {
	*bounds
	// at is what is read now, nil between two reads. Steps counts what was answered. Both change under the mutex when
	// a read ends.
	at    atomic.Pointer[Target]
	steps atomic.Int64
	// first and last are when the read and its last step began; only the reader uses them.
	first, last time.Time
	// key is that of a read which is not answered.
	key string
	// abandoned: nobody waits for the rest.
	abandoned atomic.Bool
}

// Together does reads in a goroutine, which outlives the call if the kernel does not answer: what it changes, nobody
// else may use. All else that it waits for has no deadline here.
func Together[T any](do func(*Conversation) (T, error)) (T, error) { return together(ofProcess, do) }

func together[T any](b *bounds, do func(*Conversation) (T, error)) (value T, err error) {
	type answer struct {
		value T
		err   error
	}
	c, answers := &Conversation{bounds: b}, make(chan answer, 1)
	go func() {
		v, err := do(c)
		answers <- answer{v, err}
	}()
	within := answerWithin
	if b.some.Load() {
		within = nextWithin
	}
	timer := time.NewTimer(within)
	defer timer.Stop()
	for last := int64(0); ; timer.Reset(within) {
		select {
		case a := <-answers:
			return a.value, a.err
		case <-timer.C:
		}
		at, steps := c.at.Load(), c.steps.Load()
		if at == nil || steps != last {
			last = steps
			continue
		}
		of, _ := ownerOf(*at) // else it is nobody's
		if c.hold(at, steps, of) {
			c.charge(of, within)
			return value, heldBy(*at, of)
		}
	}
}

// One does a read in a conversation; nil makes one for it. A read that is not answered is not tried again before it has
// come back. A read of several steps calls step before each, and ends with its error.
func One[T any](c *Conversation, at Target, read func(step func() error) (T, error)) (value T, err error) {
	if c == nil {
		return Together(func(c *Conversation) (T, error) { return One(c, at, read) })
	}
	alone, err := c.begin(&at)
	switch {
	case err != nil:
		return value, err
	case !alone: // another goroutine reads in this conversation
		return One(nil, at, read)
	}
	defer c.end()
	return read(c.step)
}

// begin begins a read, unless another one is under way.
func (c *Conversation) begin(at *Target) (alone bool, err error) {
	if err := c.admit(*at); err != nil {
		return false, err
	}
	c.turns <- struct{}{}
	if c.at.CompareAndSwap(nil, at) {
		c.first = time.Now()
		c.last = c.first
		return true, nil
	}
	<-c.turns
	return false, nil
}

// step begins the next step of a read. Its error says that the read ends.
func (c *Conversation) step() error {
	at := *c.at.Load()
	c.steps.Add(1)
	if of, over := c.answeredLate(at); over || c.abandoned.Load() {
		return heldBy(at, of)
	}
	c.last = time.Now()
	return nil
}

// answeredLate counts the time of the last step if it was late, and says whether the account has had too much.
func (c *Conversation) answeredLate(at Target) (of owner, over bool) {
	now := time.Now()
	took := now.Sub(c.last)
	if now.Sub(c.first) >= longest {
		took = ofAccount
	}
	if took < late {
		return of, false
	}
	of, err := ownerOf(at)
	return of, err == nil && c.charge(of, took) || took >= ofAccount
}

// charge counts time of an account.
func (b *bounds) charge(of owner, took time.Duration) (over bool) {
	if of == root || !of.known {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.renew()
	b.took[of] += took
	if over = b.over(of); over {
		b.some.Store(true)
	}
	return over
}

// renew begins a new period if the last one is over.
func (b *bounds) renew() {
	if now := time.Now(); now.Sub(b.since) >= period {
		b.since = now
		clear(b.took)
	}
}

// over says whether an account, or all together, let us wait too long in this period.
func (b *bounds) over(of owner) bool {
	all := time.Duration(0)
	for _, took := range b.took {
		all += took
	}
	return b.took[of] >= ofAccount || all >= ofAll
}

// end ends a read.
func (c *Conversation) end() {
	if !c.abandoned.Load() {
		_, _ = c.answeredLate(*c.at.Load()) // the next read may be refused
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.steps.Add(1)
	c.at.Store(nil)
	if c.key == "" {
		<-c.turns
		return
	}
	if h := c.held[c.key]; h.n > 1 {
		c.held[c.key] = held{h.owner, h.n - 1}
	} else {
		delete(c.held, c.key)
	}
	c.key = ""
}

// hold notes that a read is not answered; false if it is.
func (c *Conversation) hold(at *Target, steps int64, of owner) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.Load() != at || c.steps.Load() != steps {
		return false
	}
	c.abandoned.Store(true)
	c.key = (*at).String()
	c.held[c.key] = held{of, c.held[c.key].n + 1}
	c.some.Store(true)
	<-c.turns
	return true
}

// admit says why a read is not tried.
func (c *Conversation) admit(at Target) error {
	if c.abandoned.Load() {
		return heldBy(at, owner{})
	}
	if !c.some.Load() {
		return nil
	}
	c.mu.Lock()
	c.renew()
	its, is := c.held[at.String()]
	full, by := c.full()
	c.mu.Unlock()
	if is {
		return heldBy(at, its.owner)
	}
	if !full {
		return nil
	}
	of, err := ownerOf(at)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case of == root, !of.known && by[of] < mostHeld:
		return nil
	case of.known && len(c.held) < mostHeld && by[of] < MostOfAccount && !c.over(of):
		return nil
	}
	return heldBy(at, of)
}

// full says whether reads of any account are refused, and how many of each are not answered.
func (b *bounds) full() (full bool, by map[owner]int) {
	by = map[owner]int{}
	for _, h := range b.held {
		by[h.owner] += h.n
		full = full || by[h.owner] >= MostOfAccount
	}
	for of := range b.took {
		full = full || b.over(of)
	}
	b.some.Store(full || len(b.held) > 0)
	return full || len(b.held) >= mostHeld, by
}

// ownerOf is whose a target is; the error is that of a target which is no more.
func ownerOf(at Target) (owner, error) {
	uid, err := at.Account()
	if errors.Is(err, ErrOwner) || errors.Is(err, ErrHeld) {
		return owner{}, nil
	}
	return owner{uid, err == nil}, err
}

func heldBy(at Target, of owner) error {
	if of.known {
		return fmt.Errorf("%s, of uid %d: %w", at, of.uid, ErrHeld)
	}
	return fmt.Errorf("%s: %w", at, ErrHeld)
}
