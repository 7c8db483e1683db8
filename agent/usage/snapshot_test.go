package usage

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/gpu"
)

// TestSlotsOn: a slot is on a device by what it reserved there or by a process. Several
// reservations add up, and the largest cap counts.
func TestSlotsOn(t *testing.T) {
	slot3 := SlotKey{Slot: "slot1_3"}
	process := func(owner Owner, k SlotKey, memory gpu.Measured[gpu.Bytes]) Process {
		return Process{DeviceProcess: gpu.DeviceProcess{Memory: memory}, Owner: owner, Slot: k}
	}
	r := reading{partly: true, processes: gpu.Known([]Process{
		process(OwnerSlot, slot3, gpu.Known(gib)), process(OwnerSlot, slot1, gpu.Known(gib)), process(OwnerSlot, slot1, gpu.Known(2*gib)),
		process(OwnerNone, slot2, gpu.Known(4*gib)),
	})}
	reservations := []Reservation{{Slot: slot2, Share: 0.5, Cap: 0.5}, {Slot: slot1, Share: 0.125, Cap: 0.25}, {Slot: slot1, Share: 0.125, Cap: 0.125}}
	s := newNode(t).sampler()
	type row struct {
		Slot       string
		Share, Cap float64
		Processes  int
		Memory     gpu.Measured[gpu.Bytes]
		Partly     bool
	}
	rows := func(r reading) (out []row) {
		for _, u := range s.slotsOn(wholeA, r, reservations) {
			out = append(out, row{u.Slot.Slot, u.Share, u.Cap, u.Processes, u.Memory, u.Partly})
		}
		return out
	}
	want := []row{
		{"slot1_1", 0.25, 0.25, 2, gpu.Known(3 * gib), true}, {"slot1_2", 0.5, 0.5, 0, gpu.Known(gpu.Bytes(0)), false},
		{"slot1_3", 0, 0, 1, gpu.Known(gib), true},
	}
	if d := cmp.Diff(want, rows(r)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	r.partly = false
	for i := range want {
		want[i].Partly = false
	}
	if d := cmp.Diff(want, rows(r)); d != "" {
		t.Errorf("all is listed (-want +got):\n%s", d)
	}
	r.processes.Value = append(r.processes.Value, process(OwnerSlot, slot1, gpu.Measured[gpu.Bytes]{}))
	want[0].Processes, want[0].Memory.Known = 3, false
	if d := cmp.Diff(want, rows(r)); d != "" {
		t.Errorf("the memory of one is unknown (-want +got):\n%s", d)
	}
	want = []row{{Slot: "slot1_1", Share: 0.25, Cap: 0.25}, {Slot: "slot1_2", Share: 0.5, Cap: 0.5}}
	if d := cmp.Diff(want, rows(reading{})); d != "" {
		t.Errorf("processes are unknown (-want +got):\n%s", d)
	}
}

// TestDeviceUsage: servers of MPS and jobs' processes are not without an owner.
func TestDeviceUsage(t *testing.T) {
	s := newNode(t).sampler()
	var all []Process
	for i, o := range []Owner{OwnerNone, OwnerEnded, OwnerSlot, OwnerServer} {
		all = append(all, Process{DeviceProcess: gpu.DeviceProcess{Memory: gpu.Known(gib << i)}, Owner: o})
	}
	got := s.deviceUsage(wholeA, reading{processes: gpu.Known(all), Power: gpu.Known(uint64(70_500))})
	if got.Unowned != 2 || got.UnownedMemory != gpu.Known(3*gib) || got.Power != gpu.Known(70.5) {
		t.Errorf("%+v", got)
	}
	if got := s.deviceUsage(wholeA, reading{}); got.UnownedMemory.Known || got.Power.Known {
		t.Errorf("nothing is known: %+v", got)
	}
}

// TestFind: what is not there is not found.
func TestFind(t *testing.T) {
	wholeB := Device{GPU: gpuB}
	s := &Snapshot{Devices: []DeviceUsage{{Device: wholeA}},
		Slots: []SlotUsage{{Slot: slot1, Device: wholeA, Processes: 1}},
		Ended: []SlotUsage{{Slot: slot2, Device: wholeA, Processes: 2}, {Slot: slot1, Device: wholeA, Processes: 3}}}
	for _, c := range []struct {
		slot   SlotKey
		device Device
		now    int // processes; 0 if not found
		last   int
	}{
		{slot1, wholeA, 1, 1}, {slot2, wholeA, 0, 2}, {slot1, wholeB, 0, 0}, {slot2, wholeB, 0, 0}, {SlotKey{}, wholeA, 0, 0},
	} {
		now, isNow := s.Slot(c.slot, c.device)
		last, isLast := s.Last(c.slot, c.device)
		if now.Processes != c.now || isNow != (c.now > 0) || last.Processes != c.last || isLast != (c.last > 0) {
			t.Errorf("%s on %s: %d, %t; last %d, %t", c.slot.Slot, c.device.GPU, now.Processes, isNow, last.Processes, isLast)
		}
	}
	for d, want := range map[Device]bool{wholeA: true, wholeB: false} {
		if got, ok := s.Device(d); ok != want || (got.Device == d) != want {
			t.Errorf("%s: %t", d.GPU, ok)
		}
	}
}

func TestOrder(t *testing.T) {
	devices := []Device{{GPU: "GPU-a"}, {GPU: "GPU-a", MIG: "MIG-1"}, {GPU: "GPU-a", MIG: "MIG-2"}, {GPU: "GPU-b"}, {GPU: "GPU-b", MIG: "MIG-0"}}
	slots := []SlotKey{{Slot: "slot1_1", Started: 1, Starter: 9}, {Slot: "slot1_1", Started: 2, Starter: 7}, {Slot: "slot1_1", Started: 2, Starter: 8},
		{Slot: "slot1_2"}}
	checkOrder(t, devices, compareDevices)
	checkOrder(t, slots, compareSlots)
}

func checkOrder[T comparable](t *testing.T, want []T, compare func(a, b T) int) {
	t.Helper()
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, compare)
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestPublished: devices are in order, and NVML is the only source where there is no DCGM.
func TestPublished(t *testing.T) {
	n := newNode(t)
	n.process(t, 100, 1)
	n.slots[100] = slot1
	n.readings = []gpu.Reading{reads(gpuB), reads(gpuA, on(100, gib))}
	snap := n.round(t, n.sampler())
	if len(snap.Devices) != 2 || snap.Devices[0].GPU != gpuA || len(snap.Slots) != 1 || len(snap.Sources) != 1 || snap.At.IsZero() {
		t.Errorf("%+v", snap)
	}
}

// TestMethodOf: what a slot that is alone used is measured, beside others or somebody without a slot it is not.
func TestMethodOf(t *testing.T) {
	instance := Device{GPU: gpuA, MIG: "MIG-1"}
	for _, c := range []struct {
		d                      Device
		slots                  int
		outsiders, mps, source bool
		want                   Method
	}{
		{wholeA, 1, false, true, false, MethodNone},
		{wholeA, 1, false, true, true, MethodExclusive}, {wholeA, 2, false, true, true, MethodMPS},
		{wholeA, 1, true, true, true, MethodMPS}, {wholeA, 2, false, false, true, MethodTimeslice},
		{instance, 1, false, true, true, MethodMIG}, {instance, 2, false, true, true, MethodMPS},
		{instance, 1, true, true, true, MethodMPS}, {instance, 0, false, false, true, MethodMIG},
	} {
		if got := methodOf(c.d, c.slots, c.outsiders, c.mps, c.source); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
