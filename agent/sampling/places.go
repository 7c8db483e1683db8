package sampling

import (
	"cmp"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/agent/budget"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/rules"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// This file asks where processes are: those of jobs, and those of no job.

// place is the answer where a process of a job is.
type place struct {
	leaf starter.Leaf
	err  error
}

// patience is the part of its interval that a round waits for where processes are, besides what the sampler waits
// for whose they are (usage.Sampler): a quarter in all, however many they are.
const patience = 8

// lookOutside looks at once which processes of all jobs left the cgroups that the driver limits. It is asked in each
// sample, and an answer counts for one: a process may leave at any time.
func (l *Loop) lookOutside(n Node, snap *usage.Snapshot, all []rules.Job, until time.Time) {
	looks := make([]budget.Look, len(all))
	watched := map[usage.SlotKey]bool{}
	for i := range all {
		if j := &all[i]; j.Known {
			j.Unbound, looks[i] = l.Limits.Outside(j.Job, l.limited(n, j.GPU))
			if looks[i] != nil {
				watched[rules.SlotKey(j.Starter)] = true
			}
		}
	}
	questions := map[string][]process.ID{}
	if len(watched) > 0 {
		ask(snap, questions, func(_ usage.Device, p *usage.Process) bool {
			return p.Owner == usage.OwnerSlot && watched[p.Slot]
		})
	}
	found := ended(snap)
	for id, at := range l.leaves.Ask(questions)(until) {
		found[id.PID] = at
	}
	leaf := func(pid int) (starter.Leaf, error) {
		if at, ok := found[pid]; ok {
			return at.leaf, at.err
		}
		return starter.Leaf{}, budget.ErrNotYet
	}
	for i, look := range looks {
		if look != nil {
			left, unclear := look(all[i].PIDs, leaf)
			all[i].Outside, all[i].Unclear = left, all[i].Unclear || unclear
		}
	}
}

// ended are the processes that the driver lists after their end. They are in no cgroup.
func ended(snap *usage.Snapshot) map[int]place {
	out := map[int]place{}
	for _, d := range snap.Devices {
		for _, p := range d.Processes.Value {
			if p.Owner == usage.OwnerEnded && !p.Anothers() {
				out[p.PID] = place{err: unix.ESRCH}
			}
		}
	}
	return out
}

// ask adds the processes that fit to the questions, in a group for each device and once each.
func ask(snap *usage.Snapshot, questions map[string][]process.ID, fits func(usage.Device, *usage.Process) bool) {
	asked := map[int]bool{}
	for i := range snap.Devices {
		d := &snap.Devices[i]
		for k := range d.Processes.Value {
			if p := &d.Processes.Value[k]; fits(d.Device, p) && !asked[p.PID] {
				asked[p.PID] = true
				group := string(cmp.Or(d.MIG, d.GPU))
				questions[group] = append(questions[group], process.ID{PID: p.PID, Started: p.Started})
			}
		}
	}
}

// limits says whether users' processes outside of jobs have no place on a GPU. They have the nodes of a MIG device that
// jobs have alone from one of these.
func limits(g *plan.GPU) bool { return g.Shared() || g.Alone() }

// strangers are the processes of no slot on such GPUs, of which it is asked whether they are users' own.
func strangers(n Node, snap *usage.Snapshot) map[string][]process.ID {
	limited := map[usage.Device]bool{}
	for i := range n.Plan.GPUs {
		limited[Device(&n.Plan.GPUs[i])] = limits(&n.Plan.GPUs[i])
	}
	questions := map[string][]process.ID{}
	ask(snap, questions, func(d usage.Device, p *usage.Process) bool { return limited[d] && ofNoJob(p) })
	return questions
}

// ofNoJob says that a process is of no slot, or that the kernel does not say whose it is.
func ofNoJob(p *usage.Process) bool {
	return p.Owner == usage.OwnerNone || p.Owner == usage.OwnerUnknown
}

// outside are the processes on a GPU that users run outside of all jobs, where no budget counts
// them: the MPS clients and the others that compute. Where no control daemon of gpuslot's serves the GPU,
// clients there are of a daemon of their own, and go with its server. Nothing is done about a process of which it is
// not known yet whether it is a user's own.
func outside(n Node, snap *usage.Snapshot, g *plan.GPU, ofUser map[process.ID]bool) (
	clients []int, others []process.ID,
) {
	if !limits(g) {
		return nil, nil
	}
	_, served := n.Daemons[g.UUID]
	d, _ := snap.Device(Device(g))
	for i := range d.Processes.Value {
		p := &d.Processes.Value[i]
		id := process.ID{PID: p.PID, Started: p.Started}
		switch {
		case !ofNoJob(p) || !ofUser[id]:
		case p.MPSClient && (served || g.MPS()):
			clients = append(clients, p.PID)
		case !p.Graphics: // a display is in reserved_vram
			others = append(others, id)
		}
	}
	return clients, others
}
