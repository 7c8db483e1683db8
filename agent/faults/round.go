package faults

import (
	"fmt"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// round is the GPU after one round's look at it.
func (g state) round(now time.Time, s Sight) state {
	g.server = s.Server
	if s.Err != nil { // nothing is known of it in this round
		return g.lift(now)
	}
	was, first := g.last, !g.seen
	if s.Lost {
		return g.lost(now)
	}
	g = g.keep(s.Condition)
	if !first && g.closed == ClosedForReset && resetBetween(was, s.Condition) {
		g.resetSeen = true
	}
	return g.reportsOf(now, was, s.Condition).lift(now)
}

// keep remembers a condition for the next round. Of a lost GPU what it said
// before stays, to be compared with what it says when it is back.
func (g state) keep(c gpu.Condition) state {
	g.last, g.seen = c, true
	// An operator's acceptance ends with what was accepted.
	now := reports(c)
	g.accepted.rowFailed = g.accepted.rowFailed && now.rowFailed
	if g.accepted.recovery != now.recovery {
		g.accepted.recovery = gpu.RecoveryNone
	}
	return g
}

// resetBetween says whether the GPU was reset, or its driver loaded again,
// between two conditions: it was gone and is back; what counts from then on has
// fallen; the driver says no more that it needs one.
func resetBetween(was, now gpu.Condition) bool {
	return was.Lost ||
		fell(was.Energy, now.Energy) ||
		fell(was.UncorrectedVolatile, now.UncorrectedVolatile) ||
		reports(was).recovery != gpu.RecoveryNone && now.Recovery != nil && *now.Recovery == gpu.RecoveryNone
}

func fell(was, now *uint64) bool { return was != nil && now != nil && *now < *was }

// reportsOf closes the GPU for what it says itself.
func (g state) reportsOf(now time.Time, was, is gpu.Condition) state {
	before, after := reports(was), reports(is)
	if after.rowFailed {
		if !before.rowFailed {
			g = g.counting("row-failed", gpu.XIDBroken)
		}
		if !g.accepted.rowFailed {
			g = g.close(ClosedBroken, cause{what: "a row of its memory could not be remapped",
				do: gpu.XIDByNumber(64).Do + "; NVIDIA replaces such GPUs after its field diagnostic"}, now)
		}
	}
	if after.recovery != gpu.RecoveryNone {
		if before.recovery != after.recovery {
			g = g.counting("recovery-action", gpu.XIDNeedsReset)
		}
		if g.accepted.recovery != after.recovery {
			g.resetSeen = false
			c := cause{what: "the driver asks for: " + after.recovery.String(), do: after.recovery.Do()}
			if x := g.heard; !x.at.IsZero() && now.Sub(x.at) <= actionWithin {
				c.what += ", after " + x.xid.String()
			}
			g = g.close(ClosedForReset, c, now)
		}
	}
	return g
}

// lift opens the GPU if nothing keeps it closed any more.
func (g state) lift(now time.Time) state {
	switch {
	case g.closed == ClosedForServer && (g.server.IsZero() || g.server.After(g.since)):
	case g.closed == ClosedForReset && g.resetSeen && !now.Before(g.until()):
	default:
		return g
	}
	return g.open()
}

// until is when the pause of a GPU that faults often is over.
func (g state) until() time.Time {
	return g.since.Add(flapPause.After(g.flaps(g.since) - 1))
}

// flaps counts the faults in the window before a time.
func (g state) flaps(at time.Time) int {
	n := 0
	for _, f := range g.faults {
		if at.Sub(f) < flapWindow {
			n++
		}
	}
	return n
}

// verdict is what an operator and the startd are told. A closure that only
// waits for the server ends with its time, round or not.
func (g state) verdict(now time.Time) Verdict {
	if g.closed == ClosedForServer && now.Sub(g.since) >= serverRecovery {
		g.closed = ""
	}
	v := Verdict{Class: g.closed}
	switch g.closed {
	case "":
		v.Advice = g.advice()
		return v
	case ClosedForServer:
		v.Until = g.since.Add(serverRecovery)
	case ClosedForReset:
		if g.flaps(g.since) > 1 {
			v.Until = g.until()
		}
	}
	v.Since, v.Reason = g.since, g.reason()
	return v
}

// reason says what, who, and what to do.
func (g state) reason() string {
	var b strings.Builder
	b.WriteString(g.cause.what + g.cause.mig)
	if c := g.cause.named; c.pid > 0 {
		fmt.Fprintf(&b, ", noted for process %d (%s)", c.pid, c.process)
	}
	if n := g.flaps(g.since); n > 1 && g.closed != ClosedForServer {
		fmt.Fprintf(&b, ", its fault number %d in %.0f h", n, flapWindow.Hours())
	}
	switch {
	case g.closed == ClosedForServer:
		b.WriteString(": it opens when its MPS server is active again")
	case g.closed == ClosedForReset && g.resetSeen:
		b.WriteString(": it was reset and opens at " + g.until().UTC().Format(time.RFC3339) +
			", or with gpuslot gpu open --override " + string(g.gpu))
	case g.closed == ClosedForReset:
		b.WriteString(": " + g.cause.do + "; it opens when the reset is seen, or with gpuslot gpu open --override " +
			string(g.gpu))
	default:
		b.WriteString(": " + g.cause.do + "; then gpuslot gpu open --override " + string(g.gpu))
	}
	return b.String()
}

// advice is for a GPU that takes jobs (NVIDIA GPU Memory Error Management: with
// the pending flag set new workloads can be launched).
func (g state) advice() string {
	switch {
	case g.last.RowsPending != nil && *g.last.RowsPending:
		return "rows of its memory wait to be remapped: " + gpu.XIDByNumber(63).Do
	case g.last.PagesPending != nil && *g.last.PagesPending:
		return "pages of its memory wait to be retired: " + gpu.XIDByNumber(63).Do
	case g.accepted != reported{}:
		return "opened by an operator in spite of what it reports"
	}
	return ""
}
