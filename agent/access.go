package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// PipeAccess opens and closes a GPU's pipe directory for one account. All calls are
// repeatable.
type PipeAccess interface {
	Admit(u gpu.UUID, uid uint32) error
	Revoke(u gpu.UUID, uid uint32) error
	// Admitted lists who has access to what, whatever plan it is of.
	Admitted() ([]access, error)
}

// access is one account's access to one GPU's pipe directory.
type access struct {
	gpu gpu.UUID
	uid uint32
}

// openAccess opens the pipe directory unless it is known to be open. The
// caller holds mu, so that no revocation comes between.
func (v *jobView) openAccess(u gpu.UUID, uid uint32) error {
	d := access{u, uid}
	if v.open[d] {
		return nil
	}
	if err := v.pipes.Admit(u, uid); err != nil {
		return err
	}
	v.open[d] = true
	return nil
}

// reopen gives the accounts of a GPU that should have access theirs back.
func (b *jobTable) reopen(u gpu.UUID) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs []error
	for d := range b.open {
		if d.gpu != u {
			continue
		}
		if err := b.pipes.Admit(u, d.uid); err != nil {
			errs = append(errs, fmt.Errorf("open the pipe directory of %s to uid %d again: %w", u, d.uid, err))
		}
	}
	return errors.Join(errs...)
}

// needs: a slot whose account is not known yet may be anybody's.
func (v *jobView) needs(d access) bool {
	return len(v.unplaced) > 0 || slices.ContainsFunc(v.slots, func(r Running) bool {
		return r.GPU == d.gpu && (!r.Account.Known || r.Account.UID == d.uid)
	})
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
