package agent

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// Troubles decides which GPUs the hardware's word closes: from the events that
// GPUs tell and the conditions that they are asked for. It reads nothing itself
// and never looks at the clock. The zero value is ready; it may be used from
// several goroutines.
//
// The caller makes one call for each event (Event, or Culprit for a line of the
// kernel log), one each round (Round), and asks for a GPU's Verdict at any time.
type Troubles struct {
	mu   sync.Mutex
	gpus map[gpu.UUID]trouble
}

// Sight is one GPU in one round.
type Sight struct {
	gpu.Condition
	// Server is when the GPU's MPS server was last proven active; zero on a GPU
	// without one, which an application's fault does not close.
	Server time.Time
}

// Verdict is what Troubles says of a GPU.
type Verdict struct {
	// Class is empty for a GPU that is open.
	Class Closure
	// Reason says what happened and what to do; empty for a GPU that is open.
	Reason string
	// Since is when it was closed, and Until when it may open again once what
	// Reason asks for was seen; zero if only time does not open it.
	Since, Until time.Time
	// Advice is for a GPU that is open; often empty.
	Advice string
}

// Closed says whether the GPU takes no jobs.
func (v Verdict) Closed() bool { return v.Class != "" }

// Closure says what opens a GPU again.
type Closure string

// The closures, the stronger ones last.
const (
	// ClosedForServer: an application's fault, until the MPS server is proven
	// active after it, and never longer than serverRecovery.
	ClosedForServer Closure = "server-recovery"
	// ClosedForReset: until a reset is seen and the pause of a GPU that faults
	// often is over.
	ClosedForReset Closure = "needs-reset"
	// ClosedBroken: until an operator opens it.
	ClosedBroken Closure = "broken"
)

// Event books one event.
func (t *Troubles) Event(e gpu.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g, ok := t.find(e.GPU); ok {
		t.gpus[e.GPU] = g.after(e)
	}
}

// Culprit books the process that the kernel log names for an XID of a GPU; it
// is joined to the event of the same number, whichever comes first.
func (t *Troubles) Culprit(u gpu.UUID, x gpu.KernelXID, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g, ok := t.find(u); ok && x.PID > 0 {
		t.gpus[u] = g.named(x, at)
	}
}

// Round books the conditions of all GPUs. A GPU that is not among them stays as
// it is: nothing is known of it in this round.
func (t *Troubles) Round(now time.Time, seen []Sight) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range seen {
		if g, ok := t.find(s.GPU); ok {
			t.gpus[s.GPU] = g.round(now, s)
		}
	}
}

// Verdict is what holds for a GPU now.
func (t *Troubles) Verdict(u gpu.UUID, now time.Time) Verdict {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.gpus[u].verdict(now)
}

// Open is the operator's word that a GPU may be used again. What it reports at
// this moment no longer closes it, what happens from now on does.
func (t *Troubles) Open(u gpu.UUID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g, ok := t.gpus[u]; ok {
		t.gpus[u] = g.overridden()
	}
}

// Faults counts what happened to one GPU for one reason since the agent
// started: "xid-79", "double-bit-ecc", "lost", "row-failed", "recovery-action".
type Faults struct {
	GPU    gpu.UUID
	Reason string
	Class  gpu.XIDClass
	Count  int
}

// Faults are the counters of all GPUs, by GPU and reason.
func (t *Troubles) Faults() []Faults {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []Faults
	for u, g := range t.gpus {
		for r, c := range g.counts {
			all = append(all, Faults{GPU: u, Reason: r, Class: c.class, Count: c.count})
		}
	}
	slices.SortFunc(all, func(a, b Faults) int {
		if a.GPU != b.GPU {
			return strings.Compare(string(a.GPU), string(b.GPU))
		}
		return strings.Compare(a.Reason, b.Reason)
	})
	return all
}

// maxTroubled bounds the GPUs that are remembered; a node has 16.
const maxTroubled = 128

// find is the state of a GPU, known or new; not ok if there is no room, or the
// event names none.
func (t *Troubles) find(u gpu.UUID) (trouble, bool) {
	g, known := t.gpus[u]
	if known {
		return g, true
	}
	if u == "" || len(t.gpus) >= maxTroubled {
		return trouble{}, false
	}
	if t.gpus == nil {
		t.gpus = map[gpu.UUID]trouble{}
	}
	return trouble{gpu: u}, true
}
