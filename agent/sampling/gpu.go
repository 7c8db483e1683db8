package sampling

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/rules"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// This file answers what the last sample shows of one GPU or MIG device.

// Fresh says whether a sample was taken lately.
func (l *Loop) Fresh(now time.Time) bool {
	return l.sampler != nil && now.Sub(l.Last().At) <= StaleAfter*l.Node().Config.Usage.Interval
}

// Unused says for certain that nothing but MPS servers is on a GPU.
func (l *Loop) Unused(u gpu.UUID, now time.Time) bool {
	n := l.Node()
	g, ok := n.Plan.Find(u)
	if !ok {
		return false
	}
	d, ok := l.Last().Device(Device(g))
	if !ok || !d.Processes.Known || now.Sub(d.At) > StaleAfter*n.Config.Usage.Interval {
		return false
	}
	for _, p := range d.Processes.Value {
		if p.Owner != usage.OwnerServer {
			return false
		}
	}
	return true
}

// Taken says which process computes on a MIG device that no job has; empty if none does. It got the
// device's nodes from a job that has ended.
func (l *Loop) Taken(g *plan.GPU) string {
	if !g.Alone() {
		return ""
	}
	d, _ := l.Last().Device(Device(g))
	for _, p := range d.Processes.Value {
		if p.Kept() {
			return keptBy(p)
		}
		if l.Processes.Runs(process.ID{PID: p.PID, Started: p.Started}) {
			return fmt.Sprintf("process %d computes on it, and no job has it: end that process", p.PID)
		}
	}
	return ""
}

// unclearAfter is for how many samples it may be unknown whose processes on a GPU are, before it takes no new jobs.
const unclearAfter = 5

// unclear names a process of which it is not known whose it is, on a GPU with such processes for several samples. It
// may compute beside MPS, or be a job's that left its cgroup, so no new job comes beside it. Nothing is known
// against it, so it is not ended. The same holds for one that has ended and is listed still.
func (l *Loop) unclear(snap *usage.Snapshot, g *plan.GPU) string {
	if !l.looks.isUnclear(Device(g)) {
		return ""
	}
	d, _ := snap.Device(Device(g))
	whose := "its last processes were"
	if i := slices.IndexFunc(d.Processes.Value, usage.Process.Unclear); i >= 0 {
		p := d.Processes.Value[i]
		if p.Kept() {
			return keptBy(p)
		}
		whose = fmt.Sprintf("process %d is", p.PID)
		if a, _ := l.Users.AccountOf(p.PID); a.Known {
			whose = fmt.Sprintf("process %d of uid %d is", p.PID, a.UID)
		}
	}
	return fmt.Sprintf("it is not known whose %s, because the kernel takes long to say so: look for a job that makes "+
		"and removes cgroups without end, or a process that no signal ends (docs/runbook.md)", whose)
}

func keptBy(p usage.Process) string {
	why := "has ended, and another one keeps what it has on the GPU"
	if p.Anothers() {
		why = "is not seen to have the GPU's device node open, and another one may use the GPU under its PID"
	}
	return fmt.Sprintf("process %d %s: look for one that a job left on the node (fuser -v /dev/nvidia*), and end it",
		p.PID, why)
}

// Blocked says which process that is no MPS client keeps jobs from a shared GPU, or may do so; empty if none does.
// On an exclusive GPU it came while no MPS server was there, and keeps gpuslot's away. It may be a server that
// somebody started.
func (l *Loop) Blocked(n Node, u gpu.UUID) string {
	snap := l.Last()
	g, ok := n.Plan.Find(u)
	if ok && g.Shared() {
		if why := l.unclear(snap, g); why != "" {
			return why
		}
	}
	if ok && (g.MIGDevice() || g.NeedsLimits()) {
		return l.stranger(snap, g)
	}
	if n.Modes[u] != string(gpu.ComputeModeExclusiveProcess) || len(n.Daemons[u].Checked.States) > 0 {
		return ""
	}
	d, _ := snap.Device(usage.Device{GPU: u})
	if slices.ContainsFunc(d.Processes.Value, func(p usage.Process) bool { return p.Owner == usage.OwnerServer }) {
		return "" // a server is there all the same
	}
	for _, p := range d.Processes.Value {
		switch {
		case p.MPSClient: // of a server of somebody's own, which is listed, too
		case p.Anothers():
			return keptBy(p)
		case p.Owner == usage.OwnerSlot:
			return fmt.Sprintf("process %d of %s holds it without gpuslot's MPS server, which cannot start beside it: wait "+
				"until it ends, or set [health] unattached", p.PID, p.Slot.Slot)
		case p.Owner == usage.OwnerNone:
			return fmt.Sprintf("process %d, which is no job's, holds it without gpuslot's MPS server, which cannot start "+
				"beside it: end that process", p.PID)
		}
	}
	return ""
}

// stranger names a process of no job that computes on a GPU without MPS, where no budget has room
// for it. Only jobs may open a MIG device's nodes, so it has them from one.
func (l *Loop) stranger(snap *usage.Snapshot, g *plan.GPU) string {
	d, _ := snap.Device(Device(g))
	for _, p := range d.Processes.Value {
		if p.Anothers() && !p.MPSClient {
			return keptBy(p)
		}
		its := p.Owner != usage.OwnerNone || p.MPSClient || p.Graphics // a display is in reserved_vram
		if !its && l.Processes.Runs(process.ID{PID: p.PID, Started: p.Started}) {
			return fmt.Sprintf("process %d, which is no job's, computes on it without MPS: end that process", p.PID)
		}
	}
	return ""
}

// serverStep is the step in which an MPS server's VRAM counts: the plan changes with it.
const serverStep gpu.MiB = 32

// serverSamples is how many samples in a row must show it: a server runs as the account of jobs,
// which could have it take more for a moment.
const serverSamples = 5

// Servers is the VRAM of the MPS servers on each GPU and MIG device, the least of the last samples.
func (l *Loop) Servers() map[gpu.UUID]gpu.MiB {
	l.looks.mu.Lock()
	defer l.looks.mu.Unlock()
	out := map[gpu.UUID]gpu.MiB{}
	for u, all := range l.looks.servers {
		if len(all) == serverSamples {
			out[u] = slices.Min(all)
		}
	}
	return out
}

// serversIn is what one sample shows, of the largest server if there are several.
func serversIn(snap *usage.Snapshot) map[gpu.UUID]gpu.MiB {
	out := map[gpu.UUID]gpu.MiB{}
	for _, d := range snap.Devices {
		for _, p := range d.Processes.Value {
			if p.Owner == usage.OwnerServer && p.Memory.Known {
				u := cmp.Or(d.MIG, d.GPU)
				out[u] = max(out[u], p.Memory.Value.MiB().Ceil(serverStep))
			}
		}
	}
	return out
}

// Uses is what the last sample shows of one GPU or MIG device, for the status. What is not known is nil.
type Uses struct {
	snap   *usage.Snapshot
	device usage.Device
	MiB    *int64
	// SM is the share of busy multiprocessors, 0 to 1.
	SM, Watts *float64
	// Strangers are processes that are no job's, or may be none's, or are no MPS clients.
	Strangers []api.StatusProcess
}

// Uses is what the last sample shows of one GPU or MIG device.
func (l *Loop) Uses(u gpu.UUID) Uses {
	snap := l.Last()
	out := Uses{snap: snap, device: snap.DeviceOf(u)}
	d, ok := snap.Device(out.device)
	if !ok {
		return out
	}
	out.SM, out.Watts = known(d.Activity), known(d.Power)
	if d.Memory.Known {
		out.MiB = new(int64)
		*out.MiB = int64(d.Memory.Value.Used.MiB())
	}
	for _, p := range d.Processes.Value {
		if p.MPSClient && p.Owner == usage.OwnerSlot || p.Owner == usage.OwnerServer {
			continue
		}
		one := shown(p.DeviceProcess, p.Slot.Slot)
		one.Unknown = p.Unclear()
		out.Strangers = append(out.Strangers, one)
	}
	// Graphics of an account, outside of jobs: nothing is decided by it. In which cgroup it is, is not asked: many
	// callers want this, and none may wait for the kernel.
	for _, p := range d.Listed {
		counted := slices.ContainsFunc(d.Processes.Value, func(o usage.Process) bool { return o.PID == p.PID })
		if a, _ := l.Users.AccountOf(p.PID); p.Graphics && !counted && a.Known {
			out.Strangers = append(out.Strangers, shown(p, ""))
		}
	}
	return out
}

// shown is a process in the words of the status.
func shown(p gpu.DeviceProcess, slot string) api.StatusProcess {
	s := api.StatusProcess{PID: p.PID, Slot: slot, MPSClient: p.MPSClient}
	if p.Memory.Known {
		s.VRAMMiB = new(int64)
		*s.VRAMMiB = int64(p.Memory.Value.MiB())
	}
	return s
}

// Of fills in a job's part.
func (u Uses) Of(j *api.StatusJob, s starter.Starter) {
	used, ok := u.snap.Slot(rules.SlotKey(s), u.device)
	if !ok {
		return
	}
	j.SMMin, j.SM, j.SMMax = known(used.SM.Lower), known(used.SM.Estimate), known(used.SM.Upper)
	j.Joules = known(used.Job.Energy.Estimate)
	if !used.Memory.Known {
		return
	}
	mib, n := int64(used.Memory.Value.MiB()), used.Processes
	j.UseMiB, j.Processes = &mib, &n
}

// known is a pointer to what was measured; nil if it was not.
func known(m gpu.Measured[float64]) *float64 {
	if !m.Known {
		return nil
	}
	return &m.Value
}
