package usage

import (
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
	// known are whose the processes of earlier rounds were. Those of a slot never leave it.
	known map[process.ID]owned
	// round are the processes of this round.
	round map[process.ID]owned
	// running are those that were read from /proc already.
	running *process.Running
	// questions go on where the kernel takes long.
	questions *deep.Questions[owned]
}

const mostKnown = 1024 // where a round lists fewer

// owned says whose a process is.
type owned struct {
	owner Owner
	slot  SlotKey
}

func newOwners(site Site, proc process.FS) owners {
	o := owners{site: site, known: map[process.ID]owned{}, running: process.NewRunning(proc)}
	o.questions = deep.NewQuestions(o.find)
	return o
}

// of finds the owner of each process that these GPUs just listed, and waits for a time at most. Graphics of no
// job, such as a display server's, is left out: it keeps neither jobs nor MPS servers from the device.
func (o *owners) of(readings []gpu.Reading, wait time.Duration) map[Device]gpu.Measured[[]Process] {
	o.running.Refresh() // drops those that have ended: what a GPU listed before has its PID still
	o.round = make(map[process.ID]owned, len(o.known))
	found, questions := map[Device]gpu.Measured[[]Process]{}, map[string][]process.ID{}
	for _, r := range readings {
		latest, err := process.TicksAt(r.At)
		if err != nil {
			latest = ^uint64(0) // then a PID that was used again is not told from the first
		}
		for _, i := range r.Instances { // first: the GPU lists their processes again
			found[Device{r.GPU, i.UUID}] = o.list(i.Processes, latest, string(i.UUID), questions)
		}
		found[Device{GPU: r.GPU}] = o.list(r.Processes, latest, string(r.GPU), questions)
	}
	maps.Copy(o.round, o.questions.Ask(questions)(time.Now().Add(wait)))
	for d, list := range found {
		found[d] = o.settled(list)
	}
	return found
}

// list are the processes of a device, each with its owner if that is known without a question.
func (o *owners) list(
	list gpu.Measured[[]gpu.DeviceProcess], latest uint64, group string, questions map[string][]process.ID,
) gpu.Measured[[]Process] {
	if !list.Known {
		return gpu.Measured[[]Process]{}
	}
	out := make([]Process, len(list.Value))
	for i, p := range list.Value {
		out[i] = Process{DeviceProcess: p, Owner: OwnerEnded}
		id, ok := o.running.Now(p.PID)
		if !ok || id.Started > latest {
			continue // it has ended, and its PID may be another process's already
		}
		out[i].Started = id.Started
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

// before is what earlier rounds say of a process; false if it is asked for. One of no slot is asked for again: an
// agent that starts learns of slots later, and a server may lose its control daemon. Until the answer what was known
// counts. One that was never answered for is OwnerUnknown: nothing is done about it.
func (o *owners) before(id process.ID) (of owned, known bool) {
	was := o.known[id]
	switch {
	case was.owner == OwnerSlot, was.owner == OwnerServer && o.site.Server(id.PID, id.Started):
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
	return owned{owner: OwnerNone}
}

// settled has the answers. Graphics that may be a job's stays.
func (o *owners) settled(list gpu.Measured[[]Process]) gpu.Measured[[]Process] {
	for i := range list.Value {
		if p := &list.Value[i]; p.Owner == OwnerUnknown || p.Owner == OwnerNone {
			of := o.round[process.ID{PID: p.PID, Started: p.Started}]
			p.Owner, p.Slot = of.owner, of.slot
		}
	}
	list.Value = slices.DeleteFunc(list.Value, func(p Process) bool {
		return p.Graphics && p.Owner != OwnerSlot && p.Owner != OwnerUnknown
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
