package bench

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpuslot/gpuslot/gpu"
)

const (
	// enough of the best throughput of a mode: copies that bring less than the
	// rest cost memory and run time for nothing.
	enough = 0.95
	// crowded is the DRAM activity from which copies queue for memory: three
	// quarters of the 80 % that NVIDIA's DCGM documentation calls the practical
	// maximum of DCGM_FI_PROF_DRAM_ACTIVE.
	crowded = 0.6
	// vramMargin is added to the peak that was sampled, vramStep is how the
	// limits of MPS were seen to round (256 MiB, NVIDIA's Dynamo guide on 615).
	vramMargin          = 1.1
	vramStep    gpu.MiB = 256
	mostReasons         = 8
)

// Advice is how jobs of this kind should share GPUs, as far as it was measured.
type Advice struct {
	// Mode is MPS, MPSCapped, MIG, TimeSlice, or Exclusive for a whole GPU; empty if it is
	// not known.
	Mode Mode
	// Limited names the best mode that limits jobs and its gain, where Mode is TimeSlice,
	// which does so from driver 615 on only; empty if none was measured.
	Limited string
	// Copies is how many to put on a GPU like this one.
	Copies int
	// Profile is that of mode mig.
	Profile string
	// Gain is the throughput as a multiple of one job after the other.
	Gain *Spread
	// VRAM is what such a job should request; nil if not known.
	VRAM *gpu.MiB
	// Reasons are the measured ones, Unknown what was not measured and could
	// change the advice; sentences.
	Reasons, Unknown []string
}

// Advise says which sharing mode and VRAM request suit the command. After the
// papers on MPS and MIG: MPS where the copies leave each other memory bandwidth,
// MIG or a whole GPU where they contend for it (arXiv 2604.22430); and nothing
// that was not measured.
func Advise(r Result) Advice {
	points := r.Points()
	var a Advice
	alone, ok := Alone(points)
	if !ok {
		why := "was not measured"
		if slices.ContainsFunc(points, func(p Point) bool { return p.Mode == Exclusive }) {
			why = "did not succeed"
		}
		a.Unknown = append(a.Unknown, "The command "+why+" alone, so nothing can be compared with it.")
		return a
	}
	best := candidates(points, alone)
	a.unmeasured(points)
	if len(best) == 0 {
		a.Unknown = append(a.Unknown, "No way of sharing was measured, so whether sharing gains anything is not known.")
		a.memory(r, points, alone)
		return a
	}
	a.choose(best, alone)
	a.memory(r, points, alone)
	return a
}

// candidate is the point of a mode that has enough of its best throughput.
type candidate struct {
	Point
	gain Spread
	// fell says that more copies had less throughput, beyond the spread.
	fell *Point
}

// candidates has at most one entry for each mode and profile.
func candidates(points []Point, alone Point) (out []candidate) {
	for _, p := range points {
		if p.Repeats == 0 || p.Mode == Exclusive || p.Mode == MPS && p.Copies == 1 {
			continue
		}
		best := p
		var fell *Point
		for _, q := range points {
			if q.Mode != p.Mode || q.Profile != p.Profile || q.Repeats == 0 {
				continue
			}
			if q.PerHour.Median > best.PerHour.Median {
				best = q
			}
			if q.Copies > p.Copies && q.PerHour.Max < p.PerHour.Min {
				fell = &q
			}
		}
		seen := slices.ContainsFunc(out, func(c candidate) bool { return c.Mode == p.Mode && c.Profile == p.Profile })
		if gain, ok := Ratio(p.PerHour, alone.PerHour); ok && !seen && p.PerHour.Median >= enough*best.PerHour.Median {
			out = append(out, candidate{p, gain, fell})
		}
	}
	return out
}

// choose takes the best, and among those that their spreads do not tell apart
// the one that the contention for memory speaks for; time slicing, which limits jobs
// from driver 615 on, only where it beats all others.
func (a *Advice) choose(all []candidate, alone Point) {
	top := slices.MaxFunc(all, func(x, y candidate) int { return cmp.Compare(x.gain.Median, y.gain.Median) })
	prefer := []Mode{MPS, MPSCapped, MIG, TimeSlice}
	contended := slices.ContainsFunc(all, func(c candidate) bool { return c.Mode != MIG && c.contended() })
	if contended {
		prefer = []Mode{MIG, MPSCapped, MPS, TimeSlice}
	}
	best := top
	for _, c := range all {
		if c.PerHour.Max >= top.PerHour.Min && slices.Index(prefer, c.Mode) < slices.Index(prefer, best.Mode) {
			best = c
		}
	}
	a.Gain = &best.gain
	for _, c := range all {
		a.because(c, alone)
	}
	if best.gain.Min <= 1 {
		a.Mode, a.Copies = Exclusive, 1
		a.reason("Sharing gains nothing beyond the spread of the repeats: give each job a whole GPU, or a smaller one.")
	} else {
		a.Mode, a.Copies, a.Profile = best.Mode, best.Copies, best.Profile
	}
	if a.Mode == TimeSlice {
		a.Limited = limited(all)
	}
	if contended && !slices.ContainsFunc(all, func(c candidate) bool { return c.Mode == MIG }) {
		a.Unknown = append(a.Unknown, "The copies contend for memory and MIG, which divides the bandwidth, "+
			"was not measured: measure it on a GPU in MIG mode before you decide.")
	}
	if len(a.Reasons) > mostReasons {
		a.Reasons = a.Reasons[:mostReasons]
	}
}

// limited is the best of the candidates that limit jobs with any driver.
func limited(all []candidate) string {
	all = slices.DeleteFunc(slices.Clone(all), func(c candidate) bool { return c.Mode == TimeSlice })
	if len(all) == 0 {
		return ""
	}
	best := slices.MaxFunc(all, func(x, y candidate) int { return cmp.Compare(x.gain.Median, y.gain.Median) })
	return fmt.Sprintf("%s, %.2f times", best.name(), best.gain.Median)
}

// contended: the memory is busy, or more copies get less done; with caps that
// may come of the caps, which are rounded down to whole multiprocessors, and in time
// slices of the turns.
func (c candidate) contended() bool {
	return c.DRAMActivity != nil && c.DRAMActivity.Median >= crowded ||
		c.fell != nil && c.Mode != MPSCapped && c.Mode != TimeSlice
}

// because adds what speaks for and against a candidate.
func (a *Advice) because(c candidate, alone Point) {
	what := c.name()
	over := "one repeat"
	if c.gain.N > 1 {
		over = fmt.Sprintf("%.2f to %.2f over the repeats", c.gain.Min, c.gain.Max)
	}
	a.reason("%s: %.2f times the jobs per hour of one after the other (%s); the slowest job takes %.2f times as long.",
		what, c.gain.Median, over, c.Slowest.Median/alone.JobSeconds.Median)
	if c.DRAMActivity != nil && alone.DRAMActivity != nil && c.Mode != MIG {
		word := "memory traffic is low"
		if c.DRAMActivity.Median >= crowded {
			word = "memory traffic is high: the copies contend for it"
		}
		a.reason("%s: %s, %.0f %% of the bandwidth against %.0f %% alone.", what, word, 100*c.DRAMActivity.Median,
			100*alone.DRAMActivity.Median)
	}
	if c.fell != nil {
		a.reason("%s: %d copies get less done than %d.", c.Mode, c.fell.Copies, c.Copies)
	}
	if c.Joules != nil && alone.Joules != nil && alone.Joules.Median > 0 {
		a.reason("%s: a job takes %.2f times the energy that it takes alone.", what, c.Joules.Median/alone.Joules.Median)
	}
}

func (a *Advice) reason(format string, args ...any) {
	a.Reasons = append(a.Reasons, fmt.Sprintf(format, args...))
}

func (p Point) name() string {
	if p.Mode == MIG {
		return fmt.Sprintf("mig, %d of %s", p.Copies, p.Profile)
	}
	return fmt.Sprintf("%s, %d copies", p.Mode, p.Copies)
}

// unmeasured says what would be needed for more.
func (a *Advice) unmeasured(points []Point) {
	missing := func(is func(Point) bool) bool { return !slices.ContainsFunc(points, is) }
	if missing(func(p Point) bool { return p.DRAMActivity != nil }) {
		a.Unknown = append(a.Unknown, "Memory traffic: "+
			"this GPU or driver does not tell it (GPM, Hopper and newer), so contention shows in the throughput alone.")
	}
	if missing(func(p Point) bool { return p.Repeats > 1 }) {
		a.Unknown = append(a.Unknown, "The spread: "+
			"each point was measured once, so a difference may be chance; measure with --repeats 3 or more.")
	}
	if missing(func(p Point) bool { return p.Joules != nil }) {
		a.Unknown = append(a.Unknown, "Energy: this GPU or driver does not tell it.")
	}
}

// memory is the VRAM request: what any copy held at most, and a margin.
func (a *Advice) memory(r Result, points []Point, alone Point) {
	var peak *gpu.MiB
	how := "the most that the processes of one copy held in any sample"
	for _, p := range points {
		peak = larger(peak, p.JobVRAM)
	}
	if peak == nil && alone.GPUVRAM != nil && alone.IdleVRAM != nil && *alone.GPUVRAM > *alone.IdleVRAM {
		grown := *alone.GPUVRAM - *alone.IdleVRAM
		peak, how = &grown, "by how much the memory in use of the whole GPU grew with one copy; its processes were not told"
	}
	if peak == nil {
		a.Unknown = append(a.Unknown, "VRAM: no sample saw what the copies held, "+
			"for the driver does not tell it or the command is too short; so no request can be advised.")
		return
	}
	request := gpu.MiB(float64(*peak) * vramMargin).Ceil(vramStep)
	a.VRAM = &request
	a.reason("VRAM: %s was %s; the request adds a tenth and is a multiple of %s.", how, *peak, vramStep)
	if fit := int(r.Machine.GPU.Memory / request); a.Copies > 1 && a.Mode != MIG && fit < a.Copies {
		a.Copies = max(fit, 1)
		a.reason("VRAM: %d such requests fit on this GPU.", fit)
	}
}
