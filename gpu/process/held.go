package process

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
	// A read without an answer keeps a thread of this process, which no signal frees. Above so many for one account,
	// or for all, the kernel is not asked about processes of that account, or of any but root's.
	mostOfAccount, mostHeld = 16, 256
	// mostAtOnce bounds the reads under way, each of which may become such a one.
	mostAtOnce = 64
)

// noAccount stands for one that the kernel does not say.
const noAccount = ^uint32(0)

// reads bounds those that the kernel does not answer.
type reads struct {
	turns chan struct{}
	// some says that there are any: all else is looked at only then.
	some atomic.Bool

	mu sync.Mutex
	// held are by the directory of the process in /proc, or by its status there: that is answered in exec(2).
	held map[string]heldReads
}

// heldReads are those of one process.
type heldReads struct {
	uid uint32
	n   int
}

// ofProcess are the reads of this process: its threads are all callers' together.
var ofProcess = reads{turns: make(chan struct{}, mostAtOnce), held: map[string]heldReads{}}

// question is a read under way, of one process or of several in turn.
type question struct {
	reads *reads
	fs    FS
	// status: the status is read, which says whose the process is.
	status bool
	// pid is the process that is read, and steps counts what was answered.
	pid, steps     atomic.Int64
	answered, held bool // guarded by reads.mu
	key            string
}

// answered does a read in a goroutine, which outlives the call if the kernel does not answer. A read that is not
// answered is not tried again before it has come back.
func answered[T any](fs FS, pid int, read func(*question) (T, error)) (T, error) {
	return ask(&question{reads: &ofProcess, fs: fs}, pid, read)
}

// inStatus does the same with a read of the status.
func inStatus[T any](r *reads, fs FS, pid int, read func(path string) (T, error)) (T, error) {
	return ask(&question{reads: r, fs: fs, status: true}, pid, func(*question) (T, error) {
		return read(fs.Path(pid, "status"))
	})
}

// accountOf is the real account of the process that is read.
func (q *question) accountOf(pid int) uint32 {
	if q.status {
		return noAccount
	}
	uids, err := inStatus(q.reads, q.fs, pid, readUIDs)
	if err != nil {
		return noAccount
	}
	return uids.Real
}

// keyOf is what the reads of a process are known by.
func (q *question) keyOf(pid int) string {
	if q.status {
		return q.fs.Path(pid, "status")
	}
	return dirOf(q.fs, pid)
}

// admit says how long the read of a process may take, or why it is not tried.
func (q *question) admit(pid int) (within time.Duration, err error) {
	r := q.reads
	if !r.some.Load() {
		return answerWithin, nil
	}
	all, most, of := 0, 0, map[uint32]int{}
	r.mu.Lock()
	its, is := r.held[q.keyOf(pid)]
	for _, h := range r.held {
		all, of[h.uid] = all+h.n, of[h.uid]+h.n
		most = max(most, of[h.uid])
	}
	r.mu.Unlock()
	switch {
	case is:
		return 0, q.heldBy(pid, its.uid)
	case q.status && of[noAccount] >= mostHeld:
		return 0, q.heldBy(pid, noAccount)
	case q.status || most < mostOfAccount && all < mostHeld:
		return nextWithin, nil
	}
	if uid := q.accountOf(pid); uid != 0 && (all >= mostHeld || of[uid] >= mostOfAccount) {
		return 0, q.heldBy(pid, uid)
	}
	return nextWithin, nil
}

func (q *question) heldBy(pid int, uid uint32) error {
	if uid == noAccount {
		return fmt.Errorf("%s: %w", q.keyOf(pid), ErrHeld)
	}
	return fmt.Errorf("%s, of uid %d: %w", q.keyOf(pid), uid, ErrHeld)
}

// ask does a read and waits for its answer.
func ask[T any](q *question, pid int, read func(*question) (T, error)) (value T, err error) {
	within, err := q.admit(pid)
	if err != nil {
		return value, err
	}
	type answer struct {
		value T
		err   error
	}
	q.pid.Store(int64(pid))
	q.reads.turns <- struct{}{}
	answers := make(chan answer, 1)
	go func() {
		v, err := read(q)
		q.end()
		answers <- answer{v, err}
	}()
	timer := time.NewTimer(within)
	defer timer.Stop()
	for last := int64(0); ; timer.Reset(within) {
		select {
		case a := <-answers:
			<-q.reads.turns
			return a.value, a.err
		case <-timer.C:
		}
		if now := q.steps.Load(); now != last {
			last = now
			continue
		}
		pid := int(q.pid.Load())
		<-q.reads.turns // first: the account takes another one
		uid := q.accountOf(pid)
		if q.hold(pid, uid) {
			return value, q.heldBy(pid, uid)
		}
		a := <-answers
		return a.value, a.err
	}
}

// step says that the kernel has answered so far.
func (q *question) step() { q.steps.Add(1) }

// next goes on to another process.
func (q *question) next(pid int) error {
	_, err := q.admit(pid)
	q.pid.Store(int64(pid))
	q.step()
	return err
}

// hold notes that a read is not answered; false if it is.
func (q *question) hold(pid int, uid uint32) bool {
	r := q.reads
	r.mu.Lock()
	defer r.mu.Unlock()
	if q.answered {
		return false
	}
	q.held, q.key = true, q.keyOf(pid)
	r.held[q.key] = heldReads{uid, r.held[q.key].n + 1}
	r.some.Store(true)
	return true
}

// end notes that a read came back.
func (q *question) end() {
	r := q.reads
	r.mu.Lock()
	defer r.mu.Unlock()
	q.answered = true
	if !q.held {
		return
	}
	if h := r.held[q.key]; h.n > 1 {
		r.held[q.key] = heldReads{h.uid, h.n - 1}
	} else {
		delete(r.held, q.key)
	}
	r.some.Store(len(r.held) > 0)
}
