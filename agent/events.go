package agent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/faults"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// note keeps an event.
func (a *Agent) note(e history.Event) {
	e.Slot = condor.SlotName(e.Slot)
	a.history.Event(e)
}

// mostNoted bounds the text of an event, in bytes: a caller's words may be in it.
const mostNoted = 1024

// noteJob keeps what became of a job at its admission, once for each GPU. Only
// the hook's question is an event: a job may ask as often as it likes. What it
// invents is none: a starter has at most one event on each planned GPU from its hook.
func (a *Agent) noteJob(c starter.Caller, job *api.Job, kind history.EventKind, gpus []string, text string) {
	if !c.Hook {
		return
	}
	if len(text) > mostNoted {
		text = strings.ToValidUTF8(text[:mostNoted], "") + " …"
	}
	e := history.Event{Kind: kind, Slot: c.Starter.Slot, Job: job.ID, Text: text}
	told, p := false, &a.view.Load().plan
	for _, id := range slices.Compact(slices.Sorted(slices.Values(gpus))) {
		if g, ok := find(p, gpu.UUID(id)); ok {
			e.GPU, told = g.UUID, true
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
