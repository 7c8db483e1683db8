package ending

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/devices"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// EndOutside ends MPS clients that are of no job. Those that connect again are in the next sample.
func (e *Ender) EndOutside(ctx context.Context, u gpu.UUID, pids []int) {
	if _, busy := e.outside.LoadOrStore(u, struct{}{}); busy {
		return
	}
	e.ends.Go(func() {
		defer e.outside.Delete(u)
		still := slices.DeleteFunc(slices.Clone(pids), func(pid int) bool {
			_, err := e.Processes.Stat(pid)
			return becauseOfOthers(err) || !e.ofUser(pid)
		})
		if len(still) == 0 {
			return
		}
		e.Log.Warn("users' own processes, outside of jobs, are ended as MPS clients", "gpu", u, "pids", still)
		e.EndClients(ctx, u, still, starter.Starter{})
	})
}

// KillOutside kills processes of users that are no MPS clients and of no job. No neighbour suffers from
// that. Those that come again are in the next sample.
func (e *Ender) KillOutside(u gpu.UUID, all []process.ID) {
	e.once(killing{gpu: u}, func() {
		for _, p := range all {
			e.killOutside(u, p)
		}
	})
}

// Evict kills what users run outside of jobs with a device node of a GPU or of its MIG devices open, which keeps its
// layout from being changed.
func (e *Ender) Evict(u gpu.UUID) {
	e.once(killing{gpu: u, nodes: true}, func() {
		if err := e.evict(u); err != nil {
			e.Log.Error("it is not known who keeps a MIG layout from being changed", "gpu", u, "err", err)
		}
	})
}

// evictLimit bounds a look for who has nodes open. It is looked at again while the layout cannot be changed.
const evictLimit = 5 * time.Minute

// mostOpen bounds how many files of one process are looked at. The kernel lets no program have so many by itself.
const mostOpen = 1 << 21

// evict looks at all that users run outside of jobs. The look before, of the change, is no reason to kill: it is
// bounded, so that a process with many files only may have a node open, and a PID may be another process's by now.
func (e *Ender) evict(u gpu.UUID) error {
	nodes, err := devices.Proc{Root: e.Proc.Root}.Of(u)
	if err != nil {
		return err
	}
	fits := func(f process.File) bool { return slices.Contains(nodes, f.Device) }
	pids, err := e.Proc.PIDs()
	rand.Shuffle(len(pids), func(i, j int) { pids[i], pids[j] = pids[j], pids[i] }) // so that none is always late
	begun := time.Now()
	for _, pid := range pids {
		if e.stopping.Load() || time.Since(begun) > evictLimit {
			return errors.Join(err, errors.New("not all processes were looked at in time"))
		}
		p, no := e.Processes.Stat(pid)
		if process.Gone(no) || !e.ofUser(pid) {
			continue
		}
		if no != nil {
			err = cmp.Or(err, no) // it may have one open
			continue
		}
		has, _, no := process.Opens(e.Proc, pid, mostOpen, fits)
		if len(has) > 0 {
			e.killOutside(u, p.ID)
		} else if no != nil {
			err = cmp.Or(err, fmt.Errorf("process %d: %w", pid, no))
		}
	}
	return err
}

// abortAfter is how often a process is killed before the file systems of its account end.
const abortAfter = 10

// killOutside kills a process if a user runs it outside of jobs. One that waits for an answer of its own file
// system (FUSE) ends when that does.
func (e *Ender) killOutside(u gpu.UUID, p process.ID) {
	err := killIf(p.PID, func() bool { return e.ofUser(p.PID) && e.is(p) })
	switch {
	case errors.Is(err, os.ErrProcessDone) || errors.Is(err, unix.ESRCH):
	case err != nil:
		e.Log.Error("a user's own process, outside of jobs, was not killed", "gpu", u, "pid", p.PID, "err", err)
	default:
		switch kills := e.count(p); {
		case kills == 1:
			e.Log.Warn("a user's own process, outside of jobs, was killed", "gpu", u, "pid", p.PID)
		case kills%abortAfter == 0:
			e.abort(u, p)
		}
	}
}

// count says how often a process was killed. Those that have ended are forgotten.
func (e *Ender) count(p process.ID) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.killed, func(other process.ID, _ int) bool { return !e.is(other) })
	e.killed[p]++
	return e.killed[p]
}

// becauseOfOthers says that a process is not read because of other owners': it may be a job's.
func becauseOfOthers(err error) bool {
	return errors.Is(err, process.ErrNotAsked) && !errors.Is(err, process.ErrRefused)
}

// is says whether this very process runs, or the one that has its PID hangs, so that the kernel does not say that, or
// is of an owner that has too many of these.
func (e *Ender) is(p process.ID) bool {
	now, err := e.Processes.Stat(p.PID)
	return now.Shows(p) || errors.Is(err, process.ErrHeld) && !becauseOfOthers(err)
}

// ofUser says whether a user runs a process outside of jobs.
func (e *Ender) ofUser(pid int) bool {
	_, its := e.Jobs.StarterOf(pid)
	return !its && e.Users.OfUser(pid)
}

// abort ends the file systems (FUSE) of the account of a process that no signal ended, and that waits for one, or may
// (process.ErrHeld). What of the account waits for them, also in jobs, gets an error: whoever has the account can end
// them as well.
func (e *Ender) abort(u gpu.UUID, p process.ID) {
	a, err := e.Users.AccountOf(p.PID)
	if err != nil || !a.Known || !e.waitsForFUSE(p.PID) || !e.is(p) {
		return // it has ended, or waits for a driver, for example
	}
	root := cmp.Or(e.FUSE, "/sys/fs/fuse/connections")
	all, err := os.ReadDir(root)
	ended := 0
	for _, one := range all {
		aborted, no := abortOf(path.Join(root, one.Name()), a.UID)
		if err = errors.Join(err, no); aborted {
			ended++
		}
	}
	e.Log.Error("a user's own process, outside of jobs, stays after it was killed: file systems of its account were ended",
		"gpu", u, "pid", p.PID, "uid", a.UID, "ended", ended, "err", err)
}

// waitsForFUSE says whether a thread of a process waits for such a file system, by the kernel's functions.
func (e *Ender) waitsForFUSE(pid int) bool {
	stacks, err := process.Stacks(e.Proc, pid)
	return errors.Is(err, process.ErrHeld) || bytes.Contains(stacks, []byte("fuse_"))
}

// abortOf ends one file system if it is of an account. The directory stays open: the kernel may give its name to
// another one.
func abortOf(dir string, uid uint32) (aborted bool, err error) {
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, unlessGone(err)
	}
	defer func() { _ = unix.Close(at) }()
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil || st.Uid != uid {
		return false, err
	}
	fd, err := unix.Openat(at, "abort", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, unlessGone(err)
	}
	_, err = unix.Write(fd, []byte("1"))
	return err == nil, errors.Join(err, unix.Close(fd))
}

func unlessGone(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
