package usage

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gpuslot/gpuslot/gpu"
)

// publish makes the snapshot of what is known now.
func (s *Sampler) publish() {
	bookings := s.options.Site.Bookings()
	out := &Snapshot{At: s.options.Now(), Sources: []Health{s.nvml}}
	for _, d := range slices.SortedFunc(maps.Keys(s.seen), compareDevices) {
		r := s.seen[d]
		out.Devices = append(out.Devices, deviceUsage(d, r))
		if !r.MIGEnabled {
			out.Slots = append(out.Slots, slotsOn(d, r.processes, bookings)...)
		}
	}
	s.notePeaks(out.Slots)
	s.last.Store(out)
}

func compareDevices(a, b Device) int {
	return cmp.Or(cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.MIG, b.MIG))
}

func compareSlots(a, b SlotKey) int {
	return cmp.Or(cmp.Compare(a.Slot, b.Slot), cmp.Compare(a.Started, b.Started), cmp.Compare(a.Starter, b.Starter))
}

func deviceUsage(d Device, r reading) DeviceUsage {
	out := DeviceUsage{Device: d, At: r.At, MIGEnabled: r.MIGEnabled, Memory: r.Memory, Processes: r.processes}
	if !r.processes.Known {
		return out
	}
	out.UnownedMemory.Known = true
	for _, p := range r.processes.Value {
		if p.Owner == OwnerNone {
			out.Unowned++
			out.UnownedMemory = add(out.UnownedMemory, p.Memory)
		}
	}
	return out
}

// slotsOn is the memory of every slot that was booked on a device or has a
// process there. Where processes are unknown so is every slot's memory.
func slotsOn(d Device, processes gpu.Measured[[]Process], bookings []Booking) []SlotUsage {
	var out []SlotUsage
	at := func(k SlotKey) *SlotUsage {
		for i := range out {
			if out[i].Slot == k {
				return &out[i]
			}
		}
		out = append(out, SlotUsage{Slot: k, Device: d, Memory: gpu.Measured[gpu.Bytes]{Known: processes.Known}})
		return &out[len(out)-1]
	}
	for _, b := range bookings {
		if b.Device == d {
			at(b.Slot)
		}
	}
	for _, p := range processes.Value {
		if p.Owner == OwnerSlot {
			u := at(p.Slot)
			u.Processes++
			u.Memory = add(u.Memory, p.Memory)
		}
	}
	slices.SortFunc(out, func(a, b SlotUsage) int { return compareSlots(a.Slot, b.Slot) })
	return out
}

// add is a sum that is known only if both parts are.
func add(sum, part gpu.Measured[gpu.Bytes]) gpu.Measured[gpu.Bytes] {
	return gpu.Measured[gpu.Bytes]{Value: sum.Value + part.Value, Known: sum.Known && part.Known}
}

// notePeaks fills in the peaks, and forgets those of jobs that are gone.
func (s *Sampler) notePeaks(slots []SlotUsage) {
	live := make(map[peakKey]gpu.Bytes, len(slots))
	for i := range slots {
		u := &slots[i]
		k := peakKey{u.Slot, u.Device}
		peak, had := s.peaks[k]
		if u.Memory.Known {
			peak, had = max(peak, u.Memory.Value), true
		}
		if had {
			live[k] = peak
			u.Peak = gpu.Known(peak)
		}
	}
	for k, peak := range s.peaks {
		if _, fresh := s.seen[k.device]; !fresh {
			live[k] = peak // unread for a moment, not ended
		}
	}
	s.peaks = live
}
