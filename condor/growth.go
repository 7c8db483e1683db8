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

// growth lets jobs that met the limit of their VRAM run again with a larger request, as
// HTCondor's retry_request_memory does, with the attributes that a retry_request_vram
// would write. HTCondor has what it needs from 25.2.1 on: when a job would be held, its
// eviction transform may change an attribute Request…, and the job is idle again. The
// transform deletes the subcodes: else a later hold for another reason would match them.
func (t *text) growth(p Pool) {
	g, largest := p.Growth, int64(p.largest().Budget)
	if g.Retries == 0 {
		return
	}
	t.comment(
		fmt.Sprintf("A job that met the limit of its VRAM runs again with %s times the request, at most %d times. The "+
			"limit", percent(g.Factor), g.Retries),
		"is the largest budget, or the job's own +MaxRequestVRAM. The lines of the body are joined by 0x1e.",
	)
	t.line("if version >= 25.2.1")
	actions := []string{
		fmt.Sprintf("EVALSET MaxRequestVRAM int(min({%d, MaxRequestVRAM ?: %d, RequestVRAM * pow(%s, "+
			"%d)}))", largest, largest, real(g.Factor), g.Retries),
		fmt.Sprintf("SET NextRequestVRAM int(min({MaxRequestVRAM, quantize(RequestVRAM * %s, "+
			"{%d})}))", real(g.Factor), int64(p.Quantum)),
		"SET VRAMLimitHit (" + g.hit() + ") =?= true",
	}
	actions = append(actions,
		`DEFAULT OnExitHoldReason VRAMLimitHit ? strcat("the job ended at the limit of its VRAM, ", VRAMProvisioned, " MiB: it runs again with request_vram = ", NextRequestVRAM) : undefined`,
		fmt.Sprintf("SET OnExitHoldSubCode ($(MY.OnExitHold:false)) =?= true ? $(MY.OnExitHoldSubCode:undefined) : "+
			"%d", g.AtLimit),
		"SET OnExitHold ($(MY.OnExitHold:false)) =?= true || VRAMLimitHit && NextRequestVRAM > RequestVRAM",
		`EVALSET TransformOnEvict isString(TransformOnEvict) ? strcat(TransformOnEvict, ",RequestVRAM") : "RequestVRAM"`,
		fmt.Sprintf("SET TransformBody_RequestVRAM \"REQUIREMENTS NextRequestVRAM > RequestVRAM && (HoldReasonCode == %d "+
			"&& HoldReasonSubCode == %d || VacateReasonCode == %d && %s)\x1eEVALSET RequestVRAM NextRequestVRAM\x1eDELETE "+
			"HoldReasonSubCode\x1eDELETE VacateReasonSubCode\"",
			ruleHold, g.AtLimit, startdHold, oneOf("VacateReasonSubCode", g.OverBudget, g.NearLimit)))
	t.transform("GPUSlotGrow", fmt.Sprintf("RequestGPUs =?= 1 && isInteger(RequestVRAM) && RequestVRAM >= %d && "+
		"RequestVRAM <= %d", inMiBFrom, largest), actions...)
	t.line("endif")
	t.line("")
}

// HTCondor's hold codes: by a rule of the job, by the startd.
const (
	ruleHold   = 3
	startdHold = 21
)

// hit is whether a job ended at its limit. A CUDA out-of-memory error is not visible
// outside the process, so the job's end must show it.
func (g Growth) hit() string {
	failed := fmt.Sprintf("(ExitBySignal =?= true || (ExitCode ?: 0) != 0) && VRAMUsage * 100 >= VRAMProvisioned * "+
		"%d", g.LimitPercent)
	if len(g.ExitCodes) == 0 {
		return failed
	}
	return fmt.Sprintf("ExitBySignal =?= false && %s || %s", oneOf("ExitCode", g.ExitCodes...), failed)
}

// early stops a job that came near its limit, if the access point lets it grow. One
// that is over it is the agent's, which says so.
func (t *text) early(g Growth) {
	t.comment("A job that can grow is stopped before it meets its limit.")
	t.set("GPUSLOT_EARLY", "((MY.VRAMUsage * 100 >= MY.VRAM * %d && MY.VRAMUsage <= MY.VRAM && TARGET.NextRequestVRAM "+
		"> TARGET.RequestVRAM) =?= true)", g.EarlyPercent)
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
