package metrics

import (
	"cmp"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/rules"
	"github.com/gpuslot/gpuslot/agent/sampling"
	"github.com/gpuslot/gpuslot/agent/status"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// usageOf is what the last samples and the job table say of GPUs and slots. Samples that are
// too old by now are left out, whatever holds up their loop; the job table is the agent's own
// and stays.
func usageOf(s *status.Snapshot) *Usage {
	snap, longest := s.Usage, sampling.StaleAfter*s.Config.Usage.Interval
	out := &Usage{Sampled: snap.At, Sources: sourcesOf(snap, longest, s.At)}
	fresh := make(map[usage.Device]bool, len(snap.Devices))
	for _, d := range snap.Devices {
		if s.At.Sub(d.At) <= longest {
			fresh[d.Device] = true
			out.Devices = append(out.Devices, d)
			if d.MIG == "" && !slices.ContainsFunc(s.Plan.GPUs, func(g plan.GPU) bool { return g.Physical() == d.GPU }) {
				out.Unplanned = append(out.Unplanned, d.GPU)
			}
		}
	}
	for _, c := range snap.Counters {
		if fresh[c.Device] {
			out.Counters = append(out.Counters, c)
		}
	}
	running := slices.Clone(s.Running)
	for i, r := range running {
		now, _ := s.Plan.GPU(r.GPU)
		before, _ := s.Before.GPU(r.GPU)
		running[i].GPU = cmp.Or(r.Device, now.Device, before.Device, r.GPU)
	}
	out.Slots = slotsOf(snap, fresh, running, s.Config.Metrics.JobLabels)
	if said := s.Startds; !said.At.IsZero() {
		startd := Source{Name: "startd", Up: said.Err == nil}
		if startd.Up {
			startd.Succeeded = said.At
		}
		out.Sources = append(out.Sources, startd)
	}
	return out
}

// sourcesOf is how the readings go. One that nobody has made lately does not.
func sourcesOf(snap *usage.Snapshot, longest time.Duration, now time.Time) []Source {
	var out []Source
	for _, h := range snap.Sources {
		out = append(out, Source{
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

// slotsOf joins what was sampled with what was reserved. A slot appears once on a
// device, although the job before may still be leaving it: what both hold adds
// up, and the later one gives the rest.
func slotsOf(
	snap *usage.Snapshot, fresh map[usage.Device]bool, running []jobs.Job, tell config.JobLabels,
) []Slot {
	out := make([]Slot, 0, len(running))
	place := make(map[nameOn]int, len(running))
	at := func(k usage.SlotKey, d usage.Device) (s *Slot, known bool) {
		n := nameOn{k.Slot, d}
		i, known := place[n]
		if !known {
			i = len(out)
			place[n], out = i, append(out, Slot{Usage: usage.SlotUsage{Slot: k, Device: d, Method: usage.MethodNone}})
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
func labelsOf(r jobs.Job, tell config.JobLabels) JobLabels {
	switch tell {
	case config.JobLabelsJob:
		return JobLabels{ID: foreign.Clip(r.ID), VO: foreign.Clip(r.VO)}
	case config.JobLabelsJobAndUser:
		return JobLabels{
			ID: foreign.Clip(r.ID), VO: foreign.Clip(r.VO), User: foreign.Clip(r.Owner), Group: foreign.Clip(r.Group),
		}
	}
	return JobLabels{}
}
