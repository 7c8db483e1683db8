package mps

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gpuslot/gpuslot/gpu"
	"golang.org/x/sys/unix"
)

// MaxPipeDirectory is how long the path of a pipe directory may be, in bytes:
// at 88 the control daemons of 535, 550 and 555 end without a word, because
// "/control_privileged" no longer fits into a socket address.
const MaxPipeDirectory = 87

// directoryMode lets nobody in but the owner and, through user ACLs, the
// admitted accounts. The group may search: a server that the daemon starts for
// an account keeps group 0.
const directoryMode = 0o750

// PipeDirectory is the pipe directory of a GPU's control daemon below root, an
// absolute path.
func PipeDirectory(root string, u gpu.UUID) (string, error) {
	if !filepath.IsAbs(root) {
		return "", &Error{GPU: u, Fault: Invalid, Text: fmt.Sprintf("the directory %q for pipe directories is not "+
			"absolute: give its full path", root)}
	}
	dir := filepath.Join(root, string(u))
	if len(dir) > MaxPipeDirectory {
		return "", &Error{GPU: u, Fault: PathTooLong, Text: fmt.Sprintf(
			"the pipe directory %s has %d bytes, and MPS takes at most %d: choose a run directory that is %d bytes shorter",
			dir, len(dir), MaxPipeDirectory, len(dir)-MaxPipeDirectory)}
	}
	return dir, nil
}

// Prepare makes the pipe directory with mode 0750, or gives an existing one
// that mode, and proves that files can be made in it. Parents that it makes
// have mode 0755: the accounts must be able to traverse them.
func (d *Daemon) Prepare() error {
	if err := makeDirectory(d.dir); err != nil {
		return d.fault(Unwritable, err, "the pipe directory cannot be used: %v: make it a directory that the agent can "+
			"write to", err)
	}
	return nil
}

func makeDirectory(dir string) error {
	if err := makeParents(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, directoryMode); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	st, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return fmt.Errorf("%s: %w", dir, unix.ENOTDIR)
	}
	if err := os.Chmod(dir, directoryMode); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".write-test-")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// makeParents is os.MkdirAll whose result does not depend on the umask.
func makeParents(dir string) error {
	if st, err := os.Stat(dir); err == nil && st.IsDir() {
		return nil
	}
	if err := makeParents(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		if errors.Is(err, os.ErrExist) {
			return nil // made meanwhile; if it is no directory, the next step says so
		}
		return err
	}
	return os.Chmod(dir, 0o755)
}
