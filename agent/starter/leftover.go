package starter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/deep"
	"github.com/gpuslot/gpuslot/condor/cgroup"
	"github.com/gpuslot/gpuslot/gpu/backoff"
)

// What jobs left is looked for after removeEvery. Each slice has removeWithin to go, then the next has its turn.
const (
	removeEvery  = 30 * time.Second
	removeWithin = 30 * time.Second
)

// Leftovers are the cgroups that ended jobs left.
type Leftovers struct {
	Node
	Log *slog.Logger
	// within is how long the removal of one slice may take; removeWithin where it is 0.
	within time.Duration
}

// Run removes them until the context ends, where it may.
func (n Leftovers) Run(ctx context.Context, may func() bool) {
	for ctx.Err() == nil {
		if n.Own == 0 && may() { // other accounts change no cgroups of HTCondor's
			removed, err := n.Remove(ctx)
			if len(removed) > 0 {
				n.Log.Warn("jobs left cgroups that HTCondor did not remove; gpuslotd has removed them", "slices", removed)
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
	daemons, _ := n.DaemonCgroups() // what is beside one that is not known stays until the next time
	left := slices.DeleteFunc(slotCgroups(mount, daemons), func(slice string) bool {
		d, err := CgroupAt(filepath.Join(mount, slice))
		ofHTCondor := strings.Contains(slice, "/htcondor/") || strings.Contains(slice, ".service/")
		return err != nil || !ofHTCondor || !d.Empty()
	})
	var errs []error
	for _, slice := range left {
		starters, err := (&Arrivals{}).New(n.Node, time.Now()) // anew: the slice before may have taken long
		if err != nil {
			return removed, errors.Join(append(errs, fmt.Errorf("the jobs that run are not known: %w", err))...)
		}
		slot := cgroup.Slot(filepath.Base(slice))
		if slices.ContainsFunc(starters, func(s Starter) bool { return SameSlot(s.Slot, slot) }) {
			continue // it makes the slice for its job now, or removes it
		}
		if err := n.removeSlice(ctx, filepath.Join(mount, slice)); err != nil {
			errs = append(errs, fmt.Errorf("remove what a job left in %s: %w", slice, err))
			continue
		}
		removed = append(removed, slice)
	}
	return removed, errors.Join(errs...)
}

func (n Leftovers) removeSlice(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(n.within, removeWithin))
	defer cancel()
	return deep.Remove(ctx, path)
}
