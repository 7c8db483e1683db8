// Package culprits says which job the log of an MPS server names as the cause of a fatal GPU error.
//
// Start at Finder.
package culprits

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/deep"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// kept is how long a process is remembered after the last sample that
// showed it: a culprit has often ended when its server's FAULT is seen.
const kept = 5 * time.Minute

// Owners say which job a process is of; jobs.Table is the real one.
type Owners interface {
	StarterOf(pid int) (starter.Starter, bool)
	// HeldBy are the entries of a starter's job, one for each of its GPUs.
	HeldBy(s starter.Starter) []jobs.Job
}

// Finder remembers the processes of jobs on shared GPUs, as samples show them. Many goroutines may use it.
type Finder struct {
	owners Owners

	mu   sync.Mutex
	seen map[int]seen
}

type seen struct {
	jobs.Job
	at time.Time
}

// New returns a Finder that has seen nothing.
func New(owners Owners) *Finder { return &Finder{owners: owners, seen: map[int]seen{}} }

// Note enters the processes of a job that a sample showed on its GPU.
func (f *Finder) Note(j jobs.Job, pids []int, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, pid := range pids {
		f.seen[pid] = seen{j, now}
	}
}

// ForgetUnseen drops the processes that no sample has shown for long.
func (f *Finder) ForgetUnseen(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for pid, s := range f.seen {
		if now.Sub(s.at) > kept {
			delete(f.seen, pid)
		}
	}
}

// seenOf is the job that a sample showed a process of, on a GPU. It may have ended meanwhile.
func (f *Finder) seenOf(pid int, u gpu.UUID) (jobs.Job, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, ok := f.seen[pid]
	return s.Job, ok && s.GPU == u
}

// mostAsked is how many of the processes that a log names are asked about, if no sample showed them. A job can write
// thousands of PIDs there, and before Linux 6.8 the kernel may take long to say where each is.
const mostAsked = 8

// runningOf are the jobs on a GPU of those processes that run. All is false if the kernel does not say that soon.
func (f *Finder) runningOf(pids []int, u gpu.UUID) (found map[int]jobs.Job, all bool) {
	found = map[int]jobs.Job{}
	if len(pids) == 0 {
		return found, true
	}
	pids = pids[:min(len(pids), mostAsked)]
	look := deep.Begin(fmt.Sprint("culprits ", u, pids), func() map[int]starter.Starter {
		of := map[int]starter.Starter{}
		for _, pid := range pids {
			if s, ok := f.owners.StarterOf(pid); ok {
				of[pid] = s
			}
		}
		return of
	})
	of, all := look.Within(deep.Patient)
	for pid, s := range of {
		held := f.owners.HeldBy(s)
		if i := slices.IndexFunc(held, func(r jobs.Job) bool { return r.GPU == u }); i >= 0 {
			found[pid] = held[i]
		}
	}
	return found, all
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

// Of says whom a log names: the first process that is known to be of a job on the GPU, because whoever reaches the
// pipe directory can write such lines. It is empty if the log names no process, or if it is not known yet whose they
// are. Nothing is asked about those that a sample showed, nor about those after the first of them.
func (f *Finder) Of(u gpu.UUID, lines []string) string {
	named := accused(lines)
	if len(named) == 0 {
		return ""
	}
	unseen := named
	if i := slices.IndexFunc(named, func(pid int) bool { _, ok := f.seenOf(pid, u); return ok }); i >= 0 {
		unseen = named[:i]
	}
	running, all := f.runningOf(unseen, u)
	for _, pid := range named {
		j, ok := running[pid]
		if !ok {
			j, ok = f.seenOf(pid, u)
		}
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
	if !all {
		return ""
	}
	return fmt.Sprintf("process %d, which is of no job of gpuslot there", named[0])
}
