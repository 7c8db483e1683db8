package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/faults"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

const (
	// blameLooks is how many rounds the log of a server in FAULT is read for a
	// culprit: it may lag behind the state.
	blameLooks = 3
	// blameBack is how far the first proof of all looks back.
	blameBack = 10 * time.Minute
	// faceKept is how long a process is remembered after the last sample that
	// showed it: a culprit has often ended when its server's FAULT is seen.
	faceKept = 5 * time.Minute
)

// faces are the processes of jobs on shared GPUs that samples have shown.
type faces struct {
	mu sync.Mutex
	by map[int]face
}

type face struct {
	jobs.Job
	at time.Time
}

// note adds a sample, and forgets who was not seen for long.
func (f *faces) note(jobs []watched, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.by == nil {
		f.by = map[int]face{}
	}
	for _, j := range jobs {
		for _, pid := range j.PIDs {
			f.by[pid] = face{j.Job, now}
		}
	}
	for pid, seen := range f.by {
		if now.Sub(seen.at) > faceKept {
			delete(f.by, pid)
		}
	}
}

// of is the job that a process of a GPU was last seen in.
func (f *faces) of(pid int, u gpu.UUID) (jobs.Job, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen, ok := f.by[pid]
	return seen.Job, ok && seen.GPU == u
}

// jobOf is the job of a process on a GPU: it may have ended meanwhile.
func (a *Agent) jobOf(pid int, u gpu.UUID) (jobs.Job, bool) {
	if s, ok := a.jobs.StarterOf(pid); ok {
		held := a.jobs.HeldBy(s)
		if i := slices.IndexFunc(held, func(r jobs.Job) bool { return r.GPU == u }); i >= 0 {
			return held[i], true
		}
	}
	return a.faces.of(pid, u)
}

// accused are the clients that a log names as causes of a fatal GPU error, in
// its order.
func accused(lines []string) []int {
	var pids []int
	for _, line := range lines {
		if e, ok := mps.ParseEvent(line); ok && e.Kind == mps.GPUFault && e.Client > 0 && !slices.Contains(pids, e.Client) {
			pids = append(pids, e.Client)
		}
	}
	return pids
}

// culprit says whom a log names: the first that is known to be of a job on the
// GPU, because everyone who reaches the pipe directory can write such lines.
func (a *Agent) culprit(u gpu.UUID, lines []string) string {
	named := accused(lines)
	for _, pid := range named {
		if r, ok := a.jobOf(pid, u); ok {
			return processText(pid, r)
		}
	}
	if len(named) == 0 {
		return ""
	}
	return fmt.Sprintf("process %d, which is of no job that gpuslot knows there", named[0])
}

// because is a verdict's reason, with whom the server's log names where the
// event was what the server is in FAULT for.
func because(v faults.Verdict, s serverState) string {
	if v.Class != faults.ClosedForServer || s.faulted.IsZero() {
		return v.Reason
	}
	return v.Reason + s.named()
}

// processText names a process of a job for people.
func processText(pid int, r jobs.Job) string {
	who := []string{condor.SlotName(r.Starter.Slot)}
	if r.Owner != "" {
		who = append(who, r.Owner)
	}
	job := "a job"
	if r.ID != "" {
		job = "job " + r.ID
	}
	return fmt.Sprintf("process %d of %s (%s)", pid, job, strings.Join(who, ", "))
}

// blameCulprits counts the servers that went to FAULT and looks in their logs
// for the cause.
func (a *Agent) blameCulprits(ctx context.Context, guards map[gpu.UUID]guard, deadline time.Duration) {
	for u, g := range guards {
		if g.servers.faulted.IsZero() || g.err != nil {
			continue
		}
		if g.servers.looks == 0 {
			a.metrics.ServerFault(u)
			a.log.Error("MPS server in FAULT", "gpu", u, "pid", g.servers.pid, "clients", g.servers.clients)
		}
		if a.servers == nil || g.servers.culprit != "" || g.servers.looks >= blameLooks {
			g.servers.looks = max(g.servers.looks, 1)
			guards[u] = g
			continue
		}
		g.servers.looks++
		ctx, cancel := context.WithTimeout(ctx, deadline)
		lines, err := a.servers.Log(ctx, u, g.servers.before)
		cancel()
		g.servers.culprit = a.culprit(u, lines)
		guards[u] = g
		switch {
		case err != nil:
			a.log.Warn("the log of a server in FAULT cannot be read", "gpu", u, "err", err)
		case g.servers.culprit != "":
			a.note(history.Event{Kind: history.EventCulprit, GPU: u, Text: "The log of its MPS server names the cause of a fault: " + g.servers.culprit + "."})
			a.log.Warn("the log names the cause of a FAULT", "gpu", u, "culprit", g.servers.culprit)
		}
	}
}
