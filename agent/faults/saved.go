package faults

import (
	"slices"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// Saved is what the next agent has to know of a GPU: why it is closed,
// how often it was, and what an operator opened it in spite of. It belongs where
// a reboot removes it, since a reboot is what most of it asks for.
type Saved struct {
	GPU       gpu.UUID    `json:"gpu"`
	Class     Closure     `json:"class,omitempty"`
	What      string      `json:"what,omitempty"`
	Do        string      `json:"do,omitempty"`
	XID       int         `json:"xid,omitempty"`
	PID       int         `json:"pid,omitempty"`
	Process   string      `json:"process,omitempty"`
	Since     time.Time   `json:"since,omitzero"`
	ResetSeen bool        `json:"reset_seen,omitempty"`
	Faults    []time.Time `json:"faults,omitempty"`
	// What the GPU said when it was closed.
	Lost                bool                `json:"lost,omitempty"`
	UncorrectedVolatile *uint64             `json:"uncorrected_volatile,omitempty"`
	EnergyMillijoules   *uint64             `json:"energy_mj,omitempty"`
	Recovery            *gpu.RecoveryAction `json:"recovery,omitempty"`
	// What an operator accepted.
	AcceptedRowFailed bool               `json:"accepted_row_failed,omitempty"`
	AcceptedRecovery  gpu.RecoveryAction `json:"accepted_recovery,omitempty"`
}

// Saved is what has to be kept, by GPU; it changes only when a GPU is closed,
// reset or opened. An application's fault is not kept: it is over in seconds.
func (t *Tracker) Saved() []Saved {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []Saved
	for _, g := range t.gpus {
		if closed := g.closed == ClosedForReset || g.closed == ClosedBroken; closed || len(g.faults) > 0 ||
			g.accepted != (reported{}) {
			all = append(all, g.saved())
		}
	}
	slices.SortFunc(all, func(a, b Saved) int { return strings.Compare(string(a.GPU), string(b.GPU)) })
	return all
}

// Restore takes up what an agent before this one saved. Call it before the
// first round and event.
func (t *Tracker) Restore(all []Saved) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range all {
		if _, ok := t.find(s.GPU); ok {
			t.gpus[s.GPU] = s.state()
		}
	}
}

func (g state) saved() Saved {
	s := Saved{GPU: g.gpu, Faults: g.faults, AcceptedRowFailed: g.accepted.rowFailed,
		AcceptedRecovery: g.accepted.recovery}
	if g.closed != ClosedForReset && g.closed != ClosedBroken {
		return s
	}
	s.Class, s.What, s.Do, s.XID, s.Since, s.ResetSeen = g.closed, g.cause.what+g.cause.mig, g.cause.do, g.cause.xid,
		g.since, g.resetSeen
	s.PID, s.Process = g.cause.named.pid, g.cause.named.process
	s.Lost, s.UncorrectedVolatile, s.EnergyMillijoules, s.Recovery = g.then.Lost, g.then.UncorrectedVolatile,
		g.then.Energy, g.then.Recovery
	return s
}

// state is the GPU as it was saved. A class that is not known, of a newer
// agent, is the strongest: it must not open.
func (s Saved) state() state {
	g := state{
		gpu: s.GPU, closed: s.Class, since: s.Since, resetSeen: s.ResetSeen, faults: s.Faults,
		cause:    cause{what: s.What, do: s.Do, xid: s.XID, named: named{xid: s.XID, pid: s.PID, process: s.Process}},
		accepted: reported{rowFailed: s.AcceptedRowFailed, recovery: s.AcceptedRecovery},
	}
	if len(g.faults) > maxFaults {
		g.faults = g.faults[len(g.faults)-maxFaults:]
	}
	if s.Class != "" && s.Class != ClosedForReset {
		g.closed = ClosedBroken
	}
	if g.closed != "" {
		g.then = gpu.Condition{GPU: s.GPU, Lost: s.Lost, UncorrectedVolatile: s.UncorrectedVolatile,
			Energy: s.EnergyMillijoules, Recovery: s.Recovery}
		g.last, g.seen = g.then, true
	}
	return g
}
