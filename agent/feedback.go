package agent

import (
	"strconv"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/metrics"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// feedback is what became of the answers to the startd's programs, by what they
// ask for. What the startd makes of them nobody sees from here.
type feedback struct {
	mu sync.Mutex
	by map[api.Op]handover
}

// handover is the last one of a program: whether it worked, and when one last did.
type handover struct {
	ok bool
	at time.Time
}

func (a *Agent) handedOver(op api.Op, ok bool) { a.fed.note(op, ok, time.Now()) }

func (f *feedback) note(op api.Op, ok bool, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.by == nil {
		f.by = map[api.Op]handover{}
	}
	h := f.by[op]
	h.ok = ok
	if ok {
		h.at = now
	}
	f.by[op] = h
}

// tookAt is when a program of the startd's last took its answer; zero if never.
func (f *feedback) tookAt(op api.Op) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.by[op].at
}

// last is the worst of the programs; nil if none ever asked.
func (f *feedback) last() *metrics.Feedback {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out *metrics.Feedback
	for _, h := range f.by {
		if out == nil {
			out = &metrics.Feedback{OK: true, At: h.at}
		}
		out.OK = out.OK && h.ok
		if h.at.Before(out.At) {
			out.At = h.at
		}
	}
	return out
}

// clientsOf counts a control daemon's MPS clients; unknown while one of its
// servers does not answer.
func clientsOf(p mps.Proof) gpu.Measured[float64] {
	for _, s := range p.States {
		if !s.Answers() {
			return gpu.Measured[float64]{}
		}
	}
	return gpu.Known(float64(p.Clients()))
}

// threadRatio is a control daemon's default active thread percentage.
func threadRatio(p mps.Proof) gpu.Measured[float64] {
	percent, err := strconv.ParseFloat(p.ThreadPercentage, 64)
	return gpu.Measured[float64]{Value: percent / 100, Known: err == nil}
}
