package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// PipeAccess opens and closes a GPU's pipe directory for one account. All calls are
// repeatable.
type PipeAccess interface {
	Admit(u gpu.UUID, uid uint32) error
	Revoke(u gpu.UUID, uid uint32) error
	// Restrict takes the files in a pipe directory, which the control daemon makes
	// open to everybody, from all but the admitted accounts.
	Restrict(u gpu.UUID) error
	// Admitted lists who has access to what, whatever plan it is of.
	Admitted() ([]access, error)
}

// access is one account's access to one GPU's pipe directory.
type access struct {
	gpu gpu.UUID
	uid uint32
}

// accessList is who has access to which pipe directory. Its methods may be called by several
// goroutines at a time, but by none that holds the job table's lock: they change files.
type accessList struct {
	pipes PipeAccess
	// turn is held while access is changed: what a change rests on is looked up after it
	// was taken, so that a job's access is never taken away by a sweep that did not see it.
	turn sync.Mutex

	mu sync.Mutex
	// open are those who have access, left when the last job of an account left a GPU
	// that it had been let into.
	open map[access]bool
	left map[access]time.Time
}

// give lets an account in, unless it is known to be in. The account's job must be in the
// job table already, so that no sweep takes the access away again.
func (l *accessList) give(u gpu.UUID, uid uint32) error {
	l.turn.Lock()
	defer l.turn.Unlock()
	d := access{u, uid}
	if l.has(d) {
		return nil
	}
	if err := l.pipes.Admit(u, uid); err != nil {
		return err
	}
	l.note(func() { l.open[d] = true })
	return nil
}

// end shuts out who needs no access any more. What fails is tried again the next time.
func (l *accessList) end(needs func(access) bool) (err error) {
	l.turn.Lock()
	defer l.turn.Unlock()
	for _, d := range l.all() {
		if needs(d) {
			continue
		}
		if e := l.pipes.Revoke(d.gpu, d.uid); e != nil {
			err = fmt.Errorf("close the pipe directory of %s to uid %d: %w", d.gpu, d.uid, e)
			continue
		}
		l.note(func() {
			delete(l.open, d)
			l.left[d] = time.Now()
		})
	}
	return err
}

// reopen gives the accounts of a GPU that should have access theirs back.
func (l *accessList) reopen(u gpu.UUID) error {
	l.turn.Lock()
	defer l.turn.Unlock()
	var errs []error
	for _, d := range l.all() {
		if d.gpu != u {
			continue
		}
		if err := l.pipes.Admit(u, d.uid); err != nil {
			errs = append(errs, fmt.Errorf("open the pipe directory of %s to uid %d again: %w", u, d.uid, err))
		}
	}
	return errors.Join(errs...)
}

// read finds, at the start of the agent, who has access.
func (l *accessList) read() error {
	l.turn.Lock()
	defer l.turn.Unlock()
	open, err := l.pipes.Admitted()
	l.note(func() {
		for _, d := range open {
			l.open[d] = true
		}
	})
	return err
}

func (l *accessList) note(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

func (l *accessList) has(d access) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open[d]
}

func (l *accessList) all() []access {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.open))
}

// restrict takes the files of a GPU's control daemon from all but the admitted accounts.
func (l *accessList) restrict(u gpu.UUID) error { return l.pipes.Restrict(u) }

// needs: a slot whose account is not known yet may be anybody's.
func (v *jobView) needs(d access) bool {
	return len(v.unplaced) > 0 || slices.ContainsFunc(v.slots, func(r Running) bool {
		return r.GPU == d.gpu && (!r.Account.Known || r.Account.UID == d.uid)
	})
}

// needs says whether a job in the table needs an access.
func (b *jobTable) needs(d access) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.jobView.needs(d)
}

// pipeDirectories opens and closes the pipe directories below root.
type pipeDirectories struct{ root string }

func (d pipeDirectories) Admit(u gpu.UUID, uid uint32) error {
	return d.change(mps.Admit, u, uid)
}

func (d pipeDirectories) Revoke(u gpu.UUID, uid uint32) error {
	err := d.change(mps.Revoke, u, uid)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the directory is gone, and with it everybody's access
	}
	return err
}

func (d pipeDirectories) Restrict(u gpu.UUID) error {
	dir, err := mps.PipeDirectory(d.root, u)
	if err != nil {
		return err
	}
	if err := mps.Restrict(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil // a directory that is gone has no files
}

func (d pipeDirectories) Admitted() ([]access, error) {
	entries, err := os.ReadDir(d.root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	errs := []error{err}
	var all []access
	for _, e := range entries {
		u, err := gpu.ParseUUID(e.Name())
		if err != nil {
			continue // no control daemon's
		}
		uids, err := mps.Admitted(filepath.Join(d.root, e.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, uid := range uids {
			all = append(all, access{u, uid})
		}
	}
	return all, errors.Join(errs...)
}

func (d pipeDirectories) change(do func(dir string, uid uint32) error, u gpu.UUID, uid uint32) error {
	dir, err := mps.PipeDirectory(d.root, u)
	if err != nil {
		return err
	}
	return do(dir, uid)
}
