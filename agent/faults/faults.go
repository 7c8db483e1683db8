// Package faults decides which GPUs the hardware closes: from the events that GPUs
// report (Xids), the conditions that are read from them each round, and the lines of the
// kernel log that name processes. It returns a Verdict; closing the GPU and opening it is the
// agent's part.
//
// Start at Tracker, which decides and does no I/O. Watcher feeds it with the GPUs' events and
// the kernel log, and keeps its state in a file for the next agent.
package faults

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// Tracker keeps what is known of each GPU. The zero value is ready; it may be used from
// several goroutines.
//
// The caller makes one call for each event (Event, or Named for a line of the
// kernel log), one each round (Round), and asks for a GPU's Verdict at any time.
type Tracker struct {
	mu   sync.Mutex
	gpus map[gpu.UUID]state
	lost unread
}

// unread: what an agent before this one saved could not be read. Any GPU may
// have been closed, so all are until an operator opens them. The zero value is none.
type unread struct {
	why    string
	since  time.Time
	opened map[gpu.UUID]bool
}

// Sight is one GPU in one round.
type Sight struct {
	gpu.Condition
	// Server is when the GPU's MPS server was last proven active; zero on a GPU
	// without one, which an application's fault does not close.
	Server time.Time
}

// Verdict is what Tracker says of a GPU.
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

// Event notes one event.
func (t *Tracker) Event(e gpu.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g, ok := t.find(e.GPU); ok {
		t.gpus[e.GPU] = g.after(e)
	}
}

// Named notes the process that the kernel log names for an XID of a GPU; it
// is joined to the event of the same number, whichever comes first.
func (t *Tracker) Named(u gpu.UUID, x gpu.KernelXID, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g, ok := t.find(u); ok && x.PID > 0 {
		t.gpus[u] = g.withName(x, at)
	}
}

// Round notes the conditions of all GPUs. A GPU that is not among them stays as
// it is: nothing is known of it in this round.
func (t *Tracker) Round(now time.Time, seen []Sight) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range seen {
		if g, ok := t.find(s.GPU); ok {
			t.gpus[s.GPU] = g.round(now, s)
		}
	}
}

// Verdict is what holds for a GPU now.
func (t *Tracker) Verdict(u gpu.UUID, now time.Time) Verdict {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.gpus[u].verdict(now)
	if t.lost.why != "" && !t.lost.opened[u] && !u.IsMIG() && v.Class != ClosedBroken && v.Class != ClosedForReset {
		return Verdict{Class: ClosedBroken, Since: t.lost.since,
			Reason: t.lost.why + "; then gpuslot gpu open --override " + string(u)}
	}
	return v
}

// Open is the operator's word that a GPU may be used again. What it reports at
// this moment no longer closes it, what happens from now on does.
func (t *Tracker) Open(u gpu.UUID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g, ok := t.gpus[u]; ok {
		t.gpus[u] = g.overridden()
	}
	if t.lost.why != "" {
		t.lost.opened[u] = true
	}
}

// Lose closes all GPUs, because what was saved cannot be read.
func (t *Tracker) Lose(why string, since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lost = unread{why: why, since: since, opened: map[gpu.UUID]bool{}}
}

// Lost says whether some of these GPUs are still closed by Lose.
func (t *Tracker) Lost(gpus []gpu.UUID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lost.why != "" && (len(gpus) == 0 ||
		slices.ContainsFunc(gpus, func(u gpu.UUID) bool { return !t.lost.opened[u] }))
}

// Found ends what Lose began, if anything; an operator has opened every GPU. First
// aside moves the file away; if it cannot, nothing ends.
func (t *Tracker) Found(aside func() error) error {
	t.mu.Lock()
	lost := t.lost.why != ""
	t.mu.Unlock()
	if !lost {
		return nil
	}
	if err := aside(); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lost = unread{}
	return nil
}

// Counted is what happened to one GPU for one reason since the agent
// started: "xid-79", "double-bit-ecc", "lost", "row-failed", "recovery-action".
type Counted struct {
	GPU    gpu.UUID
	Reason string
	Class  gpu.XIDClass
	Count  int
}

// Counts are the counters of all GPUs, by GPU and reason.
func (t *Tracker) Counts() []Counted {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []Counted
	for u, g := range t.gpus {
		for r, c := range g.counts {
			all = append(all, Counted{GPU: u, Reason: r, Class: c.class, Count: c.count})
		}
	}
	slices.SortFunc(all, func(a, b Counted) int {
		if a.GPU != b.GPU {
			return strings.Compare(string(a.GPU), string(b.GPU))
		}
		return strings.Compare(a.Reason, b.Reason)
	})
	return all
}

// maxGPUs bounds the GPUs that are remembered; a node has 16.
const maxGPUs = 128

// find is the state of a GPU, known or new; not ok if there is no room, or the
// event names none.
func (t *Tracker) find(u gpu.UUID) (state, bool) {
	g, known := t.gpus[u]
	if known {
		return g, true
	}
	if u == "" || len(t.gpus) >= maxGPUs {
		return state{}, false
	}
	if t.gpus == nil {
		t.gpus = map[gpu.UUID]state{}
	}
	return state{gpu: u}, true
}
