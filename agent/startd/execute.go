package startd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"github.com/gpuslot/gpuslot/agent/accounts"

	"github.com/gpuslot/gpuslot/condor"
)

// condorAccount is HTCondor's own, whose the directories of jobs are.
const condorAccount = "condor"

// makeExecute makes the directory of each GPU's startd, below which its jobs
// run: a startd without it offers no disk, and starts nothing (seen on 25.14.1).
// It must not be below the EXECUTE of another, which clears all there. One that
// is there already stays as it is.
func (f Files) makeExecute(ctx context.Context, n condor.Node) error {
	for _, s := range condor.Startds(n)[1:] {
		dir := filepath.Join(n.Execute, s.Name)
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := makeFor(ctx, accounts.LookUp, dir, condorAccount, f.Give); err != nil {
			return fmt.Errorf("the directory of %s's jobs: %w: make it, owned by %s, or set htcondor.execute to a "+
				"directory that gpuslotd may write", s.Daemon(), err, condorAccount)
		}
	}
	return nil
}

// makeFor makes a directory and gives it to an account, if that is allowed. It is
// made only when the account is known.
func makeFor(
	ctx context.Context, look func(context.Context, string) (*user.User, error), dir, account string, give bool,
) error {
	uid, gid := -1, -1 // stay as they are
	if give {
		u, err := look(ctx, account)
		if err != nil {
			return err
		}
		var errU, errG error
		uid, errU = strconv.Atoi(u.Uid)
		gid, errG = strconv.Atoi(u.Gid)
		if err := errors.Join(errU, errG); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := os.Lchown(dir, uid, gid); err != nil {
		return errors.Join(err, os.Remove(dir))
	}
	return nil
}
