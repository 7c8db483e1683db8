package usage

import (
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// TestASlotWithoutProcessesUsesNothing: that is known, beside one at work and
// where only kernel time is told. There is no estimate then: the sum of those
// to come would lack them.
func TestASlotWithoutProcessesUsesNothing(t *testing.T) {
	for _, c := range []struct {
		name     string
		activity bool
		want     Spread
	}{{"activity", true, spread(Range{})}, {"kernel time", false, atMost(0)}} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			n.process(t, 100, 1)
			n.slots[100] = slot1
			for _, k := range []SlotKey{slot1, slot2} {
				n.bookings = append(n.bookings, Reservation{Slot: k, Device: wholeA, Share: 0.5, MPS: true, Cap: 0.5})
			}
			r := reads(gpuA, on(100, gib))
			r.KernelTime = gpu.Known(gpu.Activity{Ratio: 0.4})
			if c.activity {
				r.SMActivity = gpu.Known(gpu.Activity{Ratio: 0.4})
			}
			n.readings = []gpu.Reading{r}
			s := n.sampler()
			n.round(t, s)
			snap := n.round(t, s)
			if u, _ := snap.Slot(slot2, wholeA); u.SM != c.want || u.Job.SM != c.want || u.Memory != gpu.Known(gpu.Bytes(0)) {
				t.Errorf("the idle one: %+v", u)
			}
			if u, _ := snap.Slot(slot1, wholeA); u.SM.Upper.Value < 0.39 {
				t.Errorf("the one at work: %+v", u)
			}
			// Where nobody lists the processes, nothing is known of any.
			n.readings[0].Processes = gpu.Measured[[]gpu.DeviceProcess]{}
			snap = n.round(t, s)
			if u, _ := snap.Slot(slot2, wholeA); u.Memory.Known || u.SM.Upper.Known {
				t.Errorf("without the list: %+v", u)
			}
		})
	}
}

// TestSightLearnsTheSlot: a process whose slot is learned later is that slot's from then on, which changes then and
// not again.
func TestSightLearnsTheSlot(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(int64(1e9+seconds), 0) }
	tr := newTracker()
	tr.sight([]Process{{DeviceProcess: gpu.DeviceProcess{PID: 100}, Started: 1, Owner: OwnerUnknown}}, at(0))
	for i := 1; i <= 2; i++ {
		tr.sight([]Process{{DeviceProcess: gpu.DeviceProcess{PID: 100}, Started: 1, Owner: OwnerSlot, Slot: slot1}}, at(i))
	}
	if s := tr.sightings[process.ID{PID: 100, Started: 1}]; s.owner != OwnerSlot || s.slot != slot1 {
		t.Errorf("it is sighted as %+v", s)
	}
	if since := tr.changed[slot1]; !since.Equal(at(1)) {
		t.Errorf("the slot changed at %s", since)
	}
}
