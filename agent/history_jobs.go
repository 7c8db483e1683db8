package agent

import (
	"fmt"
	"slices"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/gpu"
)

// noteJob keeps what became of a job at its admission, once for each GPU. Only
// the hook's question is an event: a job may ask as often as it likes.
func (a *Agent) noteJob(c Caller, job *api.Job, kind EventKind, gpus []string, text string) {
	if !c.Hook {
		return
	}
	e := Event{Kind: kind, Slot: c.Starter.Slot, Job: job.ID, Text: text}
	told := false
	for _, id := range slices.Compact(slices.Sorted(slices.Values(gpus))) {
		if u, err := gpu.ParseUUID(id); err == nil {
			e.GPU, told = u, true
			a.note(e)
		}
	}
	if !told {
		a.note(e)
	}
}

// admission is how an admission is told.
func admission(job *api.Job, g *api.Grant) string {
	s := "The job was admitted"
	if job.Owner != "" {
		s = fmt.Sprintf("The job of %s was admitted", job.Owner)
	}
	if mib := g.Environment["GPUSLOT_VRAM_MIB"]; mib != "" {
		s += fmt.Sprintf(" with %s MiB, wall %s", mib, g.Wall)
	}
	return s + "."
}

// noteFault keeps an event of a GPU.
func (a *Agent) noteFault(e gpu.Event, v Verdict) {
	text := string(e.Kind)
	if e.Kind == gpu.EventXID {
		text = gpu.XIDByNumber(e.XID).String()
	}
	if v.Closed() {
		text += ": " + v.Reason
	}
	a.note(Event{Time: e.Time, Kind: EventFault, GPU: e.GPU, Text: text})
}
