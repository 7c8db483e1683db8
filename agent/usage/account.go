package usage

import (
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// account divides what one GPU did since the last round among the slots.
func (s *Sampler) account(r gpu.Reading, activities Activities, reservations reserved, now time.Time) {
	work := workload{parts: map[Device]float64{}, slots: map[slotOn]Spread{}, guess: map[slotOn]Range{}}
	if r.MIGEnabled {
		s.tracker(Device{GPU: r.GPU}).count(ratio(r.SMActivity), ratio(r.DRAMActivity), now, s.longest())
	}
	for _, o := range s.observe(r, activities) {
		t := s.tracker(o.device)
		took, ok := t.attribute(o, reservations[o.device], now, s.longest())
		work.add(o, t.last, ok)
		for k, share := range t.last.slots {
			if ok && o.part.Known {
				totals := t.last.rest(k, took)
				totals.SM = share.times(took * o.part.Value)
				totals.Likely = t.last.likelyOf(k).times(took * o.part.Value)
				s.books.add(slotOn{k, o.device}, totals, now)
			}
		}
	}
	s.allocate(work, reservations, now)
	s.energy(r, work, reservations, now)
}

// observe lists the devices of a GPU that slots can be on.
func (s *Sampler) observe(r gpu.Reading, activities Activities) []observation {
	if !r.MIGEnabled {
		o := observation{device: Device{GPU: r.GPU}, kernel: ratio(r.KernelTime), dram: ratio(r.DRAMActivity),
			samples: r.Samples, part: gpu.Known(1.0)}
		o.activity, o.source = best(r.SMActivity, activities, Instance{GPU: r.GPU, ID: WholeGPU})
		if !r.Processes.Known {
			o.activity, o.kernel = gpu.Measured[float64]{}, gpu.Measured[float64]{} // somebody unseen may have used it
		}
		return []observation{o}
	}
	devices := map[int]int{}
	for _, i := range r.Instances {
		devices[i.GPUInstance]++
	}
	var out []observation
	for _, i := range r.Instances {
		o := observation{device: Device{GPU: r.GPU, MIG: i.UUID}}
		if devices[i.GPUInstance] == 1 && i.Processes.Known {
			o.activity, o.source = best(i.SMActivity, activities, Instance{GPU: r.GPU, ID: i.GPUInstance})
		}
		if i.Multiprocessors > 0 && r.Multiprocessors >= i.Multiprocessors {
			o.part = gpu.Known(float64(i.Multiprocessors) / float64(r.Multiprocessors))
		}
		out = append(out, o)
	}
	return out
}

func ratio(a gpu.Measured[gpu.Activity]) gpu.Measured[float64] {
	return gpu.Measured[float64]{Value: a.Value.Ratio, Known: a.Known}
}

// best prefers the driver's own counters, which cover the whole interval.
func best(own gpu.Measured[gpu.Activity], others Activities, i Instance) (gpu.Measured[float64], string) {
	if own.Known {
		return ratio(own), sourceGPM
	}
	if v, ok := others[i]; ok {
		return gpu.Known(v), sourceDCGM
	}
	return gpu.Measured[float64]{}, ""
}

// workload is the work of one GPU's slots in parts of the GPU.
type workload struct {
	// total is the activity of the whole GPU, unless a device did not tell its own.
	total   float64
	unknown bool
	// waiting: a device will tell its activity a little later.
	waiting bool
	parts   map[Device]float64
	slots   map[slotOn]Spread
	// guess is each slot's part of the work where the activity is not known.
	guess map[slotOn]Range
}

func (w *workload) add(o observation, last share, ok bool) {
	w.waiting = w.waiting || !ok && last.method != MethodNone
	if o.part.Known {
		w.parts[o.device] = o.part.Value
	}
	if ok && o.part.Known && o.activity.Known {
		w.total += o.activity.Value * o.part.Value
	} else {
		w.unknown = true
	}
	for k, s := range last.slots {
		w.slots[slotOn{k, o.device}] = s.times(o.part.Value)
	}
	if o.device.MIG == "" {
		for k, r := range last.guess {
			w.guess[slotOn{k, o.device}] = r
		}
	}
}

// allocate counts the GPU-seconds that the slots were given, worked or not.
func (s *Sampler) allocate(work workload, reservations reserved, now time.Time) {
	for d, part := range work.parts {
		for _, b := range reservations[d] {
			k := slotOn{b.Slot, d}
			took := s.books.since(k, now, s.longest())
			s.books.add(k, SlotTotals{Allocated: took.Seconds() * b.Share * part}, now)
		}
	}
}

// energy divides what the GPU drew. An interval whose activity is not known yet
// waits for it; the energy of one that cannot be divided stays with the GPU.
func (s *Sampler) energy(r gpu.Reading, work workload, reservations reserved, now time.Time) {
	m := s.meters[r.GPU]
	if m == nil {
		m = &meter{}
		s.meters[r.GPU] = m
	}
	if r.Power.Known && idleGPU(r) {
		m.rest(float64(r.Power.Value) / 1000)
	}
	if !m.advance(r.Energy, now) || work.waiting && !m.late(s.longest()) {
		return
	}
	joules, took := m.draw()
	var claims []claim
	var keys []slotOn
	if took <= s.longest() {
		keys, claims = claimsOf(work, reservations)
	}
	spreads, rest := apportion(joules, m.idle.Value*took.Seconds(), claims) // without idle all energy counts as active
	m.unattributed = sum(m.unattributed, gpu.Known(rest))
	for i, k := range keys {
		s.books.add(k, SlotTotals{Energy: spreads[i]}, now)
	}
}

// idleGPU: no process has a context, on the GPU or on any of its MIG devices.
func idleGPU(r gpu.Reading) bool {
	empty := func(p gpu.Measured[[]gpu.DeviceProcess]) bool { return p.Known && len(p.Value) == 0 }
	for _, i := range r.Instances {
		if !empty(i.Processes) {
			return false
		}
	}
	return r.MIGEnabled || empty(r.Processes)
}
