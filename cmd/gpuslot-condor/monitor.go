package main

import (
	"fmt"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// monitorTimeout is well below the period of 15 s.
const monitorTimeout = 5 * time.Second

// monitor prints which GPUs take jobs. If nobody can be asked, it closes all
// GPUs that the startd may know, and says why in the slot ads.
func (p program) monitor(args []string) int {
	o, err := p.parse("monitor", args, monitorTimeout)
	if err != nil {
		return usage
	}
	// Without the file there is no GPU to close: the startd has it from there.
	ads, _ := readInventory(o.inventory())
	known := condor.InventoryUUIDs(ads)
	reply, err := o.call(api.Request{Op: api.OpMonitor})
	var states []condor.GPUState
	if err == nil {
		states, err = acceptances(reply.GPUs)
	}
	if err != nil {
		fmt.Fprintf(p.stderr, "gpuslot-condor: %v\n", err)
		states = condor.Closed(known, err.Error(), time.Now())
	}
	states = append(states, unmentioned(known, states)...)
	if _, err := p.stdout.Write(condor.MonitorAds(states)); err != nil {
		return 1
	}
	return 0
}

func acceptances(gpus []api.Acceptance) ([]condor.GPUState, error) {
	states := make([]condor.GPUState, 0, len(gpus))
	for _, a := range gpus {
		u, err := gpu.ParseUUID(a.UUID)
		if err != nil {
			return nil, fmt.Errorf("gpuslotd's answer: %w", err)
		}
		states = append(states, condor.GPUState{UUID: u, Accept: a.Accept, Reason: a.Reason, Tenant: a.Tenant, Time: a.Time, Since: a.Since})
	}
	return states, nil
}

// unmentioned closes what the startd has and the agent does not name, as after
// a change of the plan under a running startd: nobody watches those GPUs.
func unmentioned(known []gpu.UUID, states []condor.GPUState) []condor.GPUState {
	named := map[gpu.UUID]bool{}
	for _, s := range states {
		named[s.UUID] = true
	}
	var rest []gpu.UUID
	for _, u := range known {
		if !named[u] {
			rest = append(rest, u)
		}
	}
	return condor.Closed(rest, "gpuslotd's plan does not share this GPU; restart the startd when its jobs are done", time.Now())
}
