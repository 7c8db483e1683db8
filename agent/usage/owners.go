package usage

import (
	"maps"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// owners finds whose the processes are.
type owners struct {
	site Site
	proc process.FS
	// known are the processes whose slot was found: they never leave it.
	known map[process.ID]SlotKey
	// round are those of this round, to forget the others.
	round map[process.ID]SlotKey
}

// of finds the owner of each process that a device listed at a time. Graphics of no job, such
// as a display server's, is left out: it keeps neither jobs nor MPS servers from the device.
func (o *owners) of(list gpu.Measured[[]gpu.DeviceProcess], at time.Time) gpu.Measured[[]Process] {
	if !list.Known {
		return gpu.Measured[[]Process]{}
	}
	latest, err := TicksAt(at)
	if err != nil {
		latest = ^uint64(0) // then a PID that was used again is not told from the first
	}
	out := make([]Process, 0, len(list.Value))
	for _, p := range list.Value {
		if of := o.owner(p, latest); of.Owner == OwnerSlot || !p.Graphics {
			out = append(out, of)
		}
	}
	return gpu.Known(out)
}

func (o *owners) owner(p gpu.DeviceProcess, latest uint64) Process {
	out := Process{DeviceProcess: p, Owner: OwnerEnded}
	now, err := o.proc.Stat(p.PID)
	if err != nil || now.Ended() || now.Started > latest {
		return out // ended, or its PID is another process's already
	}
	out.Started = now.Started
	slot, ok := o.known[now.ID]
	if !ok {
		slot, ok = o.site.Slot(p.PID, now.Started)
	}
	switch {
	case ok:
		out.Owner, out.Slot = OwnerSlot, slot
		o.round[now.ID] = slot
	case o.site.Server(p.PID, now.Started):
		out.Owner = OwnerServer
	default:
		out.Owner = OwnerNone
	}
	return out
}

// begin starts a round.
func (o *owners) begin() { o.round = make(map[process.ID]SlotKey, len(o.known)) }

// end forgets the processes that a whole round did not meet.
func (o *owners) end(whole bool) {
	if !whole {
		maps.Copy(o.known, o.round)
		return
	}
	o.known = o.round
}

// TicksPerSecond is USER_HZ, which proc(5) counts start times in; it is 100 on
// every architecture that CUDA runs on.
const TicksPerSecond = 100

// TicksAt is a time in clock ticks since boot, rounded up; an error means that
// the kernel does not tell how long it runs.
func TicksAt(at time.Time) (uint64, error) {
	var boot unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot); err != nil {
		return 0, err
	}
	since := time.Duration(boot.Nano()) - time.Since(at)
	return uint64(max(since, 0)/(time.Second/TicksPerSecond)) + 1, nil
}

// Began is when a process began, by its start time in clock ticks since boot.
func Began(started uint64, now time.Time) time.Time {
	ticks, err := TicksAt(now)
	if err != nil || started > ticks {
		return now
	}
	return now.Add(-time.Duration(ticks-started) * (time.Second / TicksPerSecond))
}
