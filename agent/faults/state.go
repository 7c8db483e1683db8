package faults

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/backoff"
)

const (
	// serverRecovery is the longest that an application's fault closes a GPU:
	// afterwards the control daemon's own checks speak alone.
	serverRecovery = 30 * time.Second
	// flapWindow is how far back the faults of a GPU lengthen its pause.
	flapWindow = 24 * time.Hour
	// maxFaults is how many faults are remembered: the pause has its full length
	// long before.
	maxFaults = 12
	// maxReasons bounds the counters of a GPU: every XID that NVIDIA lists fits.
	maxReasons = 256
	// joinWithin is how far an event and its line in the kernel log may be apart.
	joinWithin = 10 * time.Second
	// recoveryXID only says that the recovery action changed.
	recoveryXID = 154
	// actionWithin is how long after an Xid the driver's recovery action is ascribed to it.
	actionWithin = time.Minute
)

// flapPause is what the second and each further fault in the window add to the reset.
var flapPause = backoff.Doubling{First: 10 * time.Minute, Longest: 8 * time.Hour}

// state is what is known of one GPU. It is a value: each step makes the next.
type state struct {
	gpu    gpu.UUID
	closed Closure
	cause  cause
	since  time.Time
	// faults are the times of the latest closures for hardware.
	faults []time.Time
	// resetSeen: what lifts ClosedForReset was seen, and only the pause is left.
	resetSeen bool
	// server is the last health check of the MPS server; zero without one.
	server time.Time
	// last is the last condition that was read, for what changes.
	last gpu.Condition
	seen bool
	// then is the condition when it was closed, which a later agent compares.
	then gpu.Condition
	// accepted is what an operator opened the GPU in spite of.
	accepted reported
	// heard is the last Xid that left the GPU open.
	heard heard
	// name is the last process that the kernel log named.
	name   named
	counts map[string]count
}

// cause is what closed a GPU.
type cause struct {
	what, do string
	xid      int // 0 if it was none
	mig      string
	named    named
}

type named struct {
	xid, pid int
	process  string
	at       time.Time
}

// heard is an Xid and its time.
type heard struct {
	xid gpu.XID
	at  time.Time
}

type count struct {
	class gpu.XIDClass
	count int
}

// reported is the part of a condition that closes a GPU.
type reported struct {
	rowFailed bool
	recovery  gpu.RecoveryAction
}

func reports(c gpu.Condition) reported {
	var r reported
	if c.RowFailed != nil {
		r.rowFailed = *c.RowFailed
	}
	if c.Recovery != nil {
		r.recovery = *c.Recovery
	}
	return r
}

// after is the GPU after an event.
func (g state) after(e gpu.Event) state {
	switch e.Kind {
	case gpu.EventXID:
		return g.afterXID(e)
	case gpu.EventLost:
		return g.lost(e.Time)
	case gpu.EventUnavailable:
		g = g.counting(string(e.Kind), gpu.XIDNeedsReset)
		return g.close(ClosedForReset, cause{what: "the driver says that it is unavailable",
			do: gpu.RecoveryGPUReset.Do()}, e.Time)
	case gpu.EventDoubleBit: // Xid 48, 94 or 95 says what it means
		return g.counting(string(e.Kind), gpu.XIDInformation)
	case gpu.EventSingleBit, gpu.EventRecoveryAction:
		return g.counting(string(e.Kind), gpu.XIDInformation)
	}
	return g
}

// lostCause has a neutral text: a GPU that is being reset is lost for a moment.
var lostCause = cause{what: "it does not answer (GPU_IS_LOST)",
	do: "see the kernel log for Xid 79 and power-cycle the node; it opens automatically after a reset"}

// lost is the GPU that does not answer. The event and the rounds that follow
// tell of one loss.
func (g state) lost(at time.Time) state {
	if !g.last.Lost {
		g = g.counting("lost", gpu.XIDNeedsReset)
	}
	g.last.Lost, g.seen = true, true
	return g.close(ClosedForReset, lostCause, at)
}

func (g state) afterXID(e gpu.Event) state {
	x := gpu.XIDByNumber(e.XID)
	g = g.counting(fmt.Sprintf("xid-%d", e.XID), x.Class)
	c := cause{what: x.String(), do: x.Do, xid: e.XID}
	if e.GPUInstance != gpu.NoInstance {
		c.mig = fmt.Sprintf(" in GPU instance %d", e.GPUInstance)
	}
	if g.name.xid == e.XID && near(g.name.at, e.Time) {
		c.named = g.name
	}
	if x.ByAction && g.last.Recovery != nil && g.accepted.recovery == gpu.RecoveryNone { // the next round reads it
		g.heard = heard{x, e.Time}
		return g
	}
	switch x.Class {
	case gpu.XIDUnknown, gpu.XIDInformation:
		if e.XID != recoveryXID {
			g.heard = heard{x, e.Time}
		}
	case gpu.XIDBroken:
		return g.close(ClosedBroken, c, e.Time)
	case gpu.XIDNeedsReset:
		return g.close(ClosedForReset, c, e.Time)
	case gpu.XIDApplication:
		// An instance's fault stays there; the server of the GPU is another's.
		if x.Reach == gpu.ReachClients && !g.server.IsZero() && c.mig == "" {
			return g.close(ClosedForServer, c, e.Time)
		}
	}
	return g
}

// close closes it for a cause. The stronger closure wins; one of the same
// strength keeps the first cause, which the others follow from.
func (g state) close(as Closure, c cause, at time.Time) state {
	switch {
	case as == ClosedForServer && (g.closed == "" || g.closed == as):
		// The server has to recover from the last fault.
		g.closed, g.cause, g.since = as, c, at
		return g
	case g.closed.strongerThan(as):
		return g
	case as == g.closed && !g.resetSeen:
		return g
	}
	g.closed, g.cause, g.since, g.resetSeen, g.then = as, c, at, false, g.last
	g.faults = append(slices.Clone(g.faults), at)
	if len(g.faults) > maxFaults {
		g.faults = g.faults[len(g.faults)-maxFaults:]
	}
	return g
}

func (c Closure) strongerThan(o Closure) bool {
	order := []Closure{"", ClosedForServer, ClosedForReset, ClosedBroken}
	return slices.Index(order, c) > slices.Index(order, o)
}

// withName joins a process to the fault of the same number.
func (g state) withName(x gpu.KernelXID, at time.Time) state {
	g.name = named{xid: x.XID, pid: x.PID, process: x.Process, at: at}
	if g.closed != "" && g.cause.xid == x.XID && g.cause.named.pid == 0 && near(g.since, at) {
		g.cause.named = g.name
	}
	return g
}

func near(a, b time.Time) bool { return a.Sub(b).Abs() <= joinWithin }

// counting adds one to a counter; what is one too many is counted as "other".
func (g state) counting(reason string, class gpu.XIDClass) state {
	if _, known := g.counts[reason]; !known && len(g.counts) >= maxReasons {
		reason, class = "other", gpu.XIDUnknown
	}
	counts := maps.Clone(g.counts)
	if counts == nil {
		counts = map[string]count{}
	}
	counts[reason] = count{class: class, count: counts[reason].count + 1}
	g.counts = counts
	return g
}

// overridden is the GPU after the operator opened it.
func (g state) overridden() state {
	g.accepted = reports(g.last)
	return g.open()
}

func (g state) open() state {
	g.closed, g.cause, g.since, g.resetSeen, g.then = "", cause{}, time.Time{}, false, gpu.Condition{}
	return g
}
