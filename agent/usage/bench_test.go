package usage

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// BenchmarkRound is one round of 16 GPUs with 48 clients each: everything but
// NVML itself. "empty" is a node whose GPUs have no process.
func BenchmarkRound(b *testing.B) {
	for _, c := range []struct {
		name             string
		slots, processes int
	}{{"empty", 0, 0}, {"16x12x1", 12, 1}, {"16x48x1", 48, 1}, {"16x16x3", 16, 3}} {
		b.Run(c.name, func(b *testing.B) { benchRound(b, c.slots, c.processes) })
	}
}

func benchRound(b *testing.B, slots, processes int) {
	n := &node{proc: b.TempDir(), now: time.Unix(1700000000, 0), slots: map[int]SlotKey{}, servers: map[int]bool{}}
	pid := 1000
	for g := range 16 {
		u := gpu.UUID(fmt.Sprintf("GPU-%08x-0000-4000-8000-000000000000", g))
		var list []gpu.DeviceProcess
		for i := range slots {
			k := SlotKey{Slot: fmt.Sprintf("slot%d_%d", g+1, i+1), Starter: pid, Started: 1}
			n.bookings = append(n.bookings, Reservation{Slot: k, Device: Device{GPU: u}, Share: 1 / float64(slots), MPS: true, Cap: 0.1})
			for range processes {
				statOf(b, n.proc, pid)
				n.slots[pid] = k
				list = append(list, gpu.DeviceProcess{PID: pid, Memory: gpu.Known(gib), MPSClient: true})
				pid++
			}
		}
		r := reads(u, list...)
		r.At = time.Now()
		n.readings = append(n.readings, r)
	}
	s := n.sampler()
	var joules uint64
	b.ReportAllocs()
	for b.Loop() {
		joules += 200e3
		for i := range n.readings {
			n.readings[i].SMActivity, n.readings[i].Energy = gpu.Known(gpu.Activity{Ratio: 0.8}), gpu.Known(joules)
		}
		n.now = n.now.Add(time.Second)
		s.Round(b.Context())
	}
	if snap := s.Snapshot(); len(snap.Slots) != 16*slots {
		b.Fatalf("%d slots", len(snap.Slots))
	}
}

func statOf(b *testing.B, proc string, pid int) {
	dir := filepath.Join(proc, fmt.Sprint(pid))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	line := fmt.Sprintf("%d (job) S 1 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 1 1 1\n", pid)
	if err := os.WriteFile(filepath.Join(dir, "stat"), []byte(line), 0o644); err != nil {
		b.Fatal(err)
	}
}
