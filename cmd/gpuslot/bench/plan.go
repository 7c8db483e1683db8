package bench

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gpuslot/gpuslot/gpu"
)

// Order is what somebody wants to know.
type Order struct {
	Modes   []Mode
	Copies  []int
	Repeats int
	// Rates are requests a second that the copies answer; none: each copy is one job.
	Rates []float64
}

// Check says what cannot be meant.
func (o Order) Check() error {
	for _, m := range o.Modes {
		if !m.Known() {
			return fmt.Errorf("there is no mode %q; the modes are %v", m, Modes())
		}
	}
	for _, n := range o.Copies {
		if n < 1 || n > MaxCopies {
			return fmt.Errorf("%d copies cannot be run; 1 to %d can", n, MaxCopies)
		}
	}
	for _, r := range o.Rates {
		if !(r > 0 && r <= maxRate) {
			return fmt.Errorf("a rate of %g requests a second cannot be sent; up to %g can", r, float64(maxRate))
		}
	}
	if len(o.Modes) == 0 || len(o.Copies) == 0 || o.Repeats < 1 || o.Repeats > maxRepeats {
		return fmt.Errorf("there is nothing to measure: give at least one mode and number of copies, and 1 to %d repeats",
			maxRepeats)
	}
	return nil
}

// Ground is what the order is to be carried out on.
type Ground struct {
	GPU gpu.GPU
	// NoMPS is a sentence that says why MPS cannot be used here; empty if it can.
	NoMPS string
	// MaxClients is how many clients a control daemon serves at most; 0 if unknown.
	MaxClients int
}

// Step is one run to make.
type Step struct {
	Mode   Mode
	Copies int
	Repeat int
	// Profile and Devices are those of mode mig: one device for each copy.
	Profile string
	Devices []gpu.UUID
	// ThreadPercentage is the cap of each copy, with mode mps-capped.
	ThreadPercentage *float64
}

// Plan says which runs carry the order out, and what is left out and why. Each
// repeat goes through all points, so that a drift of the machine meets all alike,
// and through all modes with few copies first: where the time ends before, what
// was measured can be compared.
func Plan(o Order, g Ground) ([]Step, []Skip) {
	var points []Step
	var skips []Skip
	for _, m := range Modes() {
		if !slices.Contains(o.Modes, m) {
			continue
		}
		if reason := g.rules(m); reason != "" {
			skips = append(skips, Skip{Mode: m, Reason: reason})
			continue
		}
		p, s := g.pointsOf(m, slices.Compact(slices.Sorted(slices.Values(o.Copies))))
		points, skips = append(points, p...), append(skips, s...)
	}
	slices.SortStableFunc(points, func(a, b Step) int { return cmp.Compare(a.Copies, b.Copies) })
	var steps []Step
	for repeat := range o.Repeats {
		for _, p := range points {
			p.Repeat = repeat + 1
			steps = append(steps, p)
		}
	}
	return steps, skips
}

// rules says why a whole mode cannot be measured.
func (g Ground) rules(m Mode) string {
	switch {
	case m == MIG && !g.GPU.MIGCapable:
		return "this GPU has no MIG"
	case m == MIG && !g.GPU.MIGEnabled:
		return "the GPU is not in MIG mode, and bench changes no setting of a GPU: " +
			"make MIG devices with gpuslot mig apply, then measure again"
	case m == MIG && len(g.GPU.MIGDevices) == 0:
		return "the GPU has no MIG devices: make some with gpuslot mig apply, then measure again"
	case m != MIG && g.GPU.MIGEnabled:
		return "the GPU is in MIG mode, where no program uses it as a whole"
	case g.GPU.ComputeMode == gpu.ComputeModeProhibited:
		return "the compute mode of the GPU is prohibited: nvidia-smi -c DEFAULT"
	case m == TimeSlice && g.GPU.ComputeMode == gpu.ComputeModeExclusiveProcess:
		return "the compute mode of the GPU is exclusive-process, which lets only one process in: nvidia-smi -c DEFAULT"
	case m == MPS || m == MPSCapped:
		return g.NoMPS
	}
	return ""
}

// pointsOf are the points of one mode. One copy alone is the same in all modes
// but MPS, where it shows what the way through the server costs.
func (g Ground) pointsOf(m Mode, copies []int) (points []Step, skips []Skip) {
	switch m {
	case Exclusive:
		return []Step{{Mode: m, Copies: 1}}, nil
	case MIG:
		return g.onDevices(copies)
	}
	for _, n := range copies {
		switch {
		case n == 1 && m != MPS:
		case g.MaxClients > 0 && n > g.MaxClients && m != TimeSlice:
			skips = append(skips, Skip{m, n, fmt.Sprintf("a control daemon of this driver serves %d clients at most",
				g.MaxClients)})
		case m == MPSCapped:
			points = append(points, Step{Mode: m, Copies: n, ThreadPercentage: shareOf(n)})
		default:
			points = append(points, Step{Mode: m, Copies: n})
		}
	}
	return points, skips
}

// shareOf is 100 / n, cut to the one decimal that the control daemon keeps.
func shareOf(n int) *float64 {
	p := float64(1000/n) / 10
	return &p
}

// onDevices are the points of mode mig: each profile by itself, never more
// copies than it has devices.
func (g Ground) onDevices(copies []int) (points []Step, skips []Skip) {
	of := map[string][]gpu.UUID{}
	for _, d := range g.GPU.MIGDevices {
		of[d.Profile] = append(of[d.Profile], d.UUID)
	}
	for _, profile := range slices.Sorted(maps.Keys(of)) {
		for _, n := range copies {
			if n > len(of[profile]) {
				skips = append(skips, Skip{MIG, n, fmt.Sprintf("the GPU has %d MIG devices %s", len(of[profile]), profile)})
				continue
			}
			points = append(points, Step{Mode: MIG, Copies: n, Profile: profile, Devices: of[profile][:n]})
		}
	}
	return points, skips
}
