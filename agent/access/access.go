// Package access keeps who may use which GPU's control daemon: the accounts that
// have access to its pipe directory. Without access to that directory a process
// cannot become an MPS client of the GPU.
//
// Start at List. The daemon gives an account access when it has entered the
// account's first job on a GPU, and Sweep takes it away after the last.
// Stranger finds processes that still compute on a GPU after that: MPS serves
// one account at a time. PipeDirectories changes the real directories.
package access

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// Directories opens and closes a GPU's pipe directory to one account. All calls are
// repeatable.
type Directories interface {
	Admit(u gpu.UUID, uid uint32) error
	Revoke(u gpu.UUID, uid uint32) error
	// Admitted lists who has access to what, whatever plan it is of.
	Admitted() ([]Entry, error)
}

// Entry is one account's access to one GPU's pipe directory.
type Entry struct {
	GPU gpu.UUID
	UID uint32
}

// List is who has access to which pipe directory. Its methods may be called by several
// goroutines at a time, but all except Has by none that holds the job table's lock: they change
// files, and some ask a control daemon.
type List struct {
	directories Directories
	servers     Servers
	// turn is held while access is changed: what a change rests on is looked up after it
	// was taken, so that a job's access is never taken away by a sweep that did not see it.
	turn sync.Mutex

	mu sync.Mutex
	// open are those who have access, left when the last job of an account left a GPU
	// that it had been let into.
	open map[Entry]bool
	left map[Entry]time.Time
	// given counts what Give was asked for.
	given map[gpu.UUID]int
}

// NewList returns an empty list. Read fills it.
func NewList(d Directories, s Servers) *List {
	return &List{directories: d, servers: s, open: map[Entry]bool{}, left: map[Entry]time.Time{},
		given: map[gpu.UUID]int{}}
}

// Give lets an account in, unless it is known to be in. The account's job must be in the
// job table already, so that no sweep takes the access away again.
func (l *List) Give(u gpu.UUID, uid uint32) error {
	l.turn.Lock()
	defer l.turn.Unlock()
	e := Entry{u, uid}
	l.mu.Lock()
	l.given[u]++
	l.mu.Unlock()
	if l.Has(u, uid) {
		return nil
	}
	if err := l.directories.Admit(u, uid); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[e] = true
	return nil
}

// Sweep shuts out who needs no access any more. What fails is tried again the next time.
func (l *List) Sweep(needs func(u gpu.UUID, uid uint32) bool) (err error) {
	l.turn.Lock()
	defer l.turn.Unlock()
	for _, e := range l.all() {
		if needs(e.GPU, e.UID) {
			continue
		}
		if failed := l.directories.Revoke(e.GPU, e.UID); failed != nil {
			err = fmt.Errorf("close the pipe directory of %s to uid %d: %w", e.GPU, e.UID, failed)
			continue
		}
		l.mu.Lock()
		delete(l.open, e)
		l.left[e] = time.Now()
		l.mu.Unlock()
	}
	return err
}

// Reopen gives the accounts of a GPU that should have access theirs back.
func (l *List) Reopen(u gpu.UUID) error {
	l.turn.Lock()
	defer l.turn.Unlock()
	var errs []error
	for _, e := range l.all() {
		if e.GPU != u {
			continue
		}
		if err := l.directories.Admit(u, e.UID); err != nil {
			errs = append(errs, fmt.Errorf("open the pipe directory of %s to uid %d again: %w", u, e.UID, err))
		}
	}
	return errors.Join(errs...)
}

// Read finds, at the start of the agent, who has access. The list has what could be
// read even where it returns an error.
func (l *List) Read() error {
	l.turn.Lock()
	defer l.turn.Unlock()
	open, err := l.directories.Admitted()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range open {
		l.open[e] = true
	}
	return err
}

// Given counts the accounts that were let in since the agent began; -1 if one is in now.
func (l *List) Given(u gpu.UUID) int {
	if slices.ContainsFunc(l.all(), func(e Entry) bool { return e.GPU == u }) {
		return -1
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.given[u]
}

// Has says whether an account has access to a GPU.
func (l *List) Has(u gpu.UUID, uid uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open[Entry{u, uid}]
}

func (l *List) all() []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.open))
}
