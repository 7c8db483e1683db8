package usage

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// publish makes the snapshot of what is known now.
func (s *Sampler) publish(reservations reserved, now time.Time) {
	out := &Snapshot{At: now, Sources: []Health{s.nvml}}
	if s.options.DCGM != nil {
		out.Sources = append(out.Sources, s.dcgm)
	}
	for _, d := range slices.SortedFunc(maps.Keys(s.seen), compareDevices) {
		r := s.seen[d]
		out.Devices = append(out.Devices, s.deviceUsage(d, r))
		if !r.MIGEnabled {
			out.Slots = append(out.Slots, s.slotsOn(d, r, reservations[d])...)
		}
	}
	for i := range out.Slots {
		s.books.see(&out.Slots[i], now)
	}
	fresh := func(d Device) bool { _, ok := s.seen[d]; return ok }
	s.books.sweep(fresh, now)
	out.Ended, out.Counters = s.books.ended(), s.books.counters(fresh)
	s.last.Store(out)
}

func compareDevices(a, b Device) int {
	if by := cmp.Compare(a.GPU, b.GPU); by != 0 {
		return by
	}
	return cmp.Compare(a.MIG, b.MIG)
}

func compareSlots(a, b SlotKey) int {
	if by := cmp.Compare(a.Slot, b.Slot); by != 0 {
		return by
	}
	return cmp.Or(cmp.Compare(a.Started, b.Started), cmp.Compare(a.Starter, b.Starter))
}

func (s *Sampler) deviceUsage(d Device, r reading) DeviceUsage {
	t := s.tracker(d)
	out := DeviceUsage{
		Device: d, At: r.At, MIGEnabled: r.MIGEnabled, GPUInstance: r.GPUInstance, Multiprocessors: r.Multiprocessors,
		Memory: r.Memory, Unlisted: r.unlisted, Processes: r.processes, Listed: r.Processes.Value, Board: r.Board,
		Method: t.last.method, Activity: t.last.activity, ActivitySource: t.last.source, KernelTime: t.last.kernel,
		Total: t.total, BoundsExceeded: t.beyond, MemoryBusy: t.contention.busy, Contended: t.contention.now,
	}
	if r.MIGEnabled {
		out.Activity = ratio(r.SMActivity)
	}
	if r.Power.Known {
		out.Power = gpu.Known(float64(r.Power.Value) / 1000)
	}
	if m := s.meters[d.GPU]; m != nil && d.MIG == "" {
		out.Total.Energy, out.Total.UnattributedEnergy = m.total, m.unattributed
	}
	if !r.processes.Known {
		return out
	}
	out.UnownedMemory.Known = true
	for _, p := range r.processes.Value {
		if !p.OfSlot() && p.Owner != OwnerServer {
			out.Unowned++
			out.UnownedMemory = add(out.UnownedMemory, p.Memory)
		}
	}
	return out
}

// slotsOn is every slot with a reservation on a device or has a process there.
// Where processes are unknown so is every slot's memory.
func (s *Sampler) slotsOn(d Device, r reading, reservations []Reservation) []SlotUsage {
	out := make([]SlotUsage, 0, len(reservations))
	place := make(map[SlotKey]int, len(reservations))
	known := r.processes.Known && !slices.ContainsFunc(r.processes.Value, Process.Unclear)
	at := func(k SlotKey) *SlotUsage {
		i, ok := place[k]
		if !ok {
			i = len(out)
			place[k] = i
			out = append(out, SlotUsage{Slot: k, Device: d, Memory: gpu.Measured[gpu.Bytes]{Known: known}})
		}
		return &out[i]
	}
	for _, b := range reservations {
		u := at(b.Slot)
		u.Share += b.Share
		u.Cap = max(u.Cap, b.Cap)
	}
	for _, p := range r.processes.Value {
		if !p.OfSlot() {
			continue
		}
		u := at(p.Slot)
		u.Memory = add(u.Memory, p.Memory)
		if p.Owner == OwnerSlot {
			u.Processes++
		}
	}
	t := s.tracker(d)
	for i := range out {
		out[i].Method, out[i].SM, out[i].Likely = t.last.method, t.last.slots[out[i].Slot], t.last.likelyOf(out[i].Slot)
		out[i].Partly = r.partly && out[i].Processes > 0
	}
	slices.SortFunc(out, func(a, b SlotUsage) int { return compareSlots(a.Slot, b.Slot) })
	return out
}

// add is a sum that is known only if both parts are.
func add(sum, part gpu.Measured[gpu.Bytes]) gpu.Measured[gpu.Bytes] {
	return gpu.Measured[gpu.Bytes]{Value: sum.Value + part.Value, Known: sum.Known && part.Known}
}
