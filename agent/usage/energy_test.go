package usage

import (
	"math"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// twoSlots are booked on one GPU, half of it each, and idle power is 40 W.
func twoSlots(t *testing.T) (*node, *Sampler) {
	n := newNode(t)
	n.process(t, 100, 1)
	n.process(t, 102, 1)
	n.slots = map[int]SlotKey{100: slot1, 102: slot2}
	for _, k := range []SlotKey{slot1, slot2} {
		n.bookings = append(n.bookings, Reservation{Slot: k, Device: wholeA, Share: 0.5, MPS: true, Cap: 0.5})
	}
	n.readings = []gpu.Reading{reads(gpuA, on(100, gib))}
	s := n.sampler()
	s.meters[gpuA] = &meter{idle: gpu.Known(40.0)}
	return n, s
}

// next is the snapshot a second later, when the counter shows so many joules.
func (n *node) next(t *testing.T, s *Sampler, joules float64, set func(*gpu.Reading)) *Snapshot {
	t.Helper()
	n.readings[0].Energy = gpu.Known(uint64(joules * 1000))
	n.readings[0].SMActivity, n.readings[0].KernelTime = gpu.Measured[gpu.Activity]{}, gpu.Measured[gpu.Activity]{}
	set(&n.readings[0])
	return n.round(t, s)
}

func joulesOf(s *Snapshot, k SlotKey) Spread {
	u, _ := s.Slot(k, wholeA)
	return u.Job.Energy
}

func ratioIs(a float64) gpu.Measured[gpu.Activity] { return gpu.Known(gpu.Activity{Ratio: a}) }

func TestIdlePowerGoesByShare(t *testing.T) {
	n, s := twoSlots(t)
	busy := func(r *gpu.Reading) { r.SMActivity = ratioIs(0.5) }
	n.next(t, s, 1000, busy)
	snap := n.next(t, s, 1200, busy)
	// 40 J idle: 20 each; the other 160 J are slot1_1's, the only one at work.
	if got := joulesOf(snap, slot1); !same(got, spread(Range{180, 180, 180})) {
		t.Errorf("slot1_1: %+v", got)
	}
	if got := joulesOf(snap, slot2); !same(got, spread(Range{20, 20, 20})) {
		t.Errorf("slot1_2: %+v", got)
	}
}

// Energy waits for the activity of its interval, and comes to nobody if that
// never comes.
func TestEnergyWaitsForTheActivity(t *testing.T) {
	n, s := twoSlots(t)
	busy := func(r *gpu.Reading) { r.SMActivity = ratioIs(0.5) }
	late := func(*gpu.Reading) {}
	n.next(t, s, 0, busy)
	n.next(t, s, 0, busy)
	snap := n.next(t, s, 100, late)
	if got := joulesOf(snap, slot1).Estimate.Value; got != 0 {
		t.Errorf("divided by nothing: %v", got)
	}
	snap = n.next(t, s, 200, busy)
	if got := joulesOf(snap, slot1).Estimate.Value; math.Abs(got-160) > tiny { // 40 + 120
		t.Errorf("of 200 J in 2 s slot1_1 should have 160, has %v", got)
	}
	for range 5 {
		snap = n.next(t, s, 1000, late)
	}
	d, _ := snap.Device(wholeA)
	if got := d.Total.UnattributedEnergy.Value; got != 800 {
		t.Errorf("the 800 J of five seconds without activity should be the GPU's, it has %v", got)
	}
}

func TestEnergyOfAGapIsTheGPUs(t *testing.T) {
	n, s := twoSlots(t)
	busy := func(r *gpu.Reading) { r.SMActivity = ratioIs(0.5) }
	n.next(t, s, 0, busy)
	n.now = n.now.Add(time.Hour)
	snap := n.next(t, s, 500, busy)
	d, _ := snap.Device(wholeA)
	if joulesOf(snap, slot1).Estimate.Known || d.Total.UnattributedEnergy != gpu.Known(500.0) {
		t.Errorf("%+v, %+v", joulesOf(snap, slot1), d.Total)
	}
}

// Without activity the energy is guessed at, and the bounds say how well.
func TestEnergyByKernelTime(t *testing.T) {
	n, s := twoSlots(t)
	kernels := func(r *gpu.Reading) { r.KernelTime = ratioIs(0.5) }
	n.next(t, s, 0, kernels)
	snap := n.next(t, s, 100, kernels)
	if got := joulesOf(snap, slot1); !same(got, spread(Range{80, 80, 80})) {
		t.Errorf("the only slot at work: %+v", got)
	}
	n.readings = []gpu.Reading{reads(gpuA, on(100, gib), on(102, gib))}
	n.next(t, s, 100, kernels)
	before := joulesOf(s.Snapshot(), slot2)
	after := joulesOf(n.next(t, s, 200, kernels), slot2)
	got := Range{after.Lower.Value - before.Lower.Value, after.Estimate.Value - before.Estimate.Value, after.Upper.Value - before.Upper.Value}
	if got != (Range{20, 50, 80}) {
		t.Errorf("one of two: %+v", got)
	}
	snap = n.next(t, s, 300, func(r *gpu.Reading) { r.KernelTime = ratioIs(0) })
	if d, _ := snap.Device(wholeA); d.Total.UnattributedEnergy.Value != 60 {
		t.Errorf("what an idle GPU draws above its idle power is nobody's: %+v", d.Total)
	}
}

func TestIdlePowerIsLearned(t *testing.T) {
	n, s := twoSlots(t)
	delete(s.meters, gpuA)
	n.readings = []gpu.Reading{reads(gpuA)}
	for _, watts := range []uint64{60, 50, 55} {
		n.next(t, s, 0, func(r *gpu.Reading) { r.Power = gpu.Known(watts * 1000) })
	}
	n.readings = []gpu.Reading{reads(gpuA, on(100, gib))}
	snap := n.next(t, s, 100, func(r *gpu.Reading) { r.Power, r.SMActivity = gpu.Known[uint64](20e3), ratioIs(0) })
	if got := joulesOf(snap, slot2).Estimate.Value; got != 25 {
		t.Errorf("half of 50 W for a second are 25 J, not %v", got)
	}
}

// Nobody can have used a GPU whose processes are not known, nor not have.
func TestUnknownProcessesDivideNothing(t *testing.T) {
	n, s := twoSlots(t)
	busy := func(r *gpu.Reading) { r.SMActivity = ratioIs(0.5) }
	n.readings[0].Processes = gpu.Measured[[]gpu.DeviceProcess]{}
	n.next(t, s, 0, busy)
	snap := n.next(t, s, 100, busy)
	u, ok := snap.Slot(slot1, wholeA)
	if !ok || u.Memory.Known || u.SM.Upper.Known || u.Job.SM.Lower.Known {
		t.Errorf("%+v", u)
	}
	known := reads(gpuA, on(100, gib))
	n.readings[0].Processes = known.Processes
	n.next(t, s, 200, busy)
	before, _ := n.next(t, s, 300, busy).Device(wholeA)
	n.readings[0].Processes = gpu.Measured[[]gpu.DeviceProcess]{}
	snap = n.next(t, s, 400, busy)
	after, _ := snap.Device(wholeA)
	if u, _ := snap.Slot(slot1, wholeA); u.SM.Upper.Known || after.Total.Sampled != before.Total.Sampled {
		t.Errorf("those of the round before may not be all: %+v", u)
	}
}

// Shares that add up to more than the GPU do not make more energy of it.
func TestSharesBeyondTheGPU(t *testing.T) {
	n, s := twoSlots(t)
	for i := range n.bookings {
		n.bookings[i].Share = 1
	}
	busy := func(r *gpu.Reading) { r.SMActivity = ratioIs(0.5) }
	n.next(t, s, 0, busy)
	snap := n.next(t, s, 100, busy)
	if a, b := joulesOf(snap, slot1).Estimate.Value, joulesOf(snap, slot2).Estimate.Value; a != 80 || b != 20 {
		t.Errorf("of 100 J, 40 of them idle: %v and %v", a, b)
	}
}

func TestEndedJobsStayForAWhile(t *testing.T) {
	n, s := twoSlots(t)
	busy := func(r *gpu.Reading) { r.SMActivity = ratioIs(0.5) }
	n.next(t, s, 0, busy)
	n.next(t, s, 100, busy)
	last := n.now
	n.bookings = n.bookings[1:]
	n.readings = []gpu.Reading{reads(gpuA)}
	snap := n.next(t, s, 200, busy)
	if len(snap.Ended) != 1 || snap.Ended[0].Slot != slot1 || !snap.Ended[0].Ended.Equal(last) || snap.Ended[0].Peak != gpu.Known(gib) {
		t.Fatalf("%+v", snap.Ended)
	}
	// It was there at the beginning of the last interval.
	if sm := snap.Ended[0].Job.SM; !same(sm, spread(Range{1, 1, 1})) {
		t.Errorf("%+v", sm)
	}
	if len(snap.Counters) != 2 {
		t.Errorf("%+v", snap.Counters)
	}
	for range 60 {
		n.now = n.now.Add(keepEnded / 50)
		snap = n.round(t, s)
	}
	if len(snap.Ended) != 0 || len(snap.Counters) != 1 {
		t.Errorf("an hour later they are still there: %+v", snap)
	}
}
