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

// Doors opens and closes a GPU's pipe directory for one account. All calls are
// repeatable.
type Doors interface {
	Admit(u gpu.UUID, uid uint32) error
	Revoke(u gpu.UUID, uid uint32) error
	// Admitted lists who has access to what, whatever plan it is of.
	Admitted() ([]door, error)
}

// door is one account's access to one GPU's pipe directory.
type door struct {
	gpu gpu.UUID
	uid uint32
}

// admitAccount opens the pipe directory unless it is known to be open. The
// caller holds mu, so that no revocation comes between.
func (b *books) admitAccount(u gpu.UUID, uid uint32) error {
	d := door{u, uid}
	if b.open[d] {
		return nil
	}
	if err := b.doors.Admit(u, uid); err != nil {
		return err
	}
	b.open[d] = true
	return nil
}

// reopen opens again all doors of a GPU that should be open.
func (b *books) reopen(u gpu.UUID) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs []error
	for d := range b.open {
		if d.gpu != u {
			continue
		}
		if err := b.doors.Admit(u, d.uid); err != nil {
			errs = append(errs, fmt.Errorf("open the pipe directory of %s to uid %d again: %w", u, d.uid, err))
		}
	}
	return errors.Join(errs...)
}

// needs: a slot whose account is not known yet may be anybody's.
func (b *books) needs(d door) bool {
	return len(b.unbooked) > 0 || slices.ContainsFunc(b.slots, func(r Running) bool {
		return r.GPU == d.gpu && (!r.Account.Known || r.Account.UID == d.uid)
	})
}

// doorsOf opens and closes the pipe directories below root.
type doorsOf struct{ root string }

func (d doorsOf) Admit(u gpu.UUID, uid uint32) error {
	return d.change(mps.Admit, u, uid)
}

func (d doorsOf) Revoke(u gpu.UUID, uid uint32) error {
	err := d.change(mps.Revoke, u, uid)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the directory is gone, and with it everybody's access
	}
	return err
}

func (d doorsOf) Admitted() ([]door, error) {
	entries, err := os.ReadDir(d.root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	errs := []error{err}
	var all []door
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
			all = append(all, door{u, uid})
		}
	}
	return all, errors.Join(errs...)
}

func (d doorsOf) change(do func(dir string, uid uint32) error, u gpu.UUID, uid uint32) error {
	dir, err := mps.PipeDirectory(d.root, u)
	if err != nil {
		return err
	}
	return do(dir, uid)
}
