package sampling

import (
	"testing"

	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
)

// The history has one line where jobs begin to slow each other down, and one where they end to.
func TestContentionIsNoted(t *testing.T) {
	d := usage.Device{GPU: "GPU-a"}
	snap := func(contended bool) *usage.Snapshot {
		return &usage.Snapshot{
			Devices: []usage.DeviceUsage{{Device: d, Contended: contended, MemoryBusy: gpu.Known(0.634)}},
			Slots: []usage.SlotUsage{{Slot: usage.SlotKey{Slot: "slot1_1"}, Device: d, Processes: 1},
				{Slot: usage.SlotKey{Slot: "slot1_2"}, Device: d, Processes: 2}, {Slot: usage.SlotKey{Slot: "slot1_3"}, Device: d}},
		}
	}
	c := contended{}
	var got []history.Event
	for _, now := range []bool{false, true, true, false, false} {
		got = append(got, c.events(snap(now))...)
	}
	want := []string{
		"Its jobs slow each other down: its memory interface was busy for 63 % of ten minutes. Jobs there: slot1_1, slot1_2.",
		"Its jobs no longer slow each other down at its memory.",
	}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i, e := range got {
		if e.Text != want[i] || e.Kind != history.EventContention || e.GPU != d.GPU {
			t.Errorf("%+v", e)
		}
	}
}
