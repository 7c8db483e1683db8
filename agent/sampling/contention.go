package sampling

import (
	"fmt"
	"strings"

	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
)

// contended are the GPUs whose jobs slowed each other down at the last sample.
type contended map[gpu.UUID]bool

// events are what the history keeps of a sample: where jobs began to slow each other down, and
// where they no longer do.
func (c contended) events(snap *usage.Snapshot) (events []history.Event) {
	for _, d := range snap.Devices {
		if d.MIG != "" || c[d.GPU] == d.Contended {
			continue
		}
		c[d.GPU] = d.Contended
		text := "Its jobs no longer slow each other down at its memory."
		if d.Contended {
			text = fmt.Sprintf("Its jobs slow each other down: its memory interface was busy for %.0f %% of ten minutes. "+
				"Jobs there: %s.", 100*d.MemoryBusy.Value, strings.Join(atWork(snap, d.Device), ", "))
		}
		events = append(events, history.Event{Kind: history.EventContention, GPU: d.GPU, Text: text})
	}
	return events
}

// atWork are the slots with a process on a device.
func atWork(snap *usage.Snapshot, d usage.Device) (names []string) {
	for _, s := range snap.Slots {
		if s.Device == d && s.Processes > 0 {
			names = append(names, s.Slot.Slot)
		}
	}
	return names
}
