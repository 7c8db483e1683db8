package daemons

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

const (
	// culpritLooks is how many rounds the log of a server in FAULT is read for a
	// culprit: it may lag behind the state.
	culpritLooks = 3
	// culpritBack is how far the first answer of all looks back.
	culpritBack = 10 * time.Minute
	// seenKept is how long a process is remembered after the last sample that
	// showed it: a culprit has often ended when its server's FAULT is seen.
	seenKept = 5 * time.Minute
)

// seen maps the processes of jobs on shared GPUs, as samples show them, to their jobs.
type seen struct {
	mu sync.Mutex
	by map[int]seenJob
}

type seenJob struct {
	jobs.Job
	at time.Time
}

// Note enters the processes of a job that a sample showed on its GPU.
func (k *Keeper) Note(j jobs.Job, pids []int, now time.Time) {
	k.seen.mu.Lock()
	defer k.seen.mu.Unlock()
	if k.seen.by == nil {
		k.seen.by = map[int]seenJob{}
	}
	for _, pid := range pids {
		k.seen.by[pid] = seenJob{j, now}
	}
}

// ForgetUnseen drops the processes that no sample has shown for long.
func (k *Keeper) ForgetUnseen(now time.Time) {
	k.seen.mu.Lock()
	defer k.seen.mu.Unlock()
	for pid, s := range k.seen.by {
		if now.Sub(s.at) > seenKept {
			delete(k.seen.by, pid)
		}
	}
}

// jobOf is the job of a process on a GPU: it may have ended meanwhile.
func (k *Keeper) jobOf(pid int, u gpu.UUID) (jobs.Job, bool) {
	if s, ok := k.Owners.StarterOf(pid); ok {
		held := k.Owners.HeldBy(s)
		if i := slices.IndexFunc(held, func(r jobs.Job) bool { return r.GPU == u }); i >= 0 {
			return held[i], true
		}
	}
	k.seen.mu.Lock()
	defer k.seen.mu.Unlock()
	s, ok := k.seen.by[pid]
	return s.Job, ok && s.GPU == u
}

// accused are the clients that a log names as causes of a fatal GPU error, in
// its order.
func accused(lines []string) []int {
	var pids []int
	for _, line := range lines {
		e, ok := mps.ParseEvent(line)
		if ok && e.Kind == mps.GPUFault && e.Client > 0 && !slices.Contains(pids, e.Client) {
			pids = append(pids, e.Client)
		}
	}
	return pids
}

// culprit says whom a log names: the first that is known to be of a job on the
// GPU, because everyone who reaches the pipe directory can write such lines.
func (k *Keeper) culprit(u gpu.UUID, lines []string) string {
	named := accused(lines)
	for _, pid := range named {
		j, ok := k.jobOf(pid, u)
		if !ok {
			continue
		}
		who := []string{condor.SlotName(j.Starter.Slot)}
		if j.Owner != "" {
			who = append(who, j.Owner)
		}
		job := "a job"
		if j.ID != "" {
			job = "job " + j.ID
		}
		return fmt.Sprintf("process %d of %s (%s)", pid, job, strings.Join(who, ", "))
	}
	if len(named) == 0 {
		return ""
	}
	return fmt.Sprintf("process %d, which is of no job of gpuslot there", named[0])
}

// findCulprits counts the servers that went to FAULT and looks in their logs
// for the cause.
func (k *Keeper) findCulprits(ctx context.Context, now map[gpu.UUID]State, deadline time.Duration) {
	for u, s := range now {
		if !s.Servers.Faulted() || s.Err != nil {
			continue
		}
		if s.Servers.looks == 0 {
			k.Metrics.ServerFault(u)
			k.Log.Error("MPS server in FAULT", "gpu", u, "pid", s.Servers.pid, "clients", s.Servers.clients)
		}
		if k.Logs == nil || s.Servers.culprit != "" || s.Servers.looks >= culpritLooks {
			s.Servers.looks = max(s.Servers.looks, 1)
			now[u] = s
			continue
		}
		s.Servers.looks++
		ctx, cancel := context.WithTimeout(ctx, deadline)
		lines, err := k.Logs.Log(ctx, u, s.Servers.before)
		cancel()
		s.Servers.culprit = k.culprit(u, lines)
		now[u] = s
		switch {
		case err != nil:
			k.Log.Warn("the log of a server in FAULT cannot be read", "gpu", u, "err", err)
		case s.Servers.culprit != "":
			k.Events.Event(history.Event{
				Kind: history.EventCulprit, GPU: u,
				Text: "The log of its MPS server names the cause of a fault: " + s.Servers.culprit + ".",
			})
			k.Log.Warn("the log names the cause of a FAULT", "gpu", u, "culprit", s.Servers.culprit)
		}
	}
}
