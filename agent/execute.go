package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"github.com/gpuslot/gpuslot/condor"
)

// condorAccount is HTCondor's own, whose the directories of jobs are.
const condorAccount = "condor"

// makeExecute makes the directory of each GPU's startd, below which its jobs
// run: a startd without it offers no disk, and starts nothing (seen on 25.14.1).
// It must not be below the EXECUTE of another, which clears all there. One that
// is there already stays as it is.
func (a *Agent) makeExecute(n condor.Node) error {
	for _, s := range condor.Startds(n)[1:] {
		dir := filepath.Join(n.Execute, s.Name)
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := makeFor(dir, condorAccount, a.own == 0); err != nil {
			return fmt.Errorf("the directory of %s's jobs: %w: make it, owned by %s, or set htcondor.execute to a directory that gpuslotd may write", s.Daemon(), err, condorAccount)
		}
	}
	return nil
}

// makeFor makes a directory and gives it to an account, if that is allowed.
func makeFor(dir, account string, give bool) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if !give {
		return nil
	}
	u, err := user.Lookup(account)
	if err != nil {
		return errors.Join(err, os.Remove(dir))
	}
	uid, errU := strconv.Atoi(u.Uid)
	gid, errG := strconv.Atoi(u.Gid)
	if err := errors.Join(errU, errG); err != nil {
		return errors.Join(err, os.Remove(dir))
	}
	return os.Lchown(dir, uid, gid)
}
