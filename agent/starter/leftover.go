package starter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/condor/cgroup"
	"github.com/gpuslot/gpuslot/gpu/backoff"
)

// removeEvery is how long what a job left may stay.
const removeEvery = 30 * time.Second

// Leftovers are the cgroups that ended jobs left.
type Leftovers struct {
	Node
	Log *slog.Logger
}

// Run removes them until the context ends, where it may.
func (n Leftovers) Run(ctx context.Context, may func() bool) {
	for ctx.Err() == nil {
		if n.Own == 0 && may() { // other accounts change no cgroups of HTCondor's
			removed, err := n.Remove(ctx)
			if len(removed) > 0 {
				n.Log.Warn("jobs left cgroups that HTCondor did not remove; gpuslotd has removed them",
					"slices", removed)
			}
			if err != nil {
				n.Log.Error("cgroups that jobs left stay, and their slots may start no job", "err", err)
			}
		}
		_ = backoff.Wait(ctx, removeEvery) // the loop looks at the context itself
	}
}

// Remove removes the slices of slots whose jobs have ended, and those of logins to them, with all
// cgroups in them, and returns their paths below the mount. HTCondor removes a slice with its job, except where the job
// made cgroups in it that are too deep (trimCgroupTree of 25.14.1). Such a slice stays the old job's
// account's, and a cgroup in it of type "threaded" keeps every later job of the slot from starting.
func (n Leftovers) Remove(ctx context.Context) (removed []string, err error) {
	mount := cmp.Or(n.Mount, "/sys/fs/cgroup")
	left := slices.DeleteFunc(n.slotCgroups(mount), func(slice string) bool {
		d, err := CgroupAt(filepath.Join(mount, slice))
		ofHTCondor := strings.Contains(slice, "/htcondor/") || strings.Contains(slice, ".service/")
		return err != nil || !ofHTCondor || !d.Empty()
	})
	if len(left) == 0 {
		return nil, nil
	}
	starters := (&Arrivals{}).New(n.Node, time.Now())
	var errs []error
	for _, slice := range left {
		slot := cgroup.Slot(filepath.Base(slice))
		if slices.ContainsFunc(starters, func(s Starter) bool { return SameSlot(s.Slot, slot) }) {
			continue // it makes the slice for its job now, or removes it
		}
		if err := removeCgroup(ctx, filepath.Join(mount, slice)); err != nil {
			errs = append(errs, fmt.Errorf("remove what a job left in %s: %w", slice, err))
			continue
		}
		removed = append(removed, slice)
	}
	return removed, errors.Join(errs...)
}

// removeCgroup removes a cgroup with all below it. Each is made root's before its children are
// listed, so that another process of the job's account makes no more there. It goes from directory
// to directory, because a path to the last of them may be too long, and keeps one of them open.
func removeCgroup(ctx context.Context, path string) error {
	at, err := openCgroup(unix.AT_FDCWD, path)
	if err != nil {
		return err
	}
	defer func() { at.Close() }()
	var names []string // from path to at
	for ctx.Err() == nil {
		child, err := removeChildren(at)
		if err != nil {
			return err
		}
		if child != "" {
			below, err := openCgroup(int(at.Fd()), child)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			at.Close()
			at, names = below, append(names, child)
			continue
		}
		if len(names) == 0 {
			return unix.Rmdir(path)
		}
		above, err := openCgroup(int(at.Fd()), "..")
		if err != nil {
			return err
		}
		at.Close()
		at = above
		last := len(names) - 1
		if err := unix.Unlinkat(int(at.Fd()), names[last], unix.AT_REMOVEDIR); err != nil {
			return err // a process is in it
		}
		names = names[:last]
	}
	return ctx.Err()
}

// removeChildren removes the children of a cgroup that have none, and returns the name of one that
// has; empty if no child is left.
func removeChildren(at *os.File) (child string, err error) {
	if _, err := at.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	entries, err := at.ReadDir(-1)
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if no := unix.Unlinkat(int(at.Fd()), e.Name(), unix.AT_REMOVEDIR); no != nil && !errors.Is(no, fs.ErrNotExist) {
			child = e.Name()
		}
	}
	return child, err
}

// openCgroup opens a cgroup, and makes it root's.
func openCgroup(above int, name string) (*os.File, error) {
	fd, err := unix.Openat(above, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), unix.Fchown(fd, 0, 0)
}
