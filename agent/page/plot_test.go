package page

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
)

// hour is a series with some points known, by their number.
func hour(known map[int]float64) (s series) {
	for i, v := range known {
		s[i] = gpu.Known(v)
	}
	return s
}

func TestDraw(t *testing.T) {
	for name, c := range map[string]struct {
		s    series
		want plot
	}{
		"nothing": {hour(nil), plot{Now: "–", Label: "x in the last hour: not known"}},
		"a lone point": {hour(map[int]float64{0: 0.5}), plot{Path: "M0 20h.1", Area: "M0 20L0 40L0 40Z", Now: "50 %",
			Label: "x in the last hour: 50 % to 50 %, last 50 %; the axis ends at 100 %"}},
		"a line and a gap": {hour(map[int]float64{1: 0, 2: 1, 4: 0.25}), plot{Path: "M1 40h.1L2 0M4 30h.1", Area: "M1 40L2 0L2 40L1 40ZM4 30L4 40L4 40Z",
			Now: "25 %", Label: "x in the last hour: 0 % to 100 %, last 25 %; the axis ends at 100 %"}},
		"up to now, beyond the axis": {hour(map[int]float64{118: 2, 119: 0.5}), plot{Path: "M118 0h.1L119 20", Area: "M118 0L119 20L119 40L118 40Z",
			Now: "50 %", Label: "x in the last hour: 50 % to 200 %, last 50 %; the axis ends at 100 %"}},
		"from the oldest point on": {hour(map[int]float64{0: 0, 1: 1}), plot{Path: "M0 40h.1L1 0", Area: "M0 40L1 0L1 40L0 40Z", Now: "100 %",
			Label: "x in the last hour: 0 % to 100 %, last 100 %; the axis ends at 100 %"}},
		"to the last": {hour(map[int]float64{119: 0.5}), plot{Path: "M119 20h.1", Area: "M119 20L119 40L119 40Z", Now: "50 %",
			Label: "x in the last hour: 50 % to 50 %, last 50 %; the axis ends at 100 %"}},
	} {
		c.want.Title, c.want.Top = "x", "100 %"
		if d := cmp.Diff(c.want, draw("x", c.s, 1, percent)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

func TestDrawToItsTop(t *testing.T) {
	if p := draw("x", hour(map[int]float64{7: 150}), 300, watts); p.Path != "M7 20h.1" || p.Top != "300 W" {
		t.Errorf("%+v", p)
	}
}

func TestRoof(t *testing.T) {
	for _, c := range []struct{ most, want float64 }{{0, 100}, {99, 100}, {100, 100}, {101, 200}, {299.5, 300}, {700, 700}} {
		if got := roof(hour(map[int]float64{3: c.most, 5: 1})); got != c.want {
			t.Errorf("%v: %v, want %v", c.most, got, c.want)
		}
	}
	if got := roof(series{}); got != 100 {
		t.Errorf("nothing is known: %v", got)
	}
}

func TestSizes(t *testing.T) {
	const gib = gpu.Bytes(1 << 30)
	for b, want := range map[gpu.Bytes]string{0: "0 MiB", 5 << 20: "5 MiB", gib - 1: "1023 MiB", gib: "1.0 GiB", 3 * gib / 2: "1.5 GiB"} {
		if got := size(b); got != want {
			t.Errorf("%d: %s, want %s", b, got, want)
		}
	}
	for all, want := range map[gpu.Bytes]string{gib - 1: "512 of 1023 MiB", gib: "0.5 of 1.0 GiB", 4 * gib: "0.5 of 4.0 GiB"} {
		if got := of(gib/2, all); got != want {
			t.Errorf("%d: %s, want %s", all, got, want)
		}
	}
}

// TestFillUsage: a GPU keeps its size where the sample has none, and its MIG devices have their own slots.
func TestFillUsage(t *testing.T) {
	const one, mig = gpu.UUID("GPU-1"), gpu.UUID("MIG-1")
	memory := func(total gpu.Bytes) gpu.Measured[gpu.MemoryUse] {
		return gpu.Known(gpu.MemoryUse{Total: total, Used: 1})
	}
	snap := &usage.Snapshot{
		Devices: []usage.DeviceUsage{{Device: usage.Device{GPU: "GPU-2"}, Memory: memory(7)},
			{Device: usage.Device{GPU: one}, Power: gpu.Known(70.0)}, {Device: usage.Device{GPU: one, MIG: mig}, Memory: memory(5)}},
		Slots: []usage.SlotUsage{{Slot: usage.SlotKey{Slot: "slot1_1"}, Device: usage.Device{GPU: one}},
			{Slot: usage.SlotKey{Slot: "slot1_2"}, Device: usage.Device{GPU: one, MIG: mig}}},
	}
	p := GPU{Device: Device{UUID: one, Total: gpu.Known(gpu.Bytes(9))}}
	fillUsage(&p, snap)
	if p.Total != gpu.Known(gpu.Bytes(9)) || p.Power != gpu.Known(70.0) || len(p.Slots) != 1 || p.Slots[0].Name != "slot1_1" {
		t.Errorf("%+v", p)
	}
	if len(p.MIG) != 1 || p.MIG[0].UUID != mig || p.MIG[0].Total != gpu.Known(gpu.Bytes(5)) || len(p.MIG[0].Slots) != 1 || p.MIG[0].Slots[0].Name != "slot1_2" {
		t.Errorf("%+v", p.MIG)
	}
	snap.Devices[1].Memory = memory(8)
	if fillUsage(&p, snap); p.Total != gpu.Known(gpu.Bytes(8)) || p.Used != gpu.Known(gpu.Bytes(1)) {
		t.Errorf("the sample has a size: %+v", p)
	}
}
