package usage

import (
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// observation is what is known of a device's last interval.
type observation struct {
	device   Device
	activity gpu.Measured[float64]
	// source of the activity.
	source string
	kernel gpu.Measured[float64]
	// dram is the share of the memory's bandwidth in use, of whole GPUs.
	dram gpu.Measured[float64]
	// samples are the processes' shares; they are known without MPS only.
	samples gpu.Measured[[]gpu.ProcessSample]
	// part is the device's part of the GPU's multiprocessors.
	part gpu.Measured[float64]
}

// Who tells the activity.
const (
	sourceGPM  = "gpm"
	sourceDCGM = "dcgm"
)

// rounding is the driver's: it counts kernel time in whole per cent.
const rounding = 0.01

// tolerance of Division.Beyond: clocks and counters are read one after the other.
const tolerance = 0.02

// attribute divides the interval that ends now. It returns each slot's share
// of the device and false if there is nothing to divide.
func (t *tracker) attribute(
	o observation, reservations []Reservation, now time.Time, longest time.Duration,
) (took float64, divided bool) {
	c := t.sharersOf(reservations, o.samples, o.source == sourceDCGM)
	t.measured = t.measured || o.activity.Known
	source := t.measured || o.kernel.Known
	t.last = share{method: methodOf(o.device, c.known, c.outsiders, c.mps, source), activity: o.activity, source: o.source,
		kernel: o.kernel, slots: map[SlotKey]Spread{}}
	interval := now.Sub(t.at)
	usable := o.activity.Known || o.kernel.Known && !t.measured
	if t.at.IsZero() || interval > longest {
		t.end(now) // the last sample is too old
		return 0, false
	}
	if !usable {
		if !source {
			t.end(now)
		}
		return 0, false
	}
	took = interval.Seconds()
	t.contention.take(o.dram, len(c.clients), interval)
	t.total.Sampled += took
	t.total.Busy = sum(t.total.Busy, times(o.kernel, took))
	t.total.DRAM = sum(t.total.DRAM, times(o.dram, took))
	if o.activity.Known {
		t.divide(o, c, took, now)
	} else {
		t.limit(o.kernel.Value, c)
	}
	t.last.idle, t.last.quiet = c.idle, o.quietly()
	if c.known == 1 && !c.outsiders {
		t.last.dram = o.dram
	}
	t.end(now)
	return took, true
}

// quiet is an activity that counters show of a device which does nothing.
const quiet = 0.005

// quietly says that the device did nothing.
func (o observation) quietly() bool {
	return o.activity.Known && o.activity.Value < quiet || !o.activity.Known && o.kernel == gpu.Known(0.0)
}

// limit divides where kernel time is all that is known: no more SMs can have
// been busy than there was time with a kernel.
func (t *tracker) limit(kernel float64, c sharers) {
	var weights float64
	for _, p := range c.parts {
		weights += p.Weight
	}
	t.last.guess = map[SlotKey]Range{}
	for _, k := range c.idle {
		t.last.slots[k] = atMost(0) // no estimate: the sum of those to come would lack them
	}
	for i, k := range c.slots {
		t.last.slots[k] = atMost(min(c.parts[i].Cap, kernel+rounding))
		switch {
		case kernel == 0:
			t.last.guess[k] = Range{}
		case len(c.parts) == 1:
			t.last.guess[k] = Range{1, 1, 1}
		case weights > 0:
			t.last.guess[k] = Range{0, c.parts[i].Weight / weights, 1}
		}
	}
}

// count sums up the activity of a GPU whose slots are on its MIG devices.
func (t *tracker) count(activity, dram gpu.Measured[float64], now time.Time, longest time.Duration) {
	took := now.Sub(t.at)
	switch {
	case t.at.IsZero() || took > longest:
		t.at = now
	case activity.Known:
		t.at = now
		t.total.Sampled += took.Seconds()
		t.total.SM = sum(t.total.SM, times(activity, took.Seconds()))
		t.total.DRAM = sum(t.total.DRAM, times(dram, took.Seconds()))
	}
}

func (t *tracker) divide(o observation, c sharers, took float64, now time.Time) {
	a := o.activity.Value
	t.regress(o, c, now)
	d := Divide(a, c.parts)
	if t.last.method == MethodTimeslice && o.samples.Known {
		d = DivideMeasured(a, c.parts)
	}
	for _, k := range c.idle {
		t.last.slots[k] = spread(Range{})
	}
	rest := a
	for i, k := range c.slots {
		t.last.slots[k] = spread(d.Parts[i])
		rest -= d.Parts[i].Estimate
	}
	if len(c.parts) > 0 && d.Beyond > tolerance {
		t.beyond++
	}
	t.total.SM = sum(t.total.SM, gpu.Known(a*took))
	t.total.UnattributedSM = sum(t.total.UnattributedSM, gpu.Known(max(rest, 0)*took))
}

// regress sets the weights of jobs behind MPS by what changed when jobs came and went. The
// driver's own counters alone are of the same time as the processes beside them.
func (t *tracker) regress(o observation, c sharers, now time.Time) {
	t.last.likely = map[SlotKey]Range{}
	if !c.mps || c.outsiders || o.source != sourceGPM {
		t.levels = levels{}
		return
	}
	a := o.activity.Value
	t.levels.take(now, a, c.clients)
	d, rest, unknown := bounds(a, c.parts), a, 0
	for i, k := range c.slots {
		if r, ok := t.levels.of(k, d.Parts[i]); ok {
			t.last.likely[k] = r
			rest -= r.Estimate
		} else {
			unknown++
		}
	}
	if len(t.last.likely) == 0 {
		return
	}
	for i, k := range c.slots {
		c.parts[i].Weight = t.last.likely[k].Estimate
		if _, ok := t.last.likely[k]; !ok {
			c.parts[i].Weight = min(c.parts[i].Cap, max(rest, 0)/float64(unknown))
		}
	}
}

func times(m gpu.Measured[float64], f float64) gpu.Measured[float64] {
	m.Value *= f
	return m
}
