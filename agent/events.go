package agent

import (
	"github.com/gpuslot/gpuslot/agent/faults"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// note keeps an event.
func (a *Agent) note(e history.Event) {
	e.Slot = condor.SlotName(e.Slot)
	a.history.Event(e)
}

// noteFault keeps an event of a GPU.
func (a *Agent) noteFault(e gpu.Event, v faults.Verdict) {
	text := string(e.Kind)
	if e.Kind == gpu.EventXID {
		x := gpu.XIDByNumber(e.XID)
		text = x.String()
		if x.Class == gpu.XIDUnknown && !v.Closed() {
			text += ": not known to gpuslot, and it leaves the GPU open: " + x.Do
		}
	}
	if v.Closed() {
		text += ": " + v.Reason
	}
	a.note(history.Event{Time: e.Time, Kind: history.EventFault, GPU: e.GPU, Text: text})
}
