package usage

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/agent/deep"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// owners finds whose the processes are.
type owners struct {
	site Site
	// known are whose the processes of earlier rounds were. Those of a slot are its as long as its starter runs:
	// a service manager of the account may take a process out of the slot, to outlive the job.
	known map[process.ID]owned
	// round are the processes of this round.
	round map[process.ID]owned
	// runs are the slots that were asked for in this round, with whether their starter runs.
	runs map[SlotKey]bool
	// entries are what each device listed when it was last read, by PID.
	entries map[Device]map[int]listed
	// earlier is the last reading of each device, here is the last look at all processes of the node.
	earlier map[Device]lastRead
	here    look
	// running are those that were read from /proc already.
	running *process.Running
	proc    process.FS
	// questions and opens go on where the kernel takes long. Without opens no files are looked at.
	questions *deep.Questions[owned]
	opens     *deep.Questions[func(gpu.UUID) bool]
}

const mostKnown = 1024 // where a round lists fewer

// owned says whose a process is.
type owned struct {
	owner Owner
	slot  SlotKey
}

// listed is a PID that a device lists from reading to reading. The driver keeps it after the end of the process,
// for as long as another one has the files open by which it computed: a child, for example. The PID may be of a third
// process then, which began later than the entry.
type listed struct {
	// since is when its process had begun, in ticks since boot.
	since uint64
	// slot is that of its process; zero where it had none, or none was found before its end.
	slot SlotKey
	// ended: its process had ended at the last reading.
	ended bool
	// opened is the start of the process with that PID that was seen to have the GPU's node open.
	opened uint64
}

// recent is how long a reading says of a PID that it was another process's, in ticks. Later it may be so by chance.
const recent = 10 * process.TicksPerSecond

// look is which PIDs processes had until a time, in ticks since boot.
type look struct {
	end  uint64
	pids []int // ascending
}

// lastRead is when a device was read, in ticks since boot, and which PIDs processes had before.
type lastRead struct {
	at   uint64
	pids []int
}

func newOwners(site Site, proc process.FS, opens func(pid int) func(gpu.UUID) bool) owners {
	o := owners{site: site, known: map[process.ID]owned{}, running: process.NewRunning(proc), proc: proc,
		entries: map[Device]map[int]listed{}, earlier: map[Device]lastRead{}}
	o.questions = deep.NewQuestions(o.find)
	if opens != nil {
		o.opens = deep.NewQuestions(func(id process.ID) func(gpu.UUID) bool { return opens(id.PID) })
	}
	return o
}

// of finds the owner of each process that these GPUs just listed, and waits for a time at most. Graphics of no
// job, such as a display server's, is left out: it keeps neither jobs nor MPS servers from the device.
func (o *owners) of(readings []gpu.Reading, all reserved, wait time.Duration) map[Device]gpu.Measured[[]Process] {
	o.running.Refresh() // drops those that have ended: what a GPU listed before has its PID still
	o.round, o.runs = make(map[process.ID]owned, len(o.known)), map[SlotKey]bool{}
	found, questions := map[Device]gpu.Measured[[]Process]{}, map[string][]process.ID{}
	latest := map[gpu.UUID]uint64{}
	for _, r := range readings {
		at, err := process.TicksAt(r.At)
		if err != nil {
			at = ^uint64(0) // then a PID that was used again is not told from the first
		}
		latest[r.GPU] = at
		for _, i := range r.Instances { // first: the GPU lists their processes again
			d := Device{r.GPU, i.UUID}
			found[d] = o.list(d, i.Processes, at, string(i.UUID), questions)
		}
		d := Device{GPU: r.GPU}
		found[d] = o.list(d, r.Processes, at, string(r.GPU), questions)
	}
	until := time.Now().Add(wait)
	maps.Copy(o.round, o.questions.Ask(questions)(until))
	opened := o.opened(found, all, latest, until)
	for d, list := range found {
		found[d] = o.settled(d, list, latest[d.GPU], opened)
		if list.Known && o.here.end < latest[d.GPU] {
			o.earlier[d] = lastRead{latest[d.GPU], o.here.pids}
		}
	}
	pids, err := o.proc.PIDs()
	end, errTicks := process.TicksAt(time.Now())
	if err == nil && errTicks == nil {
		o.here = look{end, pids}
	}
	for d := range o.entries {
		_, read := latest[d.GPU]
		if _, listed := found[d]; read && !listed { // a MIG device that is gone
			delete(o.entries, d)
			delete(o.earlier, d)
		}
	}
	return found
}

// list are the processes of a device, each with its owner if that is known without a question.
func (o *owners) list(
	d Device, list gpu.Measured[[]gpu.DeviceProcess], latest uint64, group string, questions map[string][]process.ID,
) gpu.Measured[[]Process] {
	if !list.Known {
		return gpu.Measured[[]Process]{}
	}
	out := make([]Process, len(list.Value))
	for i, p := range list.Value {
		e := o.entry(d, p.PID, latest)
		id, ok := o.running.Now(p.PID)
		if !ok || id.Started > e.since || id.Started == 0 && e.ended {
			out[i] = Process{DeviceProcess: p, Owner: OwnerEnded, Stays: e.ended}
			if o.holds(e.slot) {
				out[i].Slot = e.slot
			}
			continue
		}
		out[i] = Process{DeviceProcess: p, Started: id.Started}
		of, asked := o.round[id] // on another device
		if !asked {
			if of, ok = o.before(id); !ok {
				questions[group] = append(questions[group], id)
			}
			o.round[id] = of
		}
		out[i].Owner, out[i].Slot = of.owner, of.slot
	}
	return gpu.Known(out)
}

// entry is that of a PID on a device. A process that a GPU lists for the first time began before this reading. If its
// PID was a process's before the last reading, it began before that one: the process that has the PID now may be
// another.
func (o *owners) entry(d Device, pid int, latest uint64) listed {
	e, had := o.entries[d][pid]
	if had {
		return e
	}
	before := o.earlier[d]
	if _, there := slices.BinarySearch(before.pids, pid); there && latest-before.at < recent {
		return listed{since: before.at}
	}
	return listed{since: latest}
}

// holds says whether a slot has its job still.
func (o *owners) holds(slot SlotKey) bool {
	if slot == (SlotKey{}) {
		return false
	}
	runs, asked := o.runs[slot]
	if !asked {
		runs = slot.Starter == 0 || o.proc.Runs(process.ID{PID: slot.Starter, Started: slot.Started})
		o.runs[slot] = runs
	}
	return runs
}

// before is what earlier rounds say of a process; false if it is asked for. One of no slot is asked for again: an
// agent that starts learns of slots later, and a server may lose its control daemon. Until the answer what was known
// counts. One that was never answered for is OwnerUnknown: nothing is done about it.
func (o *owners) before(id process.ID) (of owned, known bool) {
	was := o.known[id]
	switch {
	case id.Started == 0: // the next one that the kernel does not answer may have the same PID
	case was.owner == OwnerSlot && o.holds(was.slot), was.owner == OwnerServer && o.site.Server(id.PID, id.Started):
		return was, true
	case was.owner == OwnerNone:
		return was, false
	}
	return owned{owner: OwnerUnknown}, false
}

// find answers for a process. It may wait for the kernel: see deep.Questions.
func (o *owners) find(id process.ID) owned {
	if slot, ok := o.site.Slot(id.PID, id.Started); ok {
		return owned{owner: OwnerSlot, slot: slot}
	}
	if o.site.Server(id.PID, id.Started) {
		return owned{owner: OwnerServer}
	}
	if id.Started == 0 {
		return owned{owner: OwnerUnknown} // the kernel does not answer what it is
	}
	if _, err := o.proc.Stat(id.PID); errors.Is(err, process.ErrHeld) {
		return owned{owner: OwnerUnknown} // since it was listed
	}
	return owned{owner: OwnerNone}
}

// placed is a process on a device.
type placed struct {
	Device
	process.ID
}

// opened are the processes where they have no place, as far as is known, and whether they are seen to have the GPU's
// node open. A job can have a GPU's node opened by a process that ends, and a child use it when another process has
// that PID, which the driver lists. So nothing is held against a process that does not have the node open itself.
func (o *owners) opened(
	found map[Device]gpu.Measured[[]Process], all reserved, latest map[gpu.UUID]uint64, until time.Time,
) map[placed]bool {
	if o.opens == nil {
		return nil
	}
	strays, asked := map[placed]bool{}, map[process.ID]bool{}
	for d, list := range found {
		for i := range list.Value {
			p := &list.Value[i]
			id := process.ID{PID: p.PID, Started: p.Started}
			lost := p.Owner != OwnerEnded && o.round[id].strays(d, p, all)
			if lost && o.entry(d, p.PID, latest[d.GPU]).opened != p.Started {
				strays[placed{d, id}], asked[id] = false, true
			}
		}
	}
	answers := o.opens.Ask(map[string][]process.ID{"": slices.Collect(maps.Keys(asked))})(until)
	for at := range strays {
		if has := answers[at.ID]; has != nil {
			strays[at] = has(at.GPU)
		}
	}
	return strays
}

// strays says whether a process is where its owner has no place. Graphics of no slot stays out of all this.
func (of owned) strays(d Device, p *Process, all reserved) bool {
	switch of.owner {
	case OwnerSlot:
		return !all.on(d, of.slot)
	case OwnerNone, OwnerUnknown:
		return !p.Graphics
	}
	return false
}

// on says whether a slot has a reservation on a device. NVML lists the processes of MIG devices with their GPU, too.
func (r reserved) on(d Device, slot SlotKey) bool {
	its := func(b Reservation) bool { return b.Slot == slot }
	if slices.ContainsFunc(r[d], its) {
		return true
	}
	for other, all := range r {
		if d.MIG == "" && other.GPU == d.GPU && slices.ContainsFunc(all, its) {
			return true
		}
	}
	return false
}

// settled has the answers, and notes them for the next reading. Graphics that may be a job's stays.
func (o *owners) settled(
	d Device, list gpu.Measured[[]Process], latest uint64, opened map[placed]bool,
) gpu.Measured[[]Process] {
	if !list.Known {
		return list
	}
	now := make(map[int]listed, len(list.Value))
	for i := range list.Value {
		p := &list.Value[i]
		id, e := process.ID{PID: p.PID, Started: p.Started}, o.entry(d, p.PID, latest)
		if p.Owner == OwnerUnknown || p.Owner == OwnerNone {
			p.Owner, p.Slot = o.round[id].owner, o.round[id].slot
		}
		switch open, stray := opened[placed{d, id}]; {
		case open:
			e.opened = p.Started
		case stray: // another one may use the GPU under its PID
			p.Owner, p.Slot = OwnerEnded, SlotKey{}
		}
		e.slot, e.ended = p.Slot, p.Owner == OwnerEnded
		now[p.PID] = e
	}
	o.entries[d] = now
	list.Value = slices.DeleteFunc(list.Value, func(p Process) bool {
		return p.Graphics && !p.OfSlot() && p.Owner != OwnerUnknown && !p.Anothers()
	})
	return list
}

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
