package agent

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/faults"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/layouts"
	"github.com/gpuslot/gpuslot/agent/metrics"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/rules"
	"github.com/gpuslot/gpuslot/agent/sampling"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/foreign"
	"github.com/gpuslot/gpuslot/mps"
)

// usageNow is what GPUs and slots use now, and how the agent's sources do.
func (a *Agent) usageNow(v *view, now time.Time) metrics.Usage {
	snap := a.sampling.Last()
	running := a.jobs.Running()
	for i, r := range running {
		if d := layouts.DeviceOf(r, &v.plan, &a.recalled); d != "" {
			running[i].GPU = d
		}
	}
	out := usageOf(snap, running, v.config, now)
	out.Unplanned = unplanned(&v.plan, out.Devices)
	if said := a.startds.Said(); !said.At.IsZero() {
		startd := metrics.Source{Name: "startd", Up: said.Err == nil}
		if startd.Up {
			startd.Succeeded = said.At
		}
		out.Sources = append(out.Sources, startd)
	}
	return out
}

// unplanned are the GPUs among the sampled ones of which the plan has nothing.
func unplanned(p *plan.Plan, sampled []usage.DeviceUsage) []gpu.UUID {
	var out []gpu.UUID
	for _, d := range sampled {
		if d.MIG == "" && !slices.ContainsFunc(p.GPUs, func(g plan.GPU) bool { return g.Physical() == d.GPU }) {
			out = append(out, d.GPU)
		}
	}
	return out
}

// usageOf is what the last samples and the job table say of GPUs and slots, for
// Prometheus. Samples that are too old by now are left out, whatever holds up
// their loop; the job table is the agent's own and stay.
func usageOf(snap *usage.Snapshot, running []jobs.Job, c config.Config, now time.Time) metrics.Usage {
	longest := sampling.StaleAfter * c.Usage.Interval
	out := metrics.Usage{Sampled: snap.At, Sources: sourcesOf(snap, longest, now)}
	fresh := make(map[usage.Device]bool, len(snap.Devices))
	for _, d := range snap.Devices {
		if now.Sub(d.At) <= longest {
			fresh[d.Device] = true
			out.Devices = append(out.Devices, d)
		}
	}
	for _, s := range snap.Counters {
		if fresh[s.Device] {
			out.Counters = append(out.Counters, s)
		}
	}
	out.Slots = slotsOf(snap, fresh, running, c.Metrics.JobLabels)
	return out
}

// sourcesOf is how the readings go. One that nobody has made lately does not.
func sourcesOf(snap *usage.Snapshot, longest time.Duration, now time.Time) []metrics.Source {
	var out []metrics.Source
	for _, h := range snap.Sources {
		out = append(out, metrics.Source{
			Name: h.Source, Up: h.Err == nil && now.Sub(snap.At) <= longest,
			Took: gpu.Known(h.Took), Succeeded: h.Succeeded, Failures: gpu.Known(h.Failures),
		})
	}
	return out
}

// nameOn is a slot by its name alone, on one device.
type nameOn struct {
	slot   string
	device usage.Device
}

// slotsOf joins what was sampled with what was booked. A slot appears once on a
// device, although the job before may still be leaving it: what both hold adds
// up, and the later one gives the rest.
func slotsOf(
	snap *usage.Snapshot, fresh map[usage.Device]bool, running []jobs.Job, tell config.JobLabels,
) []metrics.Slot {
	out := make([]metrics.Slot, 0, len(running))
	place := make(map[nameOn]int, len(running))
	at := func(k usage.SlotKey, d usage.Device) (s *metrics.Slot, known bool) {
		n := nameOn{k.Slot, d}
		i, known := place[n]
		if !known {
			i = len(out)
			place[n], out = i, append(out, metrics.Slot{Usage: usage.SlotUsage{Slot: k, Device: d, Method: usage.MethodNone}})
		}
		return &out[i], known
	}
	for _, u := range snap.Slots {
		if !fresh[u.Device] {
			continue
		}
		if s, known := at(u.Slot, u.Device); known {
			s.Usage = both(s.Usage, u)
		} else {
			s.Usage = u
		}
	}
	for _, r := range running {
		s, _ := at(rules.SlotKey(r.Starter), snap.DeviceOf(r.GPU))
		if r.Since.Before(s.Admitted) {
			continue // the job before
		}
		s.Budget, s.Admitted, s.Labels = gpu.Known(gpu.Bytes(r.Budget.Bytes())), r.Since, labelsOf(r, tell)
	}
	return out
}

// both is one slot with two jobs: one goes, the later one comes.
func both(before, now usage.SlotUsage) usage.SlotUsage {
	now.Processes += before.Processes
	now.Memory = gpu.Measured[gpu.Bytes]{
		Value: now.Memory.Value + before.Memory.Value, Known: now.Memory.Known && before.Memory.Known,
	}
	return now
}

// labelsOf is what the site lets be told of a job.
func labelsOf(r jobs.Job, tell config.JobLabels) metrics.JobLabels {
	switch tell {
	case config.JobLabelsJob:
		return metrics.JobLabels{ID: foreign.Clip(r.ID), VO: foreign.Clip(r.VO)}
	case config.JobLabelsJobAndUser:
		return metrics.JobLabels{
			ID: foreign.Clip(r.ID), VO: foreign.Clip(r.VO), User: foreign.Clip(r.Owner), Group: foreign.Clip(r.Group),
		}
	}
	return metrics.JobLabels{}
}

// criticalXIDs are those after which nobody computes there before somebody
// has done something. They are counted from 0 on: an increase from nothing is none
// to Prometheus.
var criticalXIDs = []int{48, 62, 64, 74, 79, 95, 119, 120}

// faultsOf are the counters of the GPUs' events.
func faultsOf(gpus []plan.GPU, counted []faults.Counted) []metrics.Fault {
	type key struct {
		gpu    gpu.UUID
		reason string
	}
	seen := map[key]bool{}
	var out []metrics.Fault
	for _, f := range counted {
		seen[key{f.GPU, f.Reason}] = true
		out = append(out, metrics.Fault{GPU: f.GPU, Reason: f.Reason, Class: string(f.Class), Count: f.Count})
	}
	for _, g := range gpus {
		if g.MIGDevice() {
			continue // its GPU tells
		}
		for _, n := range criticalXIDs {
			if reason := fmt.Sprintf("xid-%d", n); !seen[key{g.UUID, reason}] {
				out = append(out, metrics.Fault{GPU: g.UUID, Reason: reason, Class: string(gpu.XIDByNumber(n).Class)})
			}
		}
	}
	return out
}

// clientsOf counts a control daemon's MPS clients; unknown while one of its
// servers does not answer.
func clientsOf(p mps.Proof) gpu.Measured[float64] {
	for _, s := range p.States {
		if !s.Answers() {
			return gpu.Measured[float64]{}
		}
	}
	return gpu.Known(float64(p.Clients()))
}

// threadRatio is a control daemon's default active thread percentage.
func threadRatio(p mps.Proof) gpu.Measured[float64] {
	percent, err := strconv.ParseFloat(p.ThreadPercentage, 64)
	return gpu.Measured[float64]{Value: percent / 100, Known: err == nil}
}
