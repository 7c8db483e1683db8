package page

import (
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

const (
	// step is what one point of the plots is the mean of, points is an hour.
	step   = 30 * time.Second
	points = 120
)

// History is the last hour of every GPU, in points of half a minute. It holds
// points and no more, however long and however often it is fed. Its zero value
// is empty.
type History struct {
	mu sync.Mutex
	// end is the step that is being filled.
	end  int64
	gpus map[gpu.UUID]*past
}

// past is one GPU's hour, as rings indexed by step.
type past struct {
	memory, activity, power [points]mean
	seen                    int64
}

// mean is the mean of the values in one step.
type mean struct {
	sum float64
	n   uint32
}

// Add takes one moment of the node; what is unknown leaves a gap.
func (h *History) Add(n Node) {
	if n.At.IsZero() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	now := n.At.UnixNano() / int64(step)
	if h.gpus == nil {
		h.gpus = map[gpu.UUID]*past{}
	}
	h.advance(now)
	for _, g := range n.GPUs {
		p := h.gpus[g.UUID]
		if p == nil {
			p = &past{}
			h.gpus[g.UUID] = p
		}
		p.seen = now
		p.memory[at(now)].add(g.memory())
		p.activity[at(now)].add(g.activity())
		p.power[at(now)].add(g.Power)
	}
}

// at is a step's place in the ring.
func at(s int64) int64 { return s % points }

// advance empties the steps that come round again, and forgets GPUs that were
// not seen for an hour. A clock that was set back starts the hour again.
func (h *History) advance(now int64) {
	if now < h.end {
		clear(h.gpus)
	}
	for u, p := range h.gpus {
		if now-p.seen >= points {
			delete(h.gpus, u)
			continue
		}
		for s := h.end + 1; s <= now; s++ {
			p.memory[at(s)], p.activity[at(s)], p.power[at(s)] = mean{}, mean{}, mean{}
		}
	}
	h.end = now
}

func (m *mean) add(v gpu.Measured[float64]) {
	if v.Known {
		m.sum += v.Value
		m.n++
	}
}

// series is an hour, the oldest point first.
type series [points]gpu.Measured[float64]

// of are a GPU's last hours, oldest first.
func (h *History) of(u gpu.UUID) (memory, activity, power series) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.gpus[u]
	if p == nil {
		return memory, activity, power
	}
	for i := range int64(points) {
		from := at(h.end + 1 + i)
		memory[i], activity[i], power[i] = p.memory[from].value(), p.activity[from].value(), p.power[from].value()
	}
	return memory, activity, power
}

func (m mean) value() gpu.Measured[float64] {
	if m.n == 0 {
		return gpu.Measured[float64]{}
	}
	return gpu.Known(m.sum / float64(m.n))
}
