package usage

import (
	"cmp"

	"github.com/gpuslot/gpuslot/gpu"
)

// What a device uses beyond the processes that NVML lists there.
const (
	// UnlistedBaseline is the most that captures without MPS show of that: 26 MiB on an
	// empty MIG device, 20 MiB on a GPU with processes.
	UnlistedBaseline gpu.MiB = 26
	// UnlistedTolerance is how much more than the baseline is none of a device's own state.
	UnlistedTolerance gpu.MiB = 64
	// unlistedReadings is how many readings in a row have to show it: NVML reports the use of the device and its processes
	// one after the other, and a process may allocate between the two.
	unlistedReadings = 3
)

// unlisted follows that of one device.
type unlisted struct {
	last []gpu.Bytes
	// idle is what was unlisted when no process but MPS servers was last listed: it is of no job.
	idle gpu.Bytes
	// before is what was unlisted at the last reading; kept is Sampler.Kept of it.
	before gpu.Measured[gpu.Bytes]
	kept   bool
}

// take adds a reading. now is the least of the last readings, and unknown before there are
// enough of them; jobs says whether jobs may hold more of it than is tolerated.
func (u *unlisted) take(r reading) (now gpu.Measured[gpu.Bytes], jobs bool) {
	found, clients := unlistedOf(r)
	if !found.Known {
		u.last = nil
		return found, false
	}
	u.last = append(u.last, found.Value)
	if len(u.last) < unlistedReadings {
		return gpu.Measured[gpu.Bytes]{}, false
	}
	u.last = u.last[len(u.last)-unlistedReadings:]
	now = gpu.Known(min(u.last[0], u.last[1], u.last[2]))
	// What has come since the last reading may be of a job that has ended: Kept says so of the next one.
	if least := cmp.Or(u.before, now).Value; clients == 0 && (!u.kept || now.Value < u.idle) {
		u.idle = min(now.Value, least)
	}
	u.before = now
	return now, now.Value > u.idle && Unlisted(gpu.Known(now.Value-u.idle))
}

// Kept says of a device, after a reading, whether a process may keep what is unlisted for a job. Then it counts as
// no device's own. Only the caller of Round may.
func (s *Sampler) Kept(d Device, may bool) { s.tracker(d).unlisted.kept = may }

// Unlisted reports whether so much is a state of its own.
func Unlisted(now gpu.Measured[gpu.Bytes]) bool {
	return now.Known && now.Value > gpu.Bytes(UnlistedTolerance.Bytes())
}

// unlistedOf is the use of a device less what its processes hold and the baseline, and the number of its processes that
// are no MPS servers. The reserve of the driver is no use. Unknown where the driver does not report one of them. MIG
// devices have numbers of their own. MIG devices of one GPU instance report the memory of all of them each, and a GPU
// in MIG mode lists the processes of its devices to root alone.
func unlistedOf(r reading) (out gpu.Measured[gpu.Bytes], clients int) {
	if !r.Memory.Known || !r.Memory.Value.Reserved.Known || !r.processes.Known || r.MIGEnabled || r.part {
		return out, 0
	}
	listed := gpu.Bytes(UnlistedBaseline.Bytes())
	for _, p := range r.processes.Value {
		if !p.Memory.Known {
			return out, 0
		}
		listed += p.Memory.Value
		if p.Owner != OwnerServer {
			clients++
		}
	}
	return gpu.Known(max(listed, r.Memory.Value.Used) - listed), clients
}
