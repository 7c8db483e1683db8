// Package reads gives reads that the kernel may never answer a deadline. Such a read keeps a thread of this
// process, which no signal frees, so their number is bounded.
//
// Start at Together, and at One, which is a read in it.
package reads

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// ErrHeld says that the kernel does not answer a read of a process. It may hang in exec(2), which closes a file whose
// file system does not answer (FUSE, NFS): other processes' reads of it wait for that, from Linux 6.18.40 and 6.12.97
// on. A process that ends may leave such a file to the last reader of its memory. What the process is, is not known.
var ErrHeld = errors.New("the kernel does not answer, as for a program that hangs in exec(2) or at its end, " +
	"because a file system (FUSE, NFS) does not answer")

// ErrNotAsked is an ErrHeld of a process that was not tried, because of others. With ErrRefused these are its owner's.
var (
	ErrNotAsked = fmt.Errorf("too many reads: %w", ErrHeld)
	ErrRefused  = fmt.Errorf("its owner has %w", ErrNotAsked)
)

const (
	// answerWithin is how long a step of a read may take.
	answerWithin = time.Second
	// MostAtOnce bounds the reads under way. All of them may get no answer.
	MostAtOnce = 32
	// Above so many reads without an answer of one account, or of all users, no more are tried of that account, or of
	// any user. Root alone may have as many as all users: it meets such a file system only by accident.
	mostOfAccount, mostHeld = 16, 128
	// What is answered late counts, too: in each period an account may have so much of our time, and all users may, and
	// root. A busy machine keeps a read for less than late.
	period, ofAccount, ofAll = 30 * time.Second, 2 * time.Second, 20 * time.Second
	late                     = 50 * time.Millisecond
	// longest is how long a read of many steps may take: some millions of files, on a busy machine.
	longest = 30 * time.Second
)

// Target is what is read.
type Target interface {
	// String is what all reads of it are known by.
	String() string
	// Account says at once whose it is. Its error is that of the read itself.
	Account() (uid uint32, err error)
}

// owner is the account that stands for all of an owner.
type owner uint32

// root has bounds of its own: users cannot have it wait for their file systems.
const root owner = 0

// bounds count the reads that the kernel does not answer, or answers late.
type bounds struct {
	// turns are for reads under way.
	turns chan struct{}
	// group gives accounts to their owners; nil leaves each alone. Trusted are root's.
	group   atomic.Pointer[func(uint32) uint32]
	trusted atomic.Pointer[[]uint32]
	// some says that there are any: all else is looked at only then.
	some atomic.Bool

	mu   sync.Mutex
	held map[string]held // by the target
	// took is how long owners let us wait in this period.
	took  map[owner]time.Duration
	since time.Time
}

// held are the reads of one target.
type held struct {
	owner
	n int
}

func newBounds() *bounds {
	return &bounds{turns: make(chan struct{}, MostAtOnce), held: map[string]held{}, took: map[owner]time.Duration{}}
}

// ofProcess are the reads of this process: its threads are all callers' together.
var ofProcess = newBounds()

// GroupBy has accounts of one owner count together.
func GroupBy(of func(uid uint32) (owner uint32)) { ofProcess.group.Store(&of) }

// Trust has accounts count as root's: HTCondor's daemons act as one, and no job does.
func Trust(uids ...uint32) { ofProcess.trust(uids) }

func (b *bounds) trust(uids []uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []uint32
	if known := b.trusted.Load(); known != nil {
		all = slices.Clone(*known)
	}
	for _, uid := range uids {
		if !slices.Contains(all, uid) {
			all = append(all, uid)
		}
	}
	b.trusted.Store(&all)
}

// OwnerOf is the account that stands for all of its owner.
func OwnerOf(uid uint32) uint32 { return uint32(ofProcess.ownerOf(uid)) }

// Conversation is some reads one after the other.
type Conversation struct {
	*bounds
	// at is the read under way. The mutex guards it.
	at *Reading
	// abandoned: nobody waits for the rest.
	abandoned atomic.Bool
}

// Reading is a read under way.
type Reading struct {
	in     *Conversation
	target Target
	uid    uint32
	// costly is the reader's alone, the conversation's mutex guards the rest. begun is when the read began, last when
	// its last step did.
	costly      bool
	begun, last time.Time
	// held: it is not answered, and counted by this name.
	held string
}

// Together does reads in a goroutine, which outlives the call if the kernel does not answer: what it changes, nobody
// else may use. All else that it waits for has no deadline here.
func Together[T any](do func(*Conversation) (T, error)) (T, error) { return together(ofProcess, do) }

func together[T any](b *bounds, do func(*Conversation) (T, error)) (value T, err error) {
	type answer struct {
		value    T
		err      error
		panicked any
	}
	c, answers := &Conversation{bounds: b}, make(chan answer, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil { // the caller's to handle
				answers <- answer{panicked: fmt.Sprintf("%v\n%s", p, debug.Stack())}
			}
		}()
		v, err := do(c)
		answers <- answer{value: v, err: err}
	}()
	timer := time.NewTimer(answerWithin)
	defer timer.Stop()
	for {
		select {
		case a := <-answers:
			if a.panicked != nil {
				panic(a.panicked)
			}
			return a.value, a.err
		case <-timer.C:
		}
		at, left := c.waits()
		if left <= 0 {
			if of := c.whose(at); c.hold(at, of) {
				return value, doesNotAnswer(at.target, of)
			}
			left = answerWithin
		}
		timer.Reset(left)
	}
}

// waits is the read under way, and how long it may still take.
func (c *Conversation) waits() (at *Reading, left time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at == nil {
		return nil, answerWithin
	}
	return c.at, answerWithin - time.Since(c.at.last)
}

// One does a read in a conversation; nil makes one for it. A read that is not answered is not tried again before it has
// come back.
func One[T any](c *Conversation, target Target, read func(*Reading) (T, error)) (value T, err error) {
	if c == nil {
		return Together(func(c *Conversation) (T, error) { return One(c, target, read) })
	}
	at, err := c.begin(target)
	if err != nil {
		return value, err
	}
	if at == nil { // another goroutine reads in this conversation
		return One(nil, target, read)
	}
	defer c.end(at)
	return read(at)
}

// begin begins a read; nil if another one is under way.
func (c *Conversation) begin(target Target) (*Reading, error) {
	c.turns <- struct{}{}
	uid, err := target.Account()
	at := &Reading{in: c, target: target, uid: uid}
	if err == nil {
		err = c.admit(at) // now: the last one may not have been answered
	}
	if err == nil && c.enter(at) {
		return at, nil
	}
	<-c.turns
	return nil, err
}

func (c *Conversation) enter(at *Reading) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at != nil {
		return false
	}
	at.begun = time.Now()
	at.last, c.at = at.begun, at
	return true
}

// admit says why a read is not tried.
func (c *Conversation) admit(at *Reading) error {
	if c.abandoned.Load() {
		return fmt.Errorf("%s: %w", at.target, ErrNotAsked)
	}
	if !c.some.Load() {
		return nil
	}
	of := c.ownerOf(at.uid)
	c.mu.Lock()
	defer c.mu.Unlock()
	if its, is := c.held[at.target.String()]; is {
		return doesNotAnswer(at.target, its.owner)
	}
	s := c.sum()
	c.full(s) // none may be so any more
	if by, refused := c.refuses(s, of); refused {
		why := ErrNotAsked
		if c.hasOwn(s, of) {
			why = ErrRefused
		}
		return fmt.Errorf("%s is not read, because of uid %d: %w", at.target, by, why)
	}
	return nil
}

// sums are what all owners have together, users without root.
type sums struct {
	held int
	by   map[owner]int
	took time.Duration
	// longest is the user who had most of our time.
	longest owner
}

// sum counts it, in a new period if the last one is over. The caller has the mutex.
func (b *bounds) sum() sums {
	if now := time.Now(); now.Sub(b.since) >= period {
		b.since = now
		clear(b.took)
	}
	s := sums{by: map[owner]int{}}
	for _, h := range b.held {
		if s.by[h.owner] += h.n; h.owner != root {
			s.held += h.n
		}
	}
	most := time.Duration(0)
	for of, took := range b.took {
		if of == root {
			continue
		}
		if s.took += min(took, ofAccount); took > most {
			s.longest, most = of, took
		}
	}
	return s
}

// hasOwn says whether a user has too many reads. The caller has the mutex.
func (b *bounds) hasOwn(s sums, of owner) bool {
	return s.by[of] >= mostOfAccount || b.took[of] >= ofAccount
}

// refuses says whether no read of an owner is tried, and because of whom. The caller has the mutex.
func (b *bounds) refuses(s sums, of owner) (because owner, refused bool) {
	switch {
	case of == root:
		return of, s.by[of] >= mostHeld || b.took[of] >= ofAll
	case b.hasOwn(s, of):
		return of, true
	}
	return s.longest, s.held >= mostHeld || s.took >= ofAll
}

// full notes whether reads of any owner are refused. The caller has the mutex.
func (b *bounds) full(s sums) {
	refused, owners := false, map[owner]bool{1: true} // any user, for what all have together
	for of := range s.by {
		owners[of] = true
	}
	for of := range b.took {
		owners[of] = true
	}
	for of := range owners {
		_, one := b.refuses(s, of)
		refused = refused || one
	}
	b.some.Store(refused || len(b.held) > 0)
}

// Step begins the next step of a read. Its error says that the read ends.
func (at *Reading) Step() error {
	if at.in.answered(at) {
		return fmt.Errorf("%s: %w", at.target, ErrRefused)
	}
	if at.in.abandoned.Load() || at.in.whose(at) != at.in.ownerOf(at.uid) {
		return fmt.Errorf("%s: %w", at.target, ErrNotAsked)
	}
	return nil
}

// Costly has all time of this read count, also where it is answered soon: its owner made it long.
func (at *Reading) Costly() { at.costly = true }

// answered notes that a step was answered, and says whether its owner let us wait too long.
func (c *Conversation) answered(at *Reading) (over bool) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	took := now.Sub(at.last)
	if now.Sub(at.begun) >= longest {
		took, over, at.begun = ofAccount, true, now
	}
	at.last = now
	if at.held != "" || took < late && !at.costly {
		return over
	}
	c.mu.Unlock()
	of := c.whose(at)
	c.mu.Lock()
	at.last = time.Now()
	if of == root && took < answerWithin/2 {
		return over // programs of a busy machine wait beside each other
	}
	return c.charge(of, took) || over
}

// charge counts time of an owner, and says whether it had too much. The caller has the mutex.
func (b *bounds) charge(of owner, took time.Duration) (over bool) {
	b.sum() // first: a new period may have begun
	b.took[of] += took
	s := b.sum()
	b.full(s)
	_, over = b.refuses(s, of)
	return over
}

// end ends a read.
func (c *Conversation) end(at *Reading) {
	c.answered(at) // the next read may be refused
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = nil
	if at.held == "" {
		<-c.turns
		return
	}
	if h := c.held[at.held]; h.n > 1 {
		c.held[at.held] = held{h.owner, h.n - 1}
	} else {
		delete(c.held, at.held)
	}
}

// hold notes that a read is not answered; false if it is.
func (c *Conversation) hold(at *Reading, of owner) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	took := time.Since(at.last)
	if c.at != at || took < answerWithin {
		return false
	}
	c.abandoned.Store(true)
	at.held = at.target.String()
	h := c.held[at.held]
	if h.n > 0 {
		of = h.owner
	}
	c.held[at.held] = held{of, h.n + 1}
	c.some.Store(true)
	c.charge(of, took)
	<-c.turns
	return true
}

// whose is whose a read is. What was root's may be a user's by now: a setuid program gave its account up.
func (c *Conversation) whose(at *Reading) owner {
	of := c.ownerOf(at.uid)
	if of != root {
		return of
	}
	uid, err := at.target.Account()
	if err != nil {
		return of
	}
	return c.ownerOf(uid)
}

// ownerOf is who owns an account.
func (b *bounds) ownerOf(uid uint32) owner {
	if trusted := b.trusted.Load(); trusted != nil && slices.Contains(*trusted, uid) {
		return root
	}
	if group := b.group.Load(); group != nil {
		uid = (*group)(uid)
	}
	return owner(uid)
}

func doesNotAnswer(target Target, of owner) error {
	return fmt.Errorf("%s, of uid %d: %w", target, of, ErrHeld)
}
