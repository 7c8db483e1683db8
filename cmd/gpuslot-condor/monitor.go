package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// monitorTimeout is well below the period of 15 s.
const monitorTimeout = 5 * time.Second

// How often a following monitor asks, and prints if nothing changed. START
// believes for a minute.
const (
	askEvery   = time.Second
	printEvery = 15 * time.Second
)

// monitor prints which GPUs take jobs, and which jobs are to be held. If the
// agent does not answer, it closes all GPUs that the startd may know, and prints
// why for the slot ads.
func (p program) monitor(args []string) int {
	o, err := p.parse("monitor", args, monitorTimeout)
	if err != nil {
		return usage
	}
	// Without the file there is no GPU to close: the startd has it from there.
	ads, _ := readInventory(o.inventory())
	known := condor.InventoryUUIDs(ads)
	var last said
	for {
		now := p.look(o, known, last)
		if news := now.news(last); len(news) > 0 {
			if _, err := p.stdout.Write(news); err != nil {
				return 1 // the startd is gone
			}
			now.printed = time.Now()
		} else {
			now.printed = last.printed
		}
		if !o.follow {
			return 0
		}
		last = now
		time.Sleep(askEvery)
	}
}

// said is what the agent said at one time.
type said struct {
	states []condor.GPUState
	holds  []condor.Hold
	// whole are the elastic GPUs; nil if there are none.
	whole *condor.ElasticState
	// starts is whether jobs without a GPU start; nil if that is not asked for.
	starts  *condor.StartsState
	printed time.Time
}

// look asks the agent.
func (p program) look(o options, known []gpu.UUID, last said) said {
	var s said
	reply, err := o.call(api.Request{Op: api.OpMonitor})
	if err == nil {
		s.states, err = acceptances(reply.GPUs)
	}
	if err != nil {
		fmt.Fprintf(p.stderr, "gpuslot-condor: %v\n", err)
		s.states = condor.Closed(known, err.Error(), time.Now())
	}
	s.states = append(s.states, unmentioned(known, s.states)...)
	s.states = only(known, s.states)
	s.holds = holds(o.startd, reply.Holds)
	s.whole = elastic(reply.Whole)
	if err != nil && last.whole != nil {
		s.whole = &condor.ElasticState{Reason: err.Error(), Time: time.Now()}
	}
	if o.starts {
		s.starts = starts(o.socket, reply.NoStart, err, last.starts)
	}
	return s
}

// starts is what a job's supervisor would do now: where gpuslotd has to say the word and
// does not, the job would go back to the queue.
func starts(socket, noStart string, err error, last *condor.StartsState) *condor.StartsState {
	s := &condor.StartsState{Time: time.Now()}
	word, errLink := os.Readlink(startLink(socket))
	switch {
	case err == nil && noStart != "": // also where the link went with a boot: then it is not known what is promised
		s.Reason = noStart
	case errors.Is(errLink, fs.ErrNotExist) || errLink == nil && word != api.StartRequired:
	case errLink != nil:
		s.Reason = errLink.Error()
	case err != nil:
		s.Reason = err.Error()
	}
	s.Since = s.Time
	if last != nil && last.Reason == s.Reason {
		s.Since = last.Since
	}
	return s
}

// elastic is the agent's word on elastic GPUs.
func elastic(w *api.WholeGPUs) *condor.ElasticState {
	if w == nil {
		return nil
	}
	s := &condor.ElasticState{Open: w.Open, Least: w.Least, Reason: w.Reason, Time: w.Time, Since: w.Since}
	for _, u := range w.GPUs {
		s.GPUs = append(s.GPUs, gpu.UUID(u))
	}
	return s
}

// news is what to print after the last time: everything now and then, and what
// changed at once.
func (s said) news(last said) []byte {
	all := time.Since(last.printed) >= printEvery
	isNew := func(g condor.GPUState) bool { return all || !slices.ContainsFunc(last.states, g.SaysTheSame) }
	// Whole GPUs have one ad for all of them.
	newWhole := slices.ContainsFunc(s.states, func(g condor.GPUState) bool { return g.Whole && isNew(g) })
	var states []condor.GPUState
	for _, g := range s.states {
		if isNew(g) || g.Whole && newWhole {
			states = append(states, g)
		}
	}
	var changed []condor.Hold
	for _, h := range s.holds {
		if all || !slices.Contains(last.holds, h) {
			changed = append(changed, h)
		}
	}
	for _, h := range last.holds {
		if !slices.ContainsFunc(s.holds, func(o condor.Hold) bool { return o.SlotID == h.SlotID && o.DSlotID == h.DSlotID }) {
			h.Reason = "" // taken back
			changed = append(changed, h)
		}
	}
	var whole []byte
	if s.whole != nil && (all || last.whole == nil || !s.whole.SaysTheSame(*last.whole)) {
		whole = s.whole.Ad()
	}
	var starts []byte
	if s.starts != nil && (all || last.starts == nil || s.starts.Reason != last.starts.Reason) {
		starts = s.starts.Ad()
	}
	return slices.Concat(condor.MonitorAds(states), whole, starts, condor.HoldAds(changed))
}

// only drops GPUs that other startds of the node offer.
func only(known []gpu.UUID, states []condor.GPUState) []condor.GPUState {
	if len(known) == 0 {
		return states
	}
	return slices.DeleteFunc(states, func(s condor.GPUState) bool { return !slices.Contains(known, s.UUID) })
}

// holds are the agent's, as the startd knows slots. A slot with another name,
// or of another startd, is none of its.
func holds(startd string, all []api.Hold) []condor.Hold {
	var out []condor.Hold
	for _, h := range all {
		if slot, dynamic, err := condor.ParseSlot(h.Slot); err == nil && condor.StartdOf(h.Slot) == startd {
			out = append(out, condor.Hold{SlotID: slot, DSlotID: dynamic, JobID: h.Job, Code: h.Code, Reason: h.Reason,
				Since: h.Since})
		}
	}
	return out
}

func acceptances(gpus []api.Acceptance) ([]condor.GPUState, error) {
	states := make([]condor.GPUState, 0, len(gpus))
	for _, a := range gpus {
		u, err := gpu.ParseUUID(a.UUID)
		if err != nil {
			return nil, fmt.Errorf("gpuslotd's answer: %w", err)
		}
		states = append(states, condor.GPUState{UUID: u, Whole: a.Whole, Accept: a.Accept, Reason: a.Reason,
			ClosedBy: a.ClosedBy, Tenant: a.Tenant, Least: gpu.MiB(a.LeastMiB), Above: gpu.MiB(a.AboveMiB),
			AboveHost: condor.Share{CPUs: a.AboveCPUs, Memory: gpu.MiB(a.AboveMemoryMiB)}, Verified: a.Verified,
			Unlisted: gpu.MiB(a.UnlistedMiB), Taken: gpu.MiB(a.TakenMiB), Pending: a.Pending, Time: a.Time, Since: a.Since})
	}
	return states, nil
}

// unmentioned closes what the startd has and the agent does not name, as after
// a change of the plan under a running startd: no monitor watches those GPUs.
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
	return condor.Closed(rest, "gpuslotd's plan does not share this GPU; "+
		"restart the startd when its jobs are done", time.Now())
}
