package usage

import (
	"fmt"
	"testing"

	"github.com/gpuslot/gpuslot/gpu"
)

const mib = gpu.Bytes(1 << 20)

// uses is a reading of a GPU of 15360 MiB whose driver reserves 393.
func uses(used gpu.Bytes, processes ...gpu.DeviceProcess) gpu.Reading {
	r := reads(gpuA, processes...)
	r.Memory = gpu.Known(gpu.MemoryUse{Total: 15360 * mib, Reserved: gpu.Known(393 * mib), Used: used,
		Free: 15360*mib - 393*mib - used})
	return r
}

// TestUnlistedMemory: what a device uses beyond its list is the least of three readings, and
// unknown where one of them has no number.
func TestUnlistedMemory(t *testing.T) {
	for name, c := range map[string]struct {
		readings []gpu.Reading
		want     gpu.Measured[gpu.Bytes]
	}{
		"H200 under load, as a capture has it": {
			[]gpu.Reading{uses(32362*mib, on(100, 32342*mib)), uses(32362*mib, on(100, 32342*mib)),
				uses(32362*mib, on(100, 32342*mib))}, gpu.Known(gpu.Bytes(0))},
		"T4 under MPS, as a public listing has it": {
			[]gpu.Reading{uses(1417*mib, on(100, 516*mib)), uses(1417*mib, on(100, 516*mib)),
				uses(1417*mib, on(100, 516*mib))}, gpu.Known(875 * mib)},
		"two readings are too few": {
			[]gpu.Reading{uses(1417*mib, on(100, 516*mib)), uses(1417*mib, on(100, 516*mib))}, gpu.Measured[gpu.Bytes]{}},
		"a process allocated between the two calls of one reading": {
			[]gpu.Reading{uses(4000*mib, on(100, 516*mib)), uses(516*mib, on(100, 516*mib)),
				uses(4000*mib, on(100, 516*mib))}, gpu.Known(gpu.Bytes(0))},
		"the memory of a process is unknown": {
			[]gpu.Reading{uses(1417*mib, on(100, 516*mib)), uses(1417*mib, gpu.DeviceProcess{PID: 100}),
				uses(1417*mib, on(100, 516*mib))}, gpu.Measured[gpu.Bytes]{}},
		"the reserve is unknown": {
			[]gpu.Reading{reads(gpuA), reads(gpuA), reads(gpuA)}, gpu.Measured[gpu.Bytes]{}},
	} {
		n := newNode(t)
		n.process(t, 100, 1)
		s := n.sampler()
		for _, r := range c.readings {
			n.readings = []gpu.Reading{r}
			n.round(t, s)
		}
		if d, _ := s.Snapshot().Device(wholeA); d.Unlisted != c.want {
			t.Errorf("%s: %+v, want %+v", name, d.Unlisted, c.want)
		}
	}
}

// TestUnlistedOfMIGDevices: each has numbers of its own, here those of captures of an H100 and an
// H200. Those of one GPU instance report the same memory.
func TestUnlistedOfMIGDevices(t *testing.T) {
	n := newNode(t)
	r := uses(11091*mib, on(90, 100*mib))
	r.MIGEnabled = true
	want := map[gpu.UUID]gpu.Measured[gpu.Bytes]{}
	for i, d := range []struct {
		instance         int
		of, used, listed gpu.Bytes
		want             gpu.Measured[gpu.Bytes]
	}{
		{2, 40448, 11091, 11052, gpu.Known(13 * mib)}, {3, 20096, 17, 0, gpu.Known(gpu.Bytes(0))},
		{4, 16384, 1417, 516, gpu.Known(875 * mib)},
		{5, 71424, 16925, 0, gpu.Measured[gpu.Bytes]{}}, {5, 71424, 16925, 16890, gpu.Measured[gpu.Bytes]{}},
	} {
		n.process(t, 100+i, 1)
		u := gpu.UUID(fmt.Sprintf("MIG-0000000%d-0000-5000-8000-000000000000", i))
		want[u] = d.want
		r.Instances = append(r.Instances, gpu.InstanceReading{UUID: u, GPUInstance: d.instance, Use: gpu.Use{
			Memory:    gpu.Known(gpu.MemoryUse{Total: d.of * mib, Reserved: gpu.Known(gpu.Bytes(0)), Used: d.used * mib, Free: (d.of - d.used) * mib}),
			Processes: gpu.Known([]gpu.DeviceProcess{on(100+i, d.listed*mib)}),
		}})
	}
	n.readings = []gpu.Reading{r}
	s := n.sampler()
	for range unlistedReadings {
		n.round(t, s)
	}
	for u, want := range want {
		if d, ok := s.Snapshot().Device(Device{GPU: gpuA, MIG: u}); !ok || d.Unlisted != want {
			t.Errorf("%s: %+v, want %+v", u, d.Unlisted, want)
		}
	}
	if d, _ := s.Snapshot().Device(wholeA); d.Unlisted.Known {
		t.Errorf("the GPU in MIG mode: %+v", d.Unlisted)
	}
}

// TestUnlistedIsAState: beyond the tolerance.
func TestUnlistedIsAState(t *testing.T) {
	for at, want := range map[gpu.Measured[gpu.Bytes]]bool{
		gpu.Known(64 * mib): false, gpu.Known(64*mib + 1): true, {Value: 900 * mib}: false,
	} {
		if Unlisted(at) != want {
			t.Errorf("%+v", at)
		}
	}
}

// TestUnlistedHidesThePeak: where jobs may hold what is not listed, the peak of each is unknown
// from then on. What was there before them is of no job.
func TestUnlistedHidesThePeak(t *testing.T) {
	n := newNode(t)
	n.process(t, 100, 1)
	n.slots[100] = slot1
	n.bookings = []Reservation{{Slot: slot1, Device: wholeA, Share: 1, Cap: 1}}
	s := n.sampler()
	after := func(r gpu.Reading) SlotUsage {
		t.Helper()
		n.readings = []gpu.Reading{r}
		for range unlistedReadings {
			n.round(t, s)
		}
		u, _ := s.Snapshot().Slot(slot1, wholeA)
		return u
	}
	after(uses(2000 * mib))
	job := on(100, 500*mib)
	if u := after(uses(2500*mib, job)); u.Partly || u.Peak != gpu.Known(500*mib) || u.Curve == nil {
		t.Errorf("2000 MiB were in use before the job: %+v", u)
	}
	if u := after(uses(3400*mib, job)); !u.Partly || u.Peak.Known || u.Curve != nil || u.Memory != gpu.Known(500*mib) {
		t.Errorf("900 MiB came with the job: %+v", u)
	}
	if u := after(uses(2500*mib, job)); u.Partly || u.Peak.Known {
		t.Errorf("nobody knows what its peak was: %+v", u)
	}
}

// TestKeptIsNoDevicesOwn: what a job leaves in use by a process that keeps it does not become the device's own, so that it
// hides nothing of the next.
func TestKeptIsNoDevicesOwn(t *testing.T) {
	for _, kept := range []bool{false, true} {
		u := unlisted{}
		take := func(used gpu.Bytes) (jobs bool) {
			r := reading{processes: gpu.Known([]Process{})}
			r.Memory = gpu.Known(gpu.MemoryUse{Reserved: gpu.Known(gpu.Bytes(0)), Used: used})
			now, jobs := u.take(r)
			u.kept = kept && Unlisted(now) // as agent/sampling finds after a reading
			return jobs
		}
		for range unlistedReadings {
			take(26 * mib)
		}
		var last bool
		for range 2 * unlistedReadings {
			last = take(2000 * mib)
		}
		if last != kept {
			t.Errorf("kept %t: jobs may hold it: %t", kept, last)
		}
		if take(26 * mib); u.idle != 0 {
			t.Errorf("kept %t: at the end %d bytes are the device's own", kept, u.idle)
		}
	}
}
