package daemons

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/agent/deep"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// reportForeignChanges reports limits that somebody else changed on a daemon that
// had them right: up to driver 535 any account may. The round sets them again.
func (k *Keeper) reportForeignChanges(last, now map[gpu.UUID]State) {
	for u, s := range now {
		if last[u].Err != nil || last[u].Checked.PID == 0 || last[u].Wanted != s.Wanted {
			continue
		}
		for _, d := range mps.DifferencesOf(s.Err) {
			k.Metrics.ForeignChange(u, string(d.Setting))
			k.Log.Error("somebody else changed a limit of a control daemon; it is set again",
				"gpu", u, "setting", d.Setting, "read", d.Read, "want", d.Want)
		}
	}
}

// repairServers gives running servers the limits of their daemon where they have
// others: they were started before, or somebody changed theirs. It acts on
// their later clients.
func (k *Keeper) repairServers(ctx context.Context, now map[gpu.UUID]State, deadline time.Duration) {
	for u, s := range now {
		if s.Err != nil {
			continue
		}
		stale := slices.Concat(s.Checked.Stale, k.loggedOther(ctx, u, s, deadline))
		if len(stale) == 0 {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, deadline)
		p, err := k.Clients.SetServers(ctx, s.Wanted, stale)
		cancel()
		if err != nil {
			k.Log.Error("MPS servers keep other limits than their daemon", "gpu", u, "pids", stale, "err", err)
			continue
		}
		k.Log.Warn("MPS servers had other limits than their daemon; later clients get the daemon's",
			"gpu", u, "pids", stale)
		now[u] = s.next(s.Wanted, p, nil)
	}
}

// logged is the limit that a server wrote to the log at its start; drivers before 580 write none.
type logged struct {
	server process.ID
	of     mps.Wanted
	limit  gpu.Measured[gpu.Bytes]
}

// loggedOther are the servers that logged another limit than the one wanted: the control daemon's
// replies hide the part below a GiB. Each log is read once. Jobs of the GPU can write such lines,
// so what they say closes no GPU and proves nothing; a self-test that finds another
// limit is repeated on a new daemon.
func (k *Keeper) loggedOther(ctx context.Context, u gpu.UUID, s State, deadline time.Duration) (other []int) {
	for _, v := range s.Checked.States {
		if k.Logs == nil || !serverWell(v) || k.logged[u].server == v.ID && k.logged[u].of == s.Wanted {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, deadline)
		lines, err := k.Logs.Log(ctx, u, process.Began(v.Started, time.Now()))
		cancel()
		if err != nil {
			k.Log.Warn("the log of an MPS server cannot be read", "gpu", u, "pid", v.PID, "err", err)
		}
		l := logged{server: v.ID, of: s.Wanted}
		l.limit.Value, l.limit.Known = mps.LoggedLimit(lines, v.PID)
		k.logged[u] = l
		if l.limit.Known && l.limit.Value != gpu.Bytes(s.Wanted.Limit.Bytes()) && !s.SelfTest.pending() &&
			!slices.Contains(s.Checked.Stale, v.PID) {
			other = append(other, v.PID)
		}
	}
	return other
}

// Moved says whether a control daemon or a server is no longer what the last round saw: it
// ended, was suspended or goes on, by the cheap check. A server that ended is reported.
func (k *Keeper) Moved(states map[gpu.UUID]State) bool {
	moved := false
	for u, s := range states {
		if s.Checked.PID == 0 {
			continue
		}
		p := k.Checks.QuickCheck(u, s.Checked)
		now, was := mps.FaultOf(p.Err), mps.FaultOf(s.Err)
		if s.Err == nil && now != "" || was == mps.Suspended && now != mps.Suspended {
			moved = true
		}
		for _, server := range p.Died {
			moved = k.reportEnd(u, server) || moved
		}
	}
	return moved
}

// reportEnd reports a server's end, once. One without clients made way for
// another account's, most likely.
func (k *Keeper) reportEnd(u gpu.UUID, s mps.Server) bool {
	if k.ended[u] == s.ID {
		return false
	}
	k.ended[u] = s.ID
	level := slog.LevelInfo
	if len(s.Clients) > 0 {
		level = slog.LevelError
		k.Metrics.ServerDied(u)
		k.Events.Event(history.Event{
			Kind: history.EventFault, GPU: u,
			Text: fmt.Sprintf("MPS server %d ended with %d clients.", s.PID, len(s.Clients)),
		})
	}
	k.Log.Log(context.Background(), level, "MPS server ended", "gpu", u, "pid", s.PID, "clients", s.Clients)
	return true
}

// endLeftovers kills the clients that keep a server in FAULT. Their work on the
// GPU is gone, so a signal harms nobody else, and nobody else is served until
// they end. Before Linux 6.8 the kernel may take long to say where each is: the round waits for two seconds.
func (k *Keeper) endLeftovers(states map[gpu.UUID]State, now time.Time) {
	var all []deep.Looking[bool]
	for u, s := range states {
		if pids := s.Servers.leftovers(now); len(pids) > 0 {
			all = append(all, deep.Begin("leftovers "+string(u), func() bool {
				k.endLeft(u, pids, s.Checked.At)
				return true
			}))
		}
	}
	for _, one := range all {
		_, _ = one.Within(deep.Patient) // else it goes on, and the next round begins no other
	}
}

func (k *Keeper) endLeft(u gpu.UUID, pids []int, listed time.Time) {
	for _, pid := range pids {
		err := k.killClient(u, pid, listed)
		if errors.Is(err, os.ErrProcessDone) || errors.Is(err, unix.ESRCH) {
			continue // by itself
		}
		if err != nil {
			k.Log.Error("a client of a faulted server was not ended", "gpu", u, "pid", pid, "err", err)
			continue
		}
		k.Events.Event(history.Event{
			Kind: history.EventFault, GPU: u, By: history.ByAgent,
			Text: fmt.Sprintf("Process %d kept its MPS server in FAULT and was killed.", pid),
		})
		k.Log.Warn("a client that kept its server in FAULT was killed", "gpu", u, "pid", pid)
	}
}

// killClient kills a process that a control daemon listed at a time, if it runs in a
// slot that shares the GPU and is no later process. The list alone is no reason: a
// child that inherits a connection keeps its parent's PID in the list after the
// parent's end, when the PID may be anybody's.
func (k *Keeper) killClient(u gpu.UUID, pid int, listed time.Time) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	latest, err := process.TicksAt(listed)
	if err != nil {
		return err
	}
	p, err := k.Processes.Stat(pid)
	switch {
	case process.Gone(err) || err == nil && p.Started > latest:
		return os.ErrProcessDone
	case err != nil:
		return err
	}
	owner, ok := k.Owners.StarterOf(pid)
	onGPU := func(j jobs.Job) bool { return j.GPU == u }
	if !ok || !slices.ContainsFunc(k.Owners.HeldBy(owner), onGPU) {
		return errors.New(
			"it runs in no slot that shares this GPU: end it, or what keeps its connection, by hand")
	}
	return unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
}
