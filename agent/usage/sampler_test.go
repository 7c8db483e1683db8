package usage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

const (
	gpuA = gpu.UUID("GPU-0000000a-0000-4000-8000-000000000000")
	gpuB = gpu.UUID("GPU-0000000b-0000-4000-8000-000000000000")
	gib  = gpu.Bytes(1 << 30)
)

// node is a fake node: GPUs with processes on them, a directory for /proc, the
// agent's books and a clock.
type node struct {
	proc     string
	now      time.Time
	readings []gpu.Reading
	err      error
	// slots by PID, as cgroups would tell.
	slots    map[int]SlotKey
	servers  map[int]bool
	bookings []Reservation
	mu       sync.Mutex
	asked    int
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{proc: t.TempDir(), now: time.Unix(1700000000, 0), slots: map[int]SlotKey{}, servers: map[int]bool{}}
	for _, starter := range []int{10, 11, 12, 13, 14, slot1.Starter, slot2.Starter} {
		n.process(t, starter, 1)
	}
	return n
}

func (n *node) Read(context.Context) ([]gpu.Reading, error) { return n.readings, n.err }
func (n *node) Reservations() []Reservation                 { return n.bookings }
func (n *node) Server(pid int, _ uint64) bool               { return n.servers[pid] }
func (n *node) Slot(pid int, _ uint64) (SlotKey, bool) {
	n.mu.Lock()
	n.asked++
	k, ok := n.slots[pid]
	n.mu.Unlock()
	_, _ = os.ReadFile(n.cgroup(pid)) // few tests have one: it takes as long as they want
	return k, ok
}

// process makes a process that started at so many ticks since boot.
func (n *node) process(t *testing.T, pid int, started uint64) {
	t.Helper()
	n.processIn(t, pid, started, 'S', 1)
}

// processIn makes one whose first thread is in a state, with so many threads left.
func (n *node) processIn(t *testing.T, pid int, started uint64, state byte, threads int) {
	t.Helper()
	dir := filepath.Join(n.proc, fmt.Sprint(pid))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	line := fmt.Sprintf("%d (a) job) %c 1 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 %d 0 %d 1 1\n", pid, state, threads, started)
	if err := os.WriteFile(filepath.Join(dir, "stat"), []byte(line), 0o644); err != nil {
		t.Fatal(err)
	}
}

// end ends a process.
func (n *node) end(t *testing.T, pid int) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(n.proc, fmt.Sprint(pid))); err != nil {
		t.Fatal(err)
	}
}

func (n *node) sampler() *Sampler {
	s := NewSampler(Options{Source: n, Site: n, Interval: time.Second, Proc: n.proc, Now: func() time.Time { return n.now }})
	s.Pace(time.Second, 5*time.Minute)
	return s
}

// round samples a second after the last time.
func (n *node) round(t *testing.T, s *Sampler) *Snapshot {
	t.Helper()
	n.now = n.now.Add(time.Second)
	for i := range n.readings {
		n.readings[i].At = time.Now()
	}
	s.Round(t.Context())
	return s.Snapshot()
}

func on(pid int, memory gpu.Bytes) gpu.DeviceProcess {
	return gpu.DeviceProcess{PID: pid, Memory: gpu.Known(memory)}
}

func reads(u gpu.UUID, processes ...gpu.DeviceProcess) gpu.Reading {
	return gpu.Reading{GPU: u, Use: gpu.Use{Processes: gpu.Known(processes)}}
}

var (
	slot1  = SlotKey{Slot: "slot1_1", Starter: 50, Started: 1}
	slot2  = SlotKey{Slot: "slot1_2", Starter: 60, Started: 1}
	wholeA = Device{GPU: gpuA}
)

func TestMemoryOfSlots(t *testing.T) {
	n := newNode(t)
	for pid := 100; pid < 106; pid++ {
		n.process(t, pid, 1)
	}
	n.slots = map[int]SlotKey{100: slot1, 101: slot1, 102: slot2, 103: slot2}
	n.servers[104] = true
	unknown := gpu.DeviceProcess{PID: 103}
	n.readings = []gpu.Reading{reads(gpuA, on(100, gib), on(101, 2*gib), on(102, gib), unknown, on(104, 28<<20), on(105, 3*gib), on(199, gib))}
	snap := n.round(t, n.sampler())
	if got, _ := snap.Slot(slot1, wholeA); got.Memory != gpu.Known(3*gib) || got.Processes != 2 || got.Peak != gpu.Known(3*gib) {
		t.Errorf("slot1_1 has 1 GiB and 2 GiB: %+v", got)
	}
	got, _ := snap.Slot(slot2, wholeA)
	if got.Memory.Known || got.Memory.Value != gib || got.Peak.Known || got.Processes != 2 {
		t.Errorf("slot1_2 has 1 GiB and a process that nobody knows the memory of: %+v", got)
	}
	d, _ := snap.Device(wholeA)
	if d.Unowned != 2 || d.UnownedMemory != gpu.Known(4*gib) {
		t.Errorf("a process of 3 GiB and an ended one of 1 GiB are in no slot, the MPS server does not count: %+v", d)
	}
}

// Graphics counts for the job that draws. A display server is no job's, and in nobody's way.
func TestGraphics(t *testing.T) {
	n := newNode(t)
	n.process(t, 100, 1)
	n.process(t, 101, 1)
	n.process(t, 102, 1)
	n.slots = map[int]SlotKey{100: slot1, 101: slot1}
	draws := func(pid int) gpu.DeviceProcess {
		return gpu.DeviceProcess{PID: pid, Memory: gpu.Known(2 * gib), Graphics: true}
	}
	n.readings = []gpu.Reading{reads(gpuA, on(100, gib), draws(101), draws(102))}
	snap := n.round(t, n.sampler())
	if got, _ := snap.Slot(slot1, wholeA); got.Memory != gpu.Known(3*gib) || got.Processes != 2 {
		t.Errorf("slot1_1 computes with 1 GiB and draws with 2 GiB: %+v", got)
	}
	if d, _ := snap.Device(wholeA); d.Unowned != 0 || len(d.Processes.Value) != 2 {
		t.Errorf("a display server counts as a stranger: %+v", d)
	}
}

// A PID that another process got after the GPU was read is not the one it listed.
func TestAReusedPIDIsNotTheSameProcess(t *testing.T) {
	n := newNode(t)
	n.process(t, 100, 1)
	n.slots[100] = slot1
	n.readings = []gpu.Reading{reads(gpuA, on(100, gib))}
	s := n.sampler()
	n.round(t, s)
	if n.round(t, s); n.asked != 1 {
		t.Errorf("the slot of one process was asked %d times", n.asked)
	}
	n.slots[100] = slot2
	n.process(t, 100, 2)
	if _, ok := n.round(t, s).Slot(slot2, wholeA); !ok {
		t.Error("the new process with the old PID still counts for the old slot")
	}
	n.process(t, 100, ^uint64(0)) // starts later than the reading
	snap := n.round(t, s)
	if u, _ := snap.Slot(slot2, wholeA); u.Processes != 0 || u.Memory != gpu.Known(gib) {
		t.Errorf("a process that did not run when the GPU was read is not the one that has its memory: %+v", snap.Slots)
	}
}

func TestPeakIsOfOneJob(t *testing.T) {
	n := newNode(t)
	n.process(t, 100, 1)
	n.slots[100] = slot1
	n.bookings = []Reservation{{Slot: slot1, Device: wholeA}}
	s := n.sampler()
	for _, m := range []gpu.Bytes{gib, 4 * gib, 2 * gib} {
		n.readings = []gpu.Reading{reads(gpuA, on(100, m))}
		n.round(t, s)
	}
	n.readings = []gpu.Reading{reads(gpuA)}
	got, _ := n.round(t, s).Slot(slot1, wholeA)
	if got.Memory != gpu.Known[gpu.Bytes](0) || got.Peak != gpu.Known(4*gib) {
		t.Errorf("the job holds nothing now and held 4 GiB: %+v", got)
	}
	next := SlotKey{Slot: "slot1_1", Starter: 70, Started: 9}
	n.bookings[0].Slot = next
	if got, ok := n.round(t, s).Slot(next, wholeA); !ok || got.Peak != gpu.Known[gpu.Bytes](0) {
		t.Errorf("the next job of the slot begins with the peak of the last: %+v", got)
	}
}

func TestStaleDataIsDroppedAndComesBack(t *testing.T) {
	n := newNode(t)
	n.readings = []gpu.Reading{reads(gpuA), reads(gpuB)}
	s := n.sampler()
	n.round(t, s)
	broken := errors.New("broken")
	good := n.readings
	n.readings = []gpu.Reading{good[0], {GPU: gpuB, Index: 1, Err: broken}}
	for range staleAfter {
		if snap := n.round(t, s); len(snap.Devices) != 2 {
			t.Fatalf("a GPU vanished before its data was stale: %+v", snap.Devices)
		}
	}
	snap := n.round(t, s)
	if len(snap.Devices) != 1 || snap.Devices[0].GPU != gpuA {
		t.Errorf("only the GPU that answers should be left: %+v", snap.Devices)
	}
	h := snap.Sources[0]
	if !errors.Is(h.Err, broken) || h.Failures != 4 || h.Succeeded.IsZero() || !h.Succeeded.Before(snap.At) {
		t.Errorf("health does not tell: %+v", h)
	}
	n.readings = good
	if snap := n.round(t, s); len(snap.Devices) != 2 || snap.Sources[0].Err != nil {
		t.Errorf("the GPU did not come back: %+v", snap)
	}
}

// TestFirstThreadEnded: pthread_exit in main leaves a process that is a zombie by its
// state and runs on in its other threads. Its memory is its slot's until the last ends, and until the job ends where it
// is still listed.
func TestFirstThreadEnded(t *testing.T) {
	n := newNode(t)
	key := SlotKey{Slot: "slot1_1", Starter: 50, Started: 1}
	n.slots[300] = key
	n.readings = []gpu.Reading{{GPU: "GPU-00000000-0000-4000-8000-000000000000", Use: gpu.Use{
		Processes: gpu.Known([]gpu.DeviceProcess{{PID: 300, Memory: gpu.Known(gpu.Bytes(20 << 30))}}),
	}}}
	s := n.sampler()
	n.processIn(t, 300, 1, 'Z', 2)
	if got := n.round(t, s).Slots; len(got) != 1 || got[0].Slot != key || got[0].Memory != gpu.Known(gpu.Bytes(20<<30)) {
		t.Errorf("its memory is not its slot's: %+v", got)
	}
	n.processIn(t, 300, 1, 'Z', 1)
	if got := n.round(t, s).Slots; len(got) != 1 || got[0].Memory != gpu.Known(gpu.Bytes(20<<30)) {
		t.Errorf("the memory of a process that is gone is not its slot's: %+v", got)
	}
	n.end(t, key.Starter)
	if d := n.round(t, s).Devices[0]; d.Unowned != 1 || d.UnownedMemory != gpu.Known(gpu.Bytes(20<<30)) {
		t.Errorf("the memory of a process that is gone is nobody's: %+v", d)
	}
}

// TestMIGDeviceThatWent: its sums are kept for a while, since it may come back, and no longer.
func TestMIGDeviceThatWent(t *testing.T) {
	n, r := newNode(t), reads(gpuA)
	r.MIGEnabled, r.Instances = true, []gpu.InstanceReading{{UUID: "MIG-1", GPUInstance: 1}}
	n.readings = []gpu.Reading{r}
	s := n.sampler()
	n.round(t, s)
	n.round(t, s)
	r.Instances = nil
	n.readings = []gpu.Reading{r}
	for _, c := range []struct {
		later time.Duration
		kept  bool
	}{{keepEnded / 2, true}, {keepEnded, false}} {
		n.now = n.now.Add(c.later)
		n.round(t, s)
		if kept := s.trackers[Device{GPU: gpuA, MIG: "MIG-1"}] != nil; kept != c.kept || s.trackers[wholeA] == nil {
			t.Errorf("%s later it is kept: %t", c.later, kept)
		}
	}
}
