package usage

import (
	"slices"
	"testing"

	"github.com/gpuslot/gpuslot/gpu"
)

// One job in the life of a GPU: it waits without a context, holds memory without
// working, and works. Its idle time, its use of the bandwidth and the curve of
// its memory are known second by second.
func TestIdleTimeBandwidthAndCurve(t *testing.T) {
	for _, activity := range []bool{true, false} {
		n := newNode(t)
		n.process(t, 100, 1)
		n.slots[100] = slot1
		n.bookings = []Reservation{{Slot: slot1, Device: wholeA, Share: 1, Cap: 1}}
		s := n.sampler()
		second := func(works, dram float64, processes ...gpu.DeviceProcess) SlotUsage {
			r := reads(gpuA, processes...)
			r.KernelTime, r.DRAMActivity = gpu.Known(gpu.Activity{Ratio: works}), gpu.Known(gpu.Activity{Ratio: dram})
			if activity {
				r.SMActivity = gpu.Known(gpu.Activity{Ratio: works})
			}
			n.readings = []gpu.Reading{r}
			u, _ := n.round(t, s).Slot(slot1, wholeA)
			return u
		}
		second(0, 0)
		second(0, 0)
		second(0, 0, on(100, gib))
		second(0.5, 0.25, on(100, 3*gib))
		second(0.5, 0.25, on(100, 2*gib))
		u := second(0, 0, on(100, 2*gib))
		if u.Job.Idle != gpu.Known(3.0) || u.Job.DRAM != gpu.Known(0.5) {
			t.Errorf("activity %v: idle %v of 5 s, bandwidth %v", activity, u.Job.Idle, u.Job.DRAM)
		}
		if want := []int64{0, 0, 1024, 3072, 2048, 2048}; u.Curve == nil || !slices.Equal(u.Curve.MiB, want) {
			t.Errorf("activity %v: %+v, want %v", activity, u.Curve, want)
		}
	}
}

// Beside another job nobody knows whose work or bandwidth it is; that the GPU
// rests is known of both.
func TestNobodyIsIdleBesideWork(t *testing.T) {
	n := newNode(t)
	n.process(t, 100, 1)
	n.process(t, 101, 1)
	n.slots = map[int]SlotKey{100: slot1, 101: slot2}
	for _, k := range []SlotKey{slot1, slot2} {
		n.bookings = append(n.bookings, Reservation{Slot: k, Device: wholeA, Share: 0.5, MPS: true, Cap: 0.5})
	}
	s := n.sampler()
	for _, works := range []float64{0, 0.3, 0} {
		r := reads(gpuA, on(100, gib), on(101, gib))
		r.SMActivity, r.DRAMActivity = gpu.Known(gpu.Activity{Ratio: works}), gpu.Known(gpu.Activity{Ratio: works})
		n.readings = []gpu.Reading{r}
		n.round(t, s)
	}
	for _, k := range []SlotKey{slot1, slot2} {
		u, _ := s.Snapshot().Slot(k, wholeA)
		if u.Job.Idle != gpu.Known(1.0) || u.Job.DRAM.Known {
			t.Errorf("%s: %+v", k.Slot, u.Job)
		}
	}
}
