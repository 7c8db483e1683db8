package usage

import (
	"maps"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/agent/record"
	"github.com/gpuslot/gpuslot/gpu"
)

// keepEnded is how long what has ended stays in the snapshot: several scrapes.
const keepEnded = 10 * time.Minute

// slotOn is a job's hold on one device.
type slotOn struct {
	slot   SlotKey
	device Device
}

// nameOn is a slot on one device, whatever its job.
type nameOn struct {
	slot   string
	device Device
}

// entry is what one job did, or one slot.
type entry struct {
	totals SlotTotals
	peak   gpu.Measured[gpu.Bytes]
	curve  *record.Curve
	// partly: NVML did not list all that the job may have held.
	partly bool
	// begin and at are the first and the last time that it was there.
	begin, at time.Time
	// usage is the job's last, for when it has ended.
	usage SlotUsage
	ended bool
}

// ledger holds the sums of jobs, and of slots over all their jobs.
type ledger struct {
	jobs  map[slotOn]*entry
	slots map[nameOn]*entry
}

func newLedger() ledger { return ledger{jobs: map[slotOn]*entry{}, slots: map[nameOn]*entry{}} }

func (l ledger) job(k slotOn) *entry {
	e := l.jobs[k]
	if e == nil {
		e = &entry{}
		l.jobs[k] = e
	}
	return e
}

// add adds to the sums of a job and its slot.
func (l ledger) add(k slotOn, t SlotTotals, now time.Time) {
	j := l.job(k)
	name := nameOn{k.slot.Slot, k.device}
	s := l.slots[name]
	if s == nil {
		s = &entry{}
		l.slots[name] = s
	}
	j.totals, s.totals = j.totals.plus(t), s.totals.plus(t)
	s.at = now
	if j.at.IsZero() {
		j.at = now
	}
}

// since is the time since the job was last there, up to a limit; 0 for a new one.
func (l ledger) since(k slotOn, now time.Time, longest time.Duration) time.Duration {
	j := l.job(k)
	if j.at.IsZero() || now.Sub(j.at) > longest {
		return 0
	}
	return now.Sub(j.at)
}

// see notes a job that is there now and fills in its sums.
func (l ledger) see(u *SlotUsage, now time.Time) {
	j := l.job(slotOn{u.Slot, u.Device})
	if j.begin.IsZero() {
		j.begin = now
	}
	if u.Memory.Known {
		j.peak = gpu.Known(max(j.peak.Value, u.Memory.Value))
		j.curve = j.curve.With(now.Sub(j.begin), int64(u.Memory.Value.MiB()))
	}
	u.Peak, u.Curve, u.Job = j.peak, j.curve, j.totals
	if j.partly = j.partly || u.Partly; j.partly {
		u.Peak.Known, u.Curve = false, nil
	}
	j.usage, j.at, j.ended = *u, now, false
	if s := l.slots[nameOn{u.Slot.Slot, u.Device}]; s != nil {
		s.at = now
	}
}

// sweep finds the jobs that are not there any more, and forgets the old ones.
// A job on a device that could not be read has not ended.
func (l ledger) sweep(fresh func(Device) bool, now time.Time) {
	for k, j := range l.jobs {
		if !j.ended && j.at.Before(now) && fresh(k.device) {
			j.ended = true
		}
		if now.Sub(j.at) > keepEnded {
			delete(l.jobs, k)
		}
	}
	maps.DeleteFunc(l.slots, func(_ nameOn, s *entry) bool { return now.Sub(s.at) > keepEnded })
}

// ended lists the jobs that have, the last state of each.
func (l ledger) ended() []SlotUsage {
	var out []SlotUsage
	for k, j := range l.jobs {
		if j.ended {
			u := j.usage
			u.Slot, u.Device, u.Job, u.Ended = k.slot, k.device, j.totals, j.at
			out = append(out, u)
		}
	}
	slices.SortFunc(out, func(a, b SlotUsage) int {
		return compareSlotsOn(slotOn{a.Slot, a.Device}, slotOn{b.Slot, b.Device})
	})
	return out
}

// counters lists the sums of the slots on fresh devices.
func (l ledger) counters(fresh func(Device) bool) []SlotCounters {
	out := make([]SlotCounters, 0, len(l.slots))
	for k, s := range l.slots {
		if fresh(k.device) {
			out = append(out, SlotCounters{Slot: k.slot, Device: k.device, Total: s.totals})
		}
	}
	slices.SortFunc(out, func(a, b SlotCounters) int {
		return compareSlotsOn(slotOn{SlotKey{Slot: a.Slot}, a.Device}, slotOn{SlotKey{Slot: b.Slot}, b.Device})
	})
	return out
}
