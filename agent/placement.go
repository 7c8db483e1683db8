package agent

import (
	"time"

	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
)

// room is a shared GPU as a place for a large request.
type room struct {
	gpu gpu.UUID
	// open: it takes jobs. Largest is the largest budget there, free what is left.
	open          bool
	largest, free gpu.MiB
}

// reserveFor chooses the GPU that is closed to requests smaller than want: the one
// that is already, else the one that has the most VRAM free; none if no GPU has room
// for it some day.
func reserveFor(want gpu.MiB, last gpu.UUID, rooms []room) (chosen gpu.UUID) {
	most := gpu.MiB(-1)
	for _, r := range rooms {
		switch {
		case want <= 0 || !r.open || r.largest < want:
		case r.gpu == last:
			return last
		case r.free > most:
			chosen, most = r.gpu, r.free
		}
	}
	return chosen
}

// reserve chooses among the GPUs that jobs hear of. It is called with each answer to
// the startd's monitor.
func (a *Agent) reserve(judged map[gpu.UUID]judgement, p *plan.Plan, now time.Time) (u gpu.UUID, least gpu.MiB) {
	least = a.queue.waitsForVRAM(now)
	var rooms []room
	for _, g := range p.GPUs {
		if j, ok := judged[g.UUID]; ok && g.Shared() {
			rooms = append(rooms, room{g.UUID, j.reason == "", g.LargestRequest, g.Pool - j.used})
		}
	}
	a.reserved.mu.Lock()
	defer a.reserved.mu.Unlock()
	u = reserveFor(least, a.reserved.gpu, rooms)
	if u != a.reserved.gpu && u != "" {
		a.log.Info("GPU closed to small requests", "gpu", u, "mib", least)
		a.note(history.Event{Kind: history.EventPlan, GPU: u, By: history.ByAgent, Text: "It takes no request_vram below " + least.String() + ": such a job has waited for long."})
	}
	a.reserved.gpu = u
	return u, least
}
