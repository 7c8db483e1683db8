package daemons

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// tellFaults counts the servers that went to FAULT and notes which jobs were there since the servers were well:
// a job of the fault ends soon, and may have begun after that. Which of them is the cause cannot be known: on
// an H200 with 580, the server's log and the kernel's named a neighbour.
func (k *Keeper) tellFaults(now map[gpu.UUID]State, began time.Time) {
	for u, s := range now {
		switch {
		case s.Err != nil:
			continue
		case !s.Servers.Faulted():
			s.Servers.well = began
		case !s.Servers.told:
			s.Servers.told = true
			k.tellFault(u, s.Servers, k.jobsSince(u, s.Servers.well))
		}
		now[u] = s
	}
}

func (k *Keeper) tellFault(u gpu.UUID, s ServerState, jobs string) {
	k.Metrics.ServerFault(u)
	k.Log.Error("MPS server in FAULT", "gpu", u, "pid", s.pid, "clients", s.clients, "jobs", jobs)
	k.Events.Event(history.Event{
		Kind: history.EventFault, GPU: u,
		Text: "A client of its MPS server met a fatal GPU error. Jobs there: " + cmp.Or(jobs, "none") + ".",
	})
}

// jobsSince names the jobs that were on a GPU at a time or later.
func (k *Keeper) jobsSince(u gpu.UUID, begin time.Time) string {
	var all []string
	for _, j := range k.Jobs.Since(u, begin) {
		name := condor.SlotName(j.Starter.Slot)
		if j.ID != "" {
			name = j.ID + " on " + name
		}
		if j.Owner != "" {
			name += " of " + j.Owner
		}
		all = append(all, name)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
