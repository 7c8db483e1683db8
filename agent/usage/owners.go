package usage

import (
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// owners finds whose the processes are.
type owners struct {
	site Site
	proc process.FS
	// known are whose the processes of earlier rounds were. Those of a slot never leave it.
	known map[process.ID]owned
	// round are the processes of this round.
	round map[process.ID]owned
	// running are those that were read from /proc already.
	running *process.Running
}

const mostKnown = 1024 // where a round lists fewer

// owned says whose a process is.
type owned struct {
	owner Owner
	slot  SlotKey
}

func newOwners(site Site, proc process.FS) owners {
	return owners{site: site, proc: proc, known: map[process.ID]owned{}, running: process.NewRunning(proc)}
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
	id, ok := o.running.Find(p.PID)
	if !ok {
		now, err := o.proc.Stat(p.PID)
		if err != nil || now.Ended() {
			return out
		}
		id = now.ID
		o.running.Add(id)
	}
	if id.Started > latest {
		return out // it has ended, and its PID is another process's already
	}
	out.Started = id.Started
	of := o.ask(id)
	o.round[id], out.Owner, out.Slot = of, of.owner, of.slot
	return out
}

// ask finds the owner of a process. One of no slot is asked for again: an agent that starts
// learns of slots later, and a server may lose its control daemon. To find no slot costs the
// most, so that a server is asked first whether it still is one.
func (o *owners) ask(id process.ID) owned {
	of, asked := o.round[id] // on another device
	switch was := o.known[id]; {
	case asked:
		return of
	case was.owner == OwnerSlot, was.owner == OwnerServer && o.site.Server(id.PID, id.Started):
		return was
	}
	if slot, ok := o.site.Slot(id.PID, id.Started); ok {
		return owned{OwnerSlot, slot}
	}
	if o.site.Server(id.PID, id.Started) {
		return owned{owner: OwnerServer}
	}
	return owned{owner: OwnerNone}
}

// begin starts a round, before the GPUs are read; listed follows as soon as they are.
func (o *owners) begin() { o.round = make(map[process.ID]owned, len(o.known)) }

// listed drops the processes that have ended. What a GPU listed before has its PID still.
func (o *owners) listed() { o.running.Refresh() }

// end forgets the processes that a whole round did not meet, except for some of slots: they may come back.
func (o *owners) end(whole bool) {
	met := func(id process.ID) bool { _, is := o.round[id]; return is }
	if whole {
		o.running.Keep(met)
	}
	for id, was := range o.known {
		if !met(id) && (was.owner == OwnerSlot || !whole) && len(o.round) < mostKnown {
			o.round[id] = was
		}
	}
	o.known = o.round
}

// TicksAt is a time in clock ticks since boot, rounded up; an error means that
// the kernel does not tell how long it runs.
func TicksAt(at time.Time) (uint64, error) {
	boot, err := process.SinceBoot()
	if err != nil {
		return 0, err
	}
	return process.Ticks(max(boot-time.Since(at), 0)) + 1, nil
}

// Began is when a process began, by its start time in clock ticks since boot.
func Began(started uint64, now time.Time) time.Time {
	ticks, err := TicksAt(now)
	if err != nil || started > ticks {
		return now
	}
	return now.Add(-time.Duration(ticks-started) * (time.Second / process.TicksPerSecond))
}
