package access

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// PipeDirectories opens and closes the pipe directories below Root, each named by its
// GPU's UUID.
type PipeDirectories struct{ Root string }

// Admit lets an account into a GPU's pipe directory; see mps.Admit.
func (d PipeDirectories) Admit(u gpu.UUID, uid uint32) error {
	return d.change(mps.Admit, u, uid)
}

// Revoke shuts an account out. A directory that is gone is no error: with it went
// everybody's access.
func (d PipeDirectories) Revoke(u gpu.UUID, uid uint32) error {
	err := d.change(mps.Revoke, u, uid)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Restrict takes the files in a pipe directory, which the control daemon makes open to
// everybody, from all but the admitted accounts. A directory that is gone has no files.
func (d PipeDirectories) Restrict(u gpu.UUID) error {
	dir, err := mps.PipeDirectory(d.Root, u)
	if err != nil {
		return err
	}
	if err := mps.Restrict(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Admitted lists who has access to what, with the errors of directories that cannot be
// read. It has no entries where Root does not exist.
func (d PipeDirectories) Admitted() ([]Entry, error) {
	entries, err := os.ReadDir(d.Root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	errs := []error{err}
	var all []Entry
	for _, e := range entries {
		u, err := gpu.ParseUUID(e.Name())
		if err != nil {
			continue // no control daemon's
		}
		uids, err := mps.Admitted(filepath.Join(d.Root, e.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, uid := range uids {
			all = append(all, Entry{u, uid})
		}
	}
	return all, errors.Join(errs...)
}

func (d PipeDirectories) change(do func(dir string, uid uint32) error, u gpu.UUID, uid uint32) error {
	dir, err := mps.PipeDirectory(d.Root, u)
	if err != nil {
		return err
	}
	return do(dir, uid)
}
