package daemons

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// tellFaults counts the servers that went to FAULT and notes which jobs were there, those of the round before
// too: a job of the fault ends soon. Which of them is the cause cannot be known: on an H200 with 580, the
// server's log and the kernel's named a neighbour.
func (k *Keeper) tellFaults(now map[gpu.UUID]State) {
	for u, s := range now {
		if s.Err != nil || s.Servers.told {
			continue
		}
		jobs := k.jobsOn(u)
		s.Servers.there, jobs = jobs, append(jobs, s.Servers.there...)
		if s.Servers.Faulted() {
			s.Servers.told = true
			slices.Sort(jobs)
			k.tellFault(u, s.Servers, strings.Join(slices.Compact(jobs), ", "))
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

// jobsOn names the jobs on a GPU.
func (k *Keeper) jobsOn(u gpu.UUID) (all []string) {
	for _, j := range k.Jobs.On(u) {
		name := condor.SlotName(j.Starter.Slot)
		if j.ID != "" {
			name = j.ID + " on " + name
		}
		if j.Owner != "" {
			name += " of " + j.Owner
		}
		all = append(all, name)
	}
	return all
}
