package usage

import (
	"maps"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// meter adds up one GPU's energy and learns what it draws when idle.
type meter struct {
	// counter is the driver's last word in mJ.
	counter gpu.Measured[uint64]
	total   gpu.Measured[float64]
	// pending are the joules since begin that were not divided yet; at is the last reading.
	pending   float64
	begin, at time.Time
	// idle is the lowest power in watts seen without any process.
	idle         gpu.Measured[float64]
	unattributed gpu.Measured[float64]
}

// advance takes the driver's counter. It returns false while there is no interval yet. A counter that fell has started
// again: what it shows was used since.
func (m *meter) advance(counter gpu.Measured[uint64], now time.Time) bool {
	if !counter.Known {
		return false
	}
	before := m.counter
	m.counter = counter
	if !before.Known {
		m.total = gpu.Known(float64(counter.Value) / 1000)
		m.begin, m.at = now, now
		return false
	}
	delta := counter.Value - before.Value
	if counter.Value < before.Value {
		delta = counter.Value
	}
	joules := float64(delta) / 1000
	m.total.Value += joules
	m.pending += joules
	m.at = now
	return true
}

// late says that the activity of the pending interval will not come.
func (m *meter) late(longest time.Duration) bool { return m.at.Sub(m.begin) > longest }

// draw takes the pending joules and the time in which they were used.
func (m *meter) draw() (joules float64, took time.Duration) {
	joules, took = m.pending, m.at.Sub(m.begin)
	m.pending, m.begin = 0, m.at
	return joules, took
}

// rest notes what the GPU draws with no process on it.
func (m *meter) rest(watts float64) {
	if !m.idle.Known || watts < m.idle.Value {
		m.idle = gpu.Known(watts)
	}
}

// claim is one slot's claim on a GPU's energy of an interval.
type claim struct {
	// share of the GPU that the slot was given.
	share float64
	// active is its part of the work done: of the SM time, 0 to 1.
	active Range
}

// apportion divides the energy of an interval: the idle part by share, the rest by the work done. What no slot gets is
// the remainder. Shares and estimates add up to at most 1 each.
func apportion(joules, idle float64, claims []claim) (out []Spread, rest float64) {
	idle = min(max(idle, 0), joules)
	active := joules - idle
	out = make([]Spread, len(claims))
	rest = joules
	for i, c := range claims {
		base := idle * c.share
		out[i] = spread(Range{base + active*c.active.Lower, base + active*c.active.Estimate, base + active*c.active.Upper})
		rest -= out[i].Estimate.Value
	}
	return out, max(rest, 0)
}

// claimsOf are the claims of the slots on one GPU, in a fixed order.
func claimsOf(work workload, reservations reserved) ([]slotOn, []claim) {
	claims := map[slotOn]claim{}
	var shares float64
	for d, part := range work.parts {
		for _, b := range reservations[d] {
			k := slotOn{b.Slot, d}
			c := claims[k]
			c.share += max(b.Share, 0) * part
			shares += max(b.Share, 0) * part
			claims[k] = c
		}
	}
	for k, s := range work.slots {
		c := claims[k]
		c.active = work.active(k, s)
		claims[k] = c
	}
	keys := slices.SortedFunc(maps.Keys(claims), compareSlotsOn)
	out := make([]claim, len(keys))
	for i, k := range keys {
		out[i] = claims[k]
		out[i].share /= max(shares, 1) // never more than there is
	}
	return keys, out
}

// active is a slot's part of the work of the whole GPU. Where the activity is
// not known it is guessed at, with bounds that say so.
func (w workload) active(k slotOn, s Spread) Range {
	switch {
	case s.Upper == gpu.Known(0.0):
		return Range{}
	case w.unknown:
		if r, ok := w.guess[k]; ok {
			return r
		}
		return Range{Upper: 1}
	case w.total <= 0:
		return Range{}
	}
	of := func(m gpu.Measured[float64]) float64 { return min(m.Value/w.total, 1) }
	return Range{of(s.Lower), of(s.Estimate), of(s.Upper)}
}

func compareSlotsOn(a, b slotOn) int {
	if by := compareDevices(a.device, b.device); by != 0 {
		return by
	}
	return compareSlots(a.slot, b.slot)
}
