package condor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Growth says how a job that meets the limit of its VRAM is tried again with a
// larger request. The zero value never does.
type Growth struct {
	// Retries is how often at most; 0 for never.
	Retries int
	// Factor multiplies the request each time; above 1.
	Factor float64
	// ExitCodes are those by which programs say that they met the limit.
	ExitCodes []int
	// LimitPercent of the budget, reached in a sample, is taken for the limit if
	// the job ends with an error.
	LimitPercent int
	// EarlyPercent of the budget, reached in a sample, stops a job that can grow
	// before it meets the limit; 0 for never.
	EarlyPercent int
	// The subcodes of holds: the agent's of a job over its budget, of a job that
	// ended at its limit, and of one that came near it.
	OverBudget, AtLimit, NearLimit int
}

func (g Growth) check() error {
	switch {
	case g.Retries < 0 || g.EarlyPercent < 0 || g.EarlyPercent > 100:
		return fmt.Errorf("retries %d and early percentage %d of growth are out of bounds", g.Retries, g.EarlyPercent)
	case g.Retries > 0 && (g.Factor <= 1 || g.LimitPercent < 1 || g.LimitPercent > 100):
		return fmt.Errorf("factor %v and limit percentage %d of growth are out of bounds", g.Factor, g.LimitPercent)
	}
	return nil
}

// growth lets jobs that met the limit of their VRAM run again with a larger
// request: an expression of how often that happened. HTCondor counts holds by
// itself; evictions that are no holds are counted by a transform (25.2.1 on).
func (t *text) growth(p Pool) {
	if p.Growth.Retries == 0 {
		return
	}
	t.comment(
		fmt.Sprintf("A job that met the limit of its VRAM runs again with %s times the request, at most %d times and up to the", percent(p.Growth.Factor), p.Growth.Retries),
		"largest budget. +VRAMRetries asks for fewer, 0 for none. VRAMLimitHit says that its last end was such.",
		"Holds by other rules of the job (code 3) count as well.",
	)
	t.transform("GPUSlotGrow",
		fmt.Sprintf("RequestGPUs =?= 1 && (isInteger(RequestVRAM) || isReal(RequestVRAM)) && RequestVRAM >= %d && RequestVRAM <= %d", inMiBFrom, int64(p.largest().Budget)),
		append(p.grown(), p.limitHit()...)...)
	t.release(p.Growth)
	t.line("if version >= 25.2.1")
	t.comment("What the startd would hold goes back to the queue at once: an eviction transform that changes an attribute",
		"Request… does that. Its lines are joined by the character 0x1e.")
	t.transform("GPUSlotGrowEvicted", "RequestVRAMFirst isnt undefined && VRAMRetries > 0",
		`EVALSET TransformOnEvict isString(TransformOnEvict) ? strcat(TransformOnEvict, ",GPUSlot") : "GPUSlot"`,
		fmt.Sprintf("SET TransformBody_GPUSlot \"REQUIREMENTS VacateReasonCode == %d && %s && VRAMCanGrow\x1eEVALSET RequestVRAMGrown RequestVRAMGrown + 1\"",
			startdHold, oneOf("VacateReasonSubCode", p.Growth.OverBudget, p.Growth.NearLimit)))
	t.line("else")
	t.transform("GPUSlotGrowHeld", "RequestVRAMFirst isnt undefined",
		"SET VRAMGrowths (NumHoldsByReason.JobPolicy ?: 0) + (NumHoldsByReason.StartdHeldJob ?: 0)")
	t.line("endif")
	t.line("")
}

// HTCondor's hold codes: by a rule of the job, by the startd.
const (
	ruleHold   = 3
	startdHold = 21
)

// grown are the actions that make the request an expression. Its value changes
// with the count alone, so that jobs with equal requests stay one autocluster.
func (p Pool) grown() []string {
	largest := int64(p.largest().Budget)
	return []string{
		"EVALSET RequestVRAMFirst int(RequestVRAM)",
		"SET RequestVRAMGrown 0",
		fmt.Sprintf("EVALSET VRAMRetries isInteger(VRAMRetries) ? max({0, min({VRAMRetries, %d})}) : %d", p.Growth.Retries, p.Growth.Retries),
		"SET VRAMGrowths (NumHoldsByReason.JobPolicy ?: 0) + RequestVRAMGrown",
		"SET RequestVRAM " + p.request("VRAMGrowths"),
		fmt.Sprintf("SET VRAMCanGrow VRAMGrowths < VRAMRetries && RequestVRAM < %d", largest),
	}
}

// request is the request after so many growths.
func (p Pool) request(growths string) string {
	return fmt.Sprintf("int(min({%d, quantize(RequestVRAMFirst * pow(%s, min({%s, VRAMRetries})), {%d})}))",
		int64(p.largest().Budget), real(p.Growth.Factor), growths, int64(p.Quantum))
}

// limitHit are the actions that hold a job which ended at its limit. A CUDA
// out-of-memory error is not visible outside the process, so the job's end must
// tell of it. What the user says in on_exit_hold goes first.
func (p Pool) limitHit() []string {
	g := p.Growth
	failed := fmt.Sprintf("(ExitBySignal =?= true || (ExitCode ?: 0) != 0) && VRAMUsage * 100 >= VRAMProvisioned * %d", g.LimitPercent)
	hit := failed
	if len(g.ExitCodes) > 0 {
		hit = fmt.Sprintf("ExitBySignal =?= false && %s || %s", oneOf("ExitCode", g.ExitCodes...), failed)
	}
	actions := []string{"SET VRAMLimitHit (" + hit + ") =?= true"}
	for _, a := range []struct{ name, none, ours string }{
		{"OnExitHold", "false", "VRAMRetries > 0 && VRAMLimitHit"},
		{"OnExitHoldReason", "undefined", p.limitReason()},
		{"OnExitHoldSubCode", "undefined", strconv.Itoa(g.AtLimit)},
	} {
		own := "GPUSlotOwn" + a.name
		expr := fmt.Sprintf("GPUSlotOwnOnExitHold =?= true ? %s : %s", own, a.ours)
		actions = append(actions, fmt.Sprintf("DEFAULT %s %s", a.name, a.none), fmt.Sprintf("COPY %s %s", a.name, own), fmt.Sprintf("SET %s %s", a.name, expr))
	}
	return actions
}

// limitReason is the sentence of such a hold.
func (p Pool) limitReason() string {
	l := p.largest()
	return fmt.Sprintf(`strcat("the job ended at the limit of its VRAM, ", VRAMProvisioned, " MiB", `+
		`VRAMCanGrow ? strcat(": it runs again with request_vram = ", %s, ", retry ", VRAMGrowths + 1, " of ", VRAMRetries) : `+
		`RequestVRAM >= %d ? %s : `+
		`strcat(", after retry ", VRAMRetries, " of ", VRAMRetries, ": release it with a larger request_vram, if that is what it needs"))`,
		p.request("VRAMGrowths + 1"), int64(l.Budget),
		quoteText(fmt.Sprintf(", the largest budget of this pool (%s): make it smaller, or spread it over several GPUs", l.Name)))
}

// release lets held jobs go that have got a larger request since.
func (t *text) release(g Growth) {
	t.set("SYSTEM_PERIODIC_RELEASE_NAMES", "$(SYSTEM_PERIODIC_RELEASE_NAMES) GPUSlotGrow")
	t.set("SYSTEM_PERIODIC_RELEASE_GPUSlotGrow",
		"VRAMRetries > 0 && RequestVRAM > VRAMProvisioned && (HoldReasonCode == %d && HoldReasonSubCode == %d || HoldReasonCode == %d && %s)",
		ruleHold, g.AtLimit, startdHold, oneOf("HoldReasonSubCode", g.OverBudget, g.NearLimit))
	t.line("")
}

// early stops a job that came near its limit, if the access point lets it grow. One
// that is over it is the agent's, which says so.
func (t *text) early(g Growth) {
	t.comment("A job that can grow is stopped before it meets its limit.")
	t.set("GPUSLOT_EARLY", "((MY.VRAMUsage * 100 >= MY.VRAM * %d && MY.VRAMUsage <= MY.VRAM && TARGET.VRAMCanGrow) =?= true)", g.EarlyPercent)
	t.set("GPUSLOT_EARLY_REASON", `strcat("used ", int(MY.VRAMUsage), " MiB of ", MY.VRAM, " MiB requested, which is near its limit: it runs again with a larger request_vram")`)
}

// oneOf says that an attribute has one of some numbers.
func oneOf(attribute string, numbers ...int) string {
	var words []string
	for _, n := range slices.Compact(slices.Sorted(slices.Values(numbers))) {
		words = append(words, strconv.Itoa(n))
	}
	return fmt.Sprintf("member(%s, {%s})", attribute, strings.Join(words, ", "))
}

// real is a number that a ClassAd takes for a real.
func real(f float64) string {
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}
