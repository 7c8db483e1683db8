package usage

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gpuslot/gpuslot/gpu"
)

// world is a fake GPU behind MPS whose truth is known: slots with clients that
// come and go between the rounds.
type world struct {
	*node
	r     *rand.Rand
	slots []SlotKey
	caps  map[SlotKey]float64
	// clients by slot: PIDs that are there now.
	clients map[SlotKey][]int
	next    int
	energy  uint64
	// truth are GPU-seconds.
	truth    map[SlotKey]float64
	activity float64
}

func newWorld(t *testing.T, seed uint64, slots int) *world {
	w := &world{node: newNode(t), r: rand.New(rand.NewPCG(seed, 2)), caps: map[SlotKey]float64{}, clients: map[SlotKey][]int{}, next: 1000, truth: map[SlotKey]float64{}}
	for i := range slots {
		k := SlotKey{Slot: fmt.Sprintf("slot1_%d", i+1), Starter: 10 + i, Started: 1}
		w.slots = append(w.slots, k)
		w.caps[k] = []float64{0.1, 0.25, 0.5, 1}[w.r.IntN(4)]
		w.bookings = append(w.bookings, Reservation{Slot: k, Device: wholeA, Share: 1 / float64(slots), MPS: true, Cap: w.caps[k]})
	}
	w.come(t)
	return w
}

// come lets clients end and start.
func (w *world) come(t *testing.T) {
	for _, k := range w.slots {
		if n := len(w.clients[k]); n > 0 && w.r.IntN(3) == 0 {
			w.clients[k] = w.clients[k][1:]
		}
		if w.r.IntN(3) == 0 {
			w.process(t, w.next, 1)
			w.node.slots[w.next] = k
			w.clients[k] = append(w.clients[k], w.next)
			w.next++
		}
	}
}

// second lets a second pass: every client works as it likes within its cap, for
// those that change in the middle only a part of it; kernels overlap.
func (w *world) second(t *testing.T, outsider bool) {
	before := map[SlotKey]int{}
	for _, k := range w.slots {
		before[k] = len(w.clients[k])
	}
	old := w.clients
	w.clients = map[SlotKey][]int{}
	for k, c := range old {
		w.clients[k] = append([]int(nil), c...)
	}
	w.come(t)
	var most, sum float64
	for _, k := range w.slots {
		all := map[int]bool{}
		for _, pid := range append(old[k], w.clients[k]...) {
			all[pid] = true
		}
		u := min(1, float64(len(all))*w.caps[k]) * w.r.Float64()
		w.truth[k] += u
		most, sum = max(most, u), sum+u
	}
	if outsider {
		u := w.r.Float64()
		most, sum = max(most, u), sum+u
	}
	// Any activity between "all on the same SMs" and "all side by side" is possible.
	w.activity = most + (min(1, sum)-most)*w.r.Float64()
	w.energy += uint64(50e3 + 250e3*w.activity)
	if w.r.IntN(8) == 0 {
		w.energy = uint64(10e3 * w.r.Float64()) // the driver was loaded again
	}
	w.now = w.now.Add(time.Second)
	w.readings = []gpu.Reading{w.reading(outsider)}
}

const outsiderPID = 999

func (w *world) reading(outsider bool) gpu.Reading {
	r := gpu.Reading{GPU: gpuA, At: time.Now(), Energy: gpu.Known(w.energy)}
	var list []gpu.DeviceProcess
	for _, k := range w.slots {
		for _, pid := range w.clients[k] {
			list = append(list, gpu.DeviceProcess{PID: pid, Memory: gpu.Known(gib), MPSClient: true})
		}
	}
	if outsider {
		list = append(list, gpu.DeviceProcess{PID: outsiderPID, Memory: gpu.Known(gib)})
	}
	r.Processes = gpu.Known(list)
	r.SMActivity = gpu.Known(gpu.Activity{Ratio: w.activity})
	return r
}

func within(s Spread, truth float64) bool {
	return s.Lower.Value <= truth+tiny && truth <= s.Upper.Value+tiny && s.Lower.Value <= s.Estimate.Value+tiny && s.Estimate.Value <= s.Upper.Value+tiny
}

// Over random minutes: the truth is inside every slot's bounds, the sums close,
// and no counter falls.
func TestSumsOfRandomMinutes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		outsider := rapid.Bool().Draw(rt, "outsider")
		w := newWorld(t, rapid.Uint64().Draw(rt, "seed"), rapid.IntRange(1, 5).Draw(rt, "slots"))
		w.process(t, outsiderPID, 1)
		s := w.sampler()
		w.readings = []gpu.Reading{w.reading(outsider)}
		s.Round(t.Context()) // what was before nobody knows
		var last *Snapshot
		base := w.energy
		for range rapid.IntRange(1, 30).Draw(rt, "seconds") {
			w.second(t, outsider)
			s.Round(t.Context())
			snap := s.Snapshot()
			w.check(rt, snap, float64(base)/1000)
			if last != nil {
				neverFalls(rt, last, snap)
			}
			last = snap
		}
	})
}

func (w *world) check(t *rapid.T, snap *Snapshot, base float64) {
	d, ok := snap.Device(wholeA)
	if !ok {
		t.Fatal("the GPU vanished")
	}
	sm, energy := d.Total.UnattributedSM.Value, d.Total.UnattributedEnergy.Value
	for _, c := range snap.Counters {
		sm += c.Total.SM.Estimate.Value
		energy += c.Total.Energy.Estimate.Value
	}
	if math.Abs(sm-d.Total.SM.Value) > 1e-6 {
		t.Fatalf("slots and rest make %v SM-seconds, the GPU has %v", sm, d.Total.SM.Value)
	}
	if math.Abs(energy-(d.Total.Energy.Value-base)) > 1e-6 {
		t.Fatalf("slots and rest make %v J, the GPU drew %v", energy, d.Total.Energy.Value-base)
	}
	for _, u := range snap.Slots {
		if !within(u.Job.SM, w.truth[u.Slot]) {
			t.Fatalf("%s worked %v GPU-seconds, outside %+v (%s)", u.Slot.Slot, w.truth[u.Slot], u.Job.SM, u.Method)
		}
	}
}

func neverFalls(t *rapid.T, a, b *Snapshot) {
	old := map[string]SlotCounters{}
	for _, c := range a.Counters {
		old[c.Slot] = c
	}
	for _, c := range b.Counters {
		o := old[c.Slot].Total
		for _, pair := range [][2]float64{
			{o.Allocated, c.Total.Allocated}, {o.SM.Lower.Value, c.Total.SM.Lower.Value}, {o.SM.Estimate.Value, c.Total.SM.Estimate.Value},
			{o.SM.Upper.Value, c.Total.SM.Upper.Value}, {o.Energy.Lower.Value, c.Total.Energy.Lower.Value},
			{o.Energy.Estimate.Value, c.Total.Energy.Estimate.Value}, {o.Energy.Upper.Value, c.Total.Energy.Upper.Value},
		} {
			if pair[1] < pair[0] {
				t.Fatalf("a counter of %s fell from %v to %v", c.Slot, pair[0], pair[1])
			}
		}
	}
	da, _ := a.Device(wholeA)
	db, _ := b.Device(wholeA)
	if db.Total.Energy.Value < da.Total.Energy.Value || db.Total.SM.Value < da.Total.SM.Value || db.Total.Sampled < da.Total.Sampled {
		t.Fatalf("a counter of the GPU fell: %+v, %+v", da.Total, db.Total)
	}
}

// Each method, and what it may claim.
func TestMethods(t *testing.T) {
	book := func(k SlotKey, mps bool, limit float64) Reservation {
		return Reservation{Slot: k, Device: wholeA, Share: 0.5, MPS: mps, Cap: limit}
	}
	active := func(a float64) gpu.Measured[gpu.Activity] { return gpu.Known(gpu.Activity{Ratio: a}) }
	for _, c := range []struct {
		name     string
		bookings []Reservation
		outsider bool
		read     func(*gpu.Reading)
		method   Method
		want     Spread
	}{
		{"alone", []Reservation{book(slot1, true, 0.25)}, false, func(r *gpu.Reading) { r.SMActivity = active(0.2) }, MethodExclusive, spread(Range{0.2, 0.2, 0.2})},
		{"two through MPS", []Reservation{book(slot1, true, 0.25), book(slot2, true, 0.5)}, false, func(r *gpu.Reading) { r.SMActivity = active(0.6) }, MethodMPS, spread(Range{0.1, 0.2, 0.25})},
		{"the other has no process", []Reservation{book(slot1, true, 0.25), book(SlotKey{Slot: "slot1_9"}, true, 0.5)}, false, func(r *gpu.Reading) { r.SMActivity = active(0.2) }, MethodMPS, spread(Range{0.2, 0.2, 0.2})},
		{"somebody without a slot", []Reservation{book(slot1, true, 0.25)}, true, func(r *gpu.Reading) { r.SMActivity = active(0.5) }, MethodMPS, spread(Range{0, 0.1, 0.25})},
		{"in turn", []Reservation{book(slot1, false, 1), book(slot2, false, 1)}, false, func(r *gpu.Reading) {
			r.SMActivity = active(0.8)
			r.Samples = gpu.Known([]gpu.ProcessSample{{PID: 100, SM: 0.5}, {PID: 102, SM: 0.1}})
		}, MethodTimeslice, spread(Range{0, 0.5, 0.8})},
		{"kernel time only", []Reservation{book(slot1, true, 0.25), book(slot2, true, 0.5)}, false, func(r *gpu.Reading) { r.KernelTime = active(0.1) }, MethodMPS, atMost(0.11)},
		{"nothing told", []Reservation{book(slot1, true, 0.25), book(slot2, true, 0.5)}, false, func(*gpu.Reading) {}, MethodNone, Spread{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			for _, pid := range []int{100, 102, 105} {
				n.process(t, pid, 1)
			}
			n.slots = map[int]SlotKey{100: slot1, 102: slot2}
			n.bookings = c.bookings
			list := []gpu.DeviceProcess{on(100, gib)}
			if len(c.bookings) > 1 && c.bookings[1].Slot == slot2 {
				list = append(list, on(102, gib))
			}
			if c.outsider {
				list = append(list, on(105, gib))
			}
			n.readings = []gpu.Reading{reads(gpuA, list...)}
			c.read(&n.readings[0])
			s := n.sampler()
			n.round(t, s)
			u, ok := n.round(t, s).Slot(slot1, wholeA)
			if !ok || u.Method != c.method || !same(u.SM, c.want) {
				t.Errorf("method %q, %+v; want %q, %+v", u.Method, u.SM, c.method, c.want)
			}
		})
	}
}

func same(a, b Spread) bool {
	eq := func(a, b gpu.Measured[float64]) bool { return a.Known == b.Known && math.Abs(a.Value-b.Value) < tiny }
	return eq(a.Lower, b.Lower) && eq(a.Estimate, b.Estimate) && eq(a.Upper, b.Upper)
}

// A slot that starts clients and ends them in a moment may have more of them
// than a sample shows: its cap does not bound it.
func TestShortLivedClientsAreNotTrusted(t *testing.T) {
	n := newNode(t)
	n.process(t, 100, 1)
	n.process(t, 102, 1)
	n.slots = map[int]SlotKey{100: slot1, 102: slot2}
	n.bookings = []Reservation{{Slot: slot1, Device: wholeA, MPS: true, Cap: 0.25}, {Slot: slot2, Device: wholeA, MPS: true, Cap: 0.25}}
	s := n.sampler()
	look := func(list ...gpu.DeviceProcess) SlotUsage {
		n.readings = []gpu.Reading{reads(gpuA, list...)}
		n.readings[0].SMActivity = gpu.Known(gpu.Activity{Ratio: 0.4})
		u, _ := n.round(t, s).Slot(slot1, wholeA)
		return u
	}
	look(on(100, gib), on(102, gib))
	if u := look(on(100, gib), on(102, gib)); math.Abs(u.SM.Lower.Value-0.15) > tiny {
		t.Fatalf("%+v", u.SM)
	}
	look(on(100, gib))
	if u := look(on(100, gib)); u.SM.Lower.Value != 0 {
		t.Errorf("slot1_2 may have had another client, but slot1_1 is said to have worked %v at least", u.SM.Lower.Value)
	}
	for range 70 {
		look(on(100, gib))
	}
	if u := look(on(100, gib)); u.SM.Lower.Value == 0 {
		t.Errorf("a minute later slot1_2 still counts: %+v", u.SM)
	}
}

// The memory's bandwidth is the GPU's: nobody is given a part of it, and what
// does not tell it has no sum.
func TestBandwidthIsSummed(t *testing.T) {
	n := newNode(t)
	told, untold := reads(gpuA), reads(gpuB)
	told.SMActivity, told.DRAMActivity = gpu.Known(gpu.Activity{Ratio: 0.8}), gpu.Known(gpu.Activity{Ratio: 0.5})
	untold.SMActivity = told.SMActivity
	n.readings = []gpu.Reading{told, untold}
	s := n.sampler()
	n.round(t, s)
	n.round(t, s)
	snap := n.round(t, s)
	d, _ := snap.Device(wholeA)
	if d.Total.Sampled == 0 || d.Total.DRAM != gpu.Known(0.5*d.Total.Sampled) {
		t.Errorf("half of the bandwidth: %+v", d.Total)
	}
	if d, _ := snap.Device(Device{GPU: gpuB}); d.Total.DRAM.Known || !d.Total.SM.Known {
		t.Errorf("a GPU without the metric: %+v", d.Total)
	}
}

// After a time in which nobody looked, nothing of it is divided; the energy
// stays with the GPU.
func TestAGapIsNotDivided(t *testing.T) {
	n := newNode(t)
	n.process(t, 100, 1)
	n.slots[100] = slot1
	n.bookings = []Reservation{{Slot: slot1, Device: wholeA, Share: 1}}
	r := reads(gpuA, on(100, gib))
	r.SMActivity, r.Energy = gpu.Known(gpu.Activity{Ratio: 0.5}), gpu.Known[uint64](1000)
	n.readings = []gpu.Reading{r}
	s := n.sampler()
	n.round(t, s)
	n.now = n.now.Add(time.Hour)
	n.readings[0].Energy = gpu.Known[uint64](9000)
	snap := n.round(t, s)
	d, _ := snap.Device(wholeA)
	u, _ := snap.Slot(slot1, wholeA)
	if d.Total.Sampled != 0 || u.Job.SM.Estimate.Known || u.Job.Allocated != 0 {
		t.Errorf("an hour that nobody saw was divided: %+v, %+v", d.Total, u.Job)
	}
	if d.Total.Energy != gpu.Known(9.0) || d.Total.UnattributedEnergy != gpu.Known(8.0) {
		t.Errorf("8 J are the GPU's own: %+v", d.Total)
	}
}

func TestMIGDevicesAreTheirSlots(t *testing.T) {
	n := newNode(t)
	n.process(t, 100, 1)
	n.process(t, 102, 1)
	n.slots = map[int]SlotKey{100: slot1, 102: slot2}
	migs := []Device{{gpuA, "MIG-0000000a-0000-5000-8000-000000000000"}, {gpuA, "MIG-0000000b-0000-5000-8000-000000000000"}}
	n.bookings = []Reservation{{Slot: slot1, Device: migs[0], Share: 1}, {Slot: slot2, Device: migs[1], Share: 1}}
	r := gpu.Reading{GPU: gpuA, MIGEnabled: true, Multiprocessors: 132, Energy: gpu.Known[uint64](0), Power: gpu.Known[uint64](250), // mW
		Use: gpu.Use{SMActivity: gpu.Known(gpu.Activity{Ratio: 0.5})}, DRAMActivity: gpu.Known(gpu.Activity{Ratio: 0.25})}
	for i, d := range migs {
		r.Instances = append(r.Instances, gpu.InstanceReading{
			UUID: d.MIG, GPUInstance: i + 1, Multiprocessors: []int{66, 33}[i],
			Use: gpu.Use{Processes: gpu.Known([]gpu.DeviceProcess{on([]int{100, 102}[i], gib)}), SMActivity: gpu.Known(gpu.Activity{Ratio: []float64{0.5, 1}[i]})},
		})
	}
	n.readings = []gpu.Reading{r}
	s := n.sampler()
	n.round(t, s)
	n.readings[0].Energy = gpu.Known[uint64](100e3)
	snap := n.round(t, s)
	if d, _ := snap.Device(wholeA); d.Total.DRAM != gpu.Known(0.25*d.Total.Sampled) || d.Total.Sampled == 0 {
		t.Errorf("the GPU's memory was a quarter busy: %+v", d.Total)
	}
	if d, _ := snap.Device(wholeA); d.Activity != gpu.Known(0.5) || d.Power != gpu.Known(0.25) {
		t.Errorf("the GPU's activity and power: %+v", d)
	}
	for i, d := range migs {
		u, ok := snap.Slot(n.bookings[i].Slot, d)
		// Half of 66 SMs and all of 33 are a quarter of the GPU each, and half of its work.
		if !ok || u.Method != MethodMIG || !same(u.Job.SM, spread(Range{0.25, 0.25, 0.25})) || math.Abs(u.Job.Energy.Estimate.Value-50) > tiny {
			t.Errorf("%s: %q %+v", d.MIG, u.Method, u.Job)
		}
		if want := []float64{0.5, 0.25}[i]; math.Abs(u.Job.Allocated-want) > tiny {
			t.Errorf("%s: allocated %v, want %v", d.MIG, u.Job.Allocated, want)
		}
	}
	both, before := n.readings[0].Instances, snap
	n.readings[0].Instances = both[:1]
	if snap := n.round(t, s); len(snap.Devices) != 2 {
		t.Errorf("a MIG device that is gone is still there: %+v", snap.Devices)
	}
	n.readings[0].Instances = both
	was, _ := before.Device(migs[1])
	if d, ok := n.round(t, s).Device(migs[1]); !ok || d.Total.Sampled < was.Total.Sampled || was.Total.Sampled == 0 {
		t.Errorf("a MIG device that is back has sums of %v, before %v", d.Total.Sampled, was.Total.Sampled)
	}
}
