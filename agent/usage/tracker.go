package usage

import (
	"maps"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// tracker is what the sampler remembers of one device from round to round.
type tracker struct {
	// at is the end of the last interval that was divided.
	at time.Time
	// sightings are the processes that were on the device since then.
	sightings map[process.ID]sighting
	// restless are slots that lately had a process too short-lived to be sure that all of them are seen.
	restless map[SlotKey]time.Time
	// changed are slots whose processes came or went lately; the zero key stands for the outsiders.
	changed map[SlotKey]time.Time
	// measured: the activity was known before, so kernel time is no substitute.
	measured bool
	total    DeviceTotals
	// beyond counts the intervals with more activity than the caps allow.
	beyond uint64
	last   share
	levels levels
	// contention is that of the memory of a whole GPU.
	contention contention
	// unlisted is the memory that no listed process has.
	unlisted unlisted
}

// share is how the last interval was divided.
type share struct {
	method   Method
	activity gpu.Measured[float64]
	source   string
	kernel   gpu.Measured[float64]
	slots    map[SlotKey]Spread
	// likely are intervals within those of slots, of the jobs that levels knows.
	likely map[SlotKey]Range
	// guess is each slot's part of the work done, without activity.
	guess map[SlotKey]Range
	// idle are the slots without a process; quiet says that the device did nothing for the others either. dram is the use
	// of the memory's bandwidth if one slot had the device to itself.
	idle  []SlotKey
	quiet bool
	dram  gpu.Measured[float64]
}

// rest is what an interval shows of a slot besides its work.
func (s share) rest(k SlotKey, took float64) SlotTotals {
	out := SlotTotals{DRAM: times(s.dram, took), Idle: gpu.Known(0.0)}
	if s.quiet || slices.Contains(s.idle, k) {
		out.Idle.Value = took
	}
	return out
}

// likelyOf has the bounds of the regression; without one those that hold whatever jobs do.
func (s share) likelyOf(k SlotKey) Spread {
	out := s.slots[k]
	if r, ok := s.likely[k]; ok {
		out.Lower, out.Upper = gpu.Known(r.Lower), gpu.Known(r.Upper)
	}
	return out
}

// sighting is when a process was on the device.
type sighting struct {
	owner       Owner
	slot        SlotKey
	mps         bool
	first, last time.Time
}

const (
	// shortLife is the life of a process that may have been missed: several rounds at the usual intervals.
	shortLife = 10 * time.Second
	// restlessFor is how long a slot with short-lived processes counts as having more of them than is seen.
	restlessFor = time.Minute
	// lag is how old the values of a dcgm-exporter may be: it collects every
	// 30 s unless told otherwise, and is itself read at the sampling interval.
	lag = 35 * time.Second
)

func newTracker() *tracker {
	return &tracker{sightings: map[process.ID]sighting{}, restless: map[SlotKey]time.Time{},
		changed: map[SlotKey]time.Time{}}
}

// sight notes the processes that are there now.
func (t *tracker) sight(processes []Process, now time.Time) {
	for _, p := range processes {
		key := process.ID{PID: p.PID, Started: p.Started}
		s, had := t.sightings[key]
		if !had {
			s = sighting{owner: p.Owner, slot: p.Slot, first: now}
			if p.Owner != OwnerServer {
				t.changed[p.Slot] = now
			}
		}
		s.mps = s.mps || p.MPSClient
		s.last = now
		if p.Owner == OwnerSlot && s.owner == OwnerUnknown {
			t.changed[p.Slot] = now
		}
		if p.Owner == OwnerSlot || s.owner == OwnerUnknown || s.owner == OwnerEnded {
			s.owner, s.slot = p.Owner, p.Slot // an agent that starts learns of slots later
		}
		t.sightings[key] = s
	}
	for _, s := range t.sightings {
		if !s.last.Before(now) || s.owner == OwnerServer {
			continue
		}
		t.changed[s.slot] = now
		if s.owner == OwnerSlot && s.last.Sub(s.first) < shortLife {
			t.restless[s.slot] = now
		}
	}
	maps.DeleteFunc(t.restless, func(_ SlotKey, since time.Time) bool { return now.Sub(since) > restlessFor })
	maps.DeleteFunc(t.changed, func(_ SlotKey, since time.Time) bool { return now.Sub(since) > lag })
}

// end begins a new interval: who is not here any more is forgotten.
func (t *tracker) end(now time.Time) {
	t.at = now
	maps.DeleteFunc(t.sightings, func(_ process.ID, s sighting) bool { return s.last.Before(now) })
}

// sharers are those who may have used the device in an interval.
type sharers struct {
	slots []SlotKey
	// parts of the slots, and at the end that of the outsiders if there are any.
	parts     []Part
	outsiders bool
	// idle are slots with a reservation that certainly had no process there: they used nothing.
	idle []SlotKey
	// known is the number of slots with a reservation or seen, clients the processes of those with any.
	known   int
	clients map[SlotKey]int
	mps     bool
	// anybody: a process may be of any slot. None is idle then.
	anybody bool
}

// sharersOf gathers the slots that have a reservation or had a process on the device. A slot without a process is no
// part, unless it is restless. Where the activity is of some time ago, so are those who caused it.
func (t *tracker) sharersOf(
	reservations []Reservation, samples gpu.Measured[[]gpu.ProcessSample], lagged bool,
) sharers {
	given := make(map[SlotKey]Reservation, len(reservations))
	clients := make(map[SlotKey]int, len(reservations))
	out := sharers{}
	for _, b := range reservations {
		given[b.Slot] = b
		clients[b.Slot] += 0
		out.mps = out.mps || b.MPS
	}
	alone := t.countClients(clients, &out)
	out.known, out.clients = len(clients), maps.Clone(clients)
	maps.DeleteFunc(out.clients, func(_ SlotKey, n int) bool { return n == 0 })
	if lagged {
		out.outsiders, alone.Cap = t.late(clients, out.outsiders, alone.Cap)
	}
	for _, k := range slices.SortedFunc(maps.Keys(clients), compareSlots) {
		restless := out.anybody || !t.restless[k].IsZero() || lagged && !t.changed[k].IsZero()
		p := partOf(given[k], clients[k], restless)
		if p.Cap > 0 {
			out.slots, out.parts = append(out.slots, k), append(out.parts, p)
		} else {
			out.idle = append(out.idle, k)
		}
	}
	if out.outsiders {
		out.parts = append(out.parts, alone)
	}
	if !out.mps && samples.Known {
		t.weigh(&out, samples.Value)
	}
	return out
}

// countClients counts each slot's clients and returns the part of the outsiders.
func (t *tracker) countClients(clients map[SlotKey]int, out *sharers) (alone Part) {
	for _, s := range t.sightings {
		out.mps = out.mps || s.mps
		switch s.owner {
		case OwnerSlot:
			clients[s.slot]++
		case OwnerNone:
			out.outsiders, alone = true, Part{Cap: 1, Weight: 1}
		case OwnerEnded:
			out.outsiders, alone.Cap = true, 1
		case OwnerUnknown: // nor is it known whether it is an outsider
			out.outsiders, alone.Cap, out.anybody = true, 1, true
		}
	}
	return alone
}

// late adds to the clients' slots those that were there lately, and outsiders if there were any.
func (t *tracker) late(clients map[SlotKey]int, outsiders bool, limit float64) (bool, float64) {
	for k := range t.changed {
		if k == (SlotKey{}) {
			outsiders, limit = true, 1
			continue
		}
		clients[k] += 0
	}
	return outsiders, limit
}

// partOf is the part of a slot with so many clients. Without a booking no cap is known.
func partOf(b Reservation, clients int, restless bool) Part {
	each := 1.0
	if b.MPS && b.Cap > 0 && b.Cap < 1 {
		each = b.Cap
	}
	p := Part{Weight: min(1, float64(clients)*each)}
	p.Cap = p.Weight
	if restless {
		p.Cap = 1
	}
	return p
}

// weigh replaces the weights by what the driver sampled of each process.
func (t *tracker) weigh(c *sharers, samples []gpu.ProcessSample) {
	shares := make(map[int]float64, len(samples))
	for _, s := range samples {
		shares[s.PID] = s.SM
	}
	for i := range c.parts {
		c.parts[i].Weight = 0
	}
	for key, s := range t.sightings {
		i, found := len(c.slots), c.outsiders && s.owner == OwnerNone
		if s.owner == OwnerSlot {
			i, found = slices.BinarySearchFunc(c.slots, s.slot, compareSlots)
		}
		if found {
			c.parts[i].Weight = min(c.parts[i].Cap, c.parts[i].Weight+shares[key.PID])
		}
	}
}
