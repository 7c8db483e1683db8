package usage

import "github.com/gpuslot/gpuslot/gpu"

// Method says how a device's activity was divided among its slots.
type Method string

const (
	// MethodExclusive is for one slot on the GPU; exact.
	MethodExclusive Method = "exclusive"
	// MethodMIG is for one slot on the MIG device; exact.
	MethodMIG Method = "mig"
	// MethodTimeslice is for several slots without MPS: the driver's samples of each process.
	MethodTimeslice Method = "timeslice"
	// MethodMPS is for several slots through MPS: bounds, and an estimate between them.
	MethodMPS Method = "mps"
	// MethodNone is for a device of which nothing tells what it does.
	MethodNone Method = "none"
)

// Spread is a quantity with its bounds. What is not known is absent: without
// the activity of the multiprocessors there is an upper bound at most.
type Spread struct{ Lower, Estimate, Upper gpu.Measured[float64] }

// plus is the sum of s and one more interval. What one of the intervals does
// not tell adds nothing: a sum that was begun goes on.
func (s Spread) plus(o Spread) Spread {
	return Spread{sum(s.Lower, o.Lower), sum(s.Estimate, o.Estimate), sum(s.Upper, o.Upper)}
}

// times is s in another unit.
func (s Spread) times(f float64) Spread {
	s.Lower.Value *= f
	s.Estimate.Value *= f
	s.Upper.Value *= f
	return s
}

func sum(a, b gpu.Measured[float64]) gpu.Measured[float64] {
	return gpu.Measured[float64]{Value: a.Value + b.Value, Known: a.Known || b.Known}
}

func spread(r Range) Spread {
	return Spread{gpu.Known(r.Lower), gpu.Known(r.Estimate), gpu.Known(r.Upper)}
}

func atMost(upper float64) Spread { return Spread{Upper: gpu.Known(upper)} }

// SlotTotals are a slot's sums since the agent's start, or a job's. They never fall.
type SlotTotals struct {
	// Allocated are the GPU-seconds that the slot was given.
	Allocated float64
	// SM are physical GPU-seconds of multiprocessor time: on a MIG device its part of the GPU's.
	SM Spread
	// Likely has narrower bounds of SM, which rest on assumptions; see levels.
	Likely Spread
	// Energy in joules, apportioned: idle power by share, the rest by SM time.
	// Its bounds follow from those of SM and from this rule.
	Energy Spread
	// DRAM are seconds of full bandwidth of the GPU's memory in the intervals that the slot had the GPU to itself.
	DRAM gpu.Measured[float64]
	// Idle are the seconds in which certainly nothing worked for the slot.
	Idle gpu.Measured[float64]
}

func (t SlotTotals) plus(o SlotTotals) SlotTotals {
	return SlotTotals{t.Allocated + o.Allocated, t.SM.plus(o.SM), t.Likely.plus(o.Likely), t.Energy.plus(o.Energy),
		sum(t.DRAM, o.DRAM), sum(t.Idle, o.Idle)}
}

// DeviceTotals are a device's sums since the agent's start. They never fall.
type DeviceTotals struct {
	// Sampled are the seconds of which the activity (or, where nothing tells it,
	// the kernel time) is known: the denominator of SM.
	Sampled float64
	// SM are seconds of full activity of this device; Busy are seconds in which any kernel ran.
	SM, Busy gpu.Measured[float64]
	// DRAM are seconds of full bandwidth of the memory, of whole GPUs.
	DRAM gpu.Measured[float64]
	// UnattributedSM is the part of SM that no slot's estimate has.
	UnattributedSM gpu.Measured[float64]
	// Energy in joules, of whole GPUs. It begins as the driver's counter and does not fall when that starts again.
	Energy gpu.Measured[float64]
	// UnattributedEnergy is what no slot was given of the increase of Energy since the agent's start.
	UnattributedEnergy gpu.Measured[float64]
}

// methodOf names the method for a device on which so many slots are reserved or at work.
func methodOf(d Device, slots int, outsiders, mps, source bool) Method {
	switch {
	case !source:
		return MethodNone
	case slots <= 1 && !outsiders && d.MIG != "":
		return MethodMIG
	case slots <= 1 && !outsiders:
		return MethodExclusive
	case mps:
		return MethodMPS
	}
	return MethodTimeslice
}
