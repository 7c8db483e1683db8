package agent

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// watched is a job on a shared GPU with what one sample shows of it.
type watched struct {
	jobs.Job
	// Memory is that of all its processes on the GPU.
	Memory gpu.Measured[gpu.Bytes]
	// PIDs are those processes; Beside are the ones among them that are no
	// clients of the control daemon.
	PIDs, Beside []int
	// Blind are those of Beside that do not see Pipes, the pipe directory: they
	// are in a container without it.
	Blind []int
	Pipes string
	// Elsewhere are processes of the job on a GPU that its slot does not hold.
	Elsewhere []stray
	// Outside are processes of the job that left the cgroups that the driver limits.
	Outside []int
	// Known: the GPU's processes could be listed.
	Known bool
	// MostClients is how many MPS clients the job may have, Largest the largest
	// budget on its GPU, Quantum the step of budgets.
	MostClients      int
	Largest, Quantum gpu.MiB
	// ToBeHeld: HTCondor is to hold it. Nothing that it breaks now has a grace.
	ToBeHeld bool
}

// stray is a process on a GPU that is not its job's.
type stray struct {
	pid int
	gpu gpu.UUID
}

// rules are the site's on what a running job may do.
type rules struct {
	budgets      config.Budgets
	unattached   config.Enforce
	attachWithin time.Duration
	// slack is half the time between two samples.
	slack time.Duration
}

// finding is a rule that a job has broken for longer than it may.
type finding struct {
	watched
	Code int
	// Reason is for the user: what, how much, what to ask for.
	Reason  string
	Enforce config.Enforce
	// First: it was not found in the sample before.
	First bool
}

// breach is a rule and the job that breaks it.
type breach struct {
	starter starter.Starter
	gpu     gpu.UUID
	code    int
}

// breaches are what the samples up to now have shown. It is a value: each
// sample makes the next.
type breaches map[breach]row

// row are samples in a row that showed a breach.
type row struct {
	since time.Time
	found bool
}

// judge adds one sample. A sample in which a value is not known neither adds
// to a breach nor ends it, and nobody is found guilty by it.
func (b breaches) judge(jobs []watched, site rules, now time.Time) (breaches, []finding) {
	next := breaches{}
	var found []finding
	for _, j := range jobs {
		for _, l := range j.laws(site) {
			key := breach{j.Starter, j.GPU, l.code}
			r, before := b[key]
			if l.broken && !before {
				r.since = now
			}
			// Half a sample of slack: samples do not come to the millisecond.
			if l.broken && (j.ToBeHeld || now.Sub(r.since) >= l.grace-site.slack) {
				found = append(found, finding{watched: j, Code: l.code, Reason: l.reason, Enforce: l.enforce, First: !r.found})
				r.found = true
			}
			if l.broken || before && !l.known {
				next[key] = r
			}
		}
	}
	return next, found
}

// law is one rule applied to one job.
type law struct {
	code          int
	known, broken bool
	reason        string
	grace         time.Duration
	enforce       config.Enforce
}

func (j watched) laws(r rules) []law {
	used := j.Memory.Value.MiB()
	clients := len(j.PIDs) - len(j.Beside)
	return []law{
		{code: api.CodeOverBudget, known: j.Memory.Known, grace: r.budgets.Grace, enforce: r.budgets.Enforce,
			broken: j.Memory.Known && used > r.budgets.Limit(j.Budget), reason: j.overBudget(used)},
		{code: api.CodeTooManyClients, known: j.Known, grace: r.budgets.Grace, enforce: r.budgets.Enforce,
			broken: j.Known && j.MostClients > 0 && clients > j.MostClients,
			reason: fmt.Sprintf("%d processes of the job use %s, and one share serves at most %d: start fewer processes, or ask for a whole GPU", clients, j.GPU, j.MostClients)},
		{code: api.CodeOtherGPU, known: j.Known, grace: r.budgets.Grace, enforce: r.budgets.Enforce,
			broken: len(j.Elsewhere) > 0, reason: j.onOtherGPU()},
		{code: api.CodeLeftCgroup, known: j.Known, grace: r.budgets.Grace, enforce: r.budgets.Enforce,
			broken: len(j.Outside) > 0, reason: j.outside()},
		{code: api.CodeUnattached, known: j.Known, grace: r.attachWithin, enforce: r.unattached,
			broken: j.Known && len(j.Beside) > 0,
			reason: j.unattached()},
	}
}

// unattached says why processes may be beside the control daemon.
func (j watched) unattached() string {
	const holds = "so no limit holds for it"
	if len(j.Blind) > 0 {
		return fmt.Sprintf("process %s of the job computes on the shared %s from a container that does not have its pipe directory, %s: leave APPTAINER_BIND as it is, or start the container with --bind %s",
			numbers(j.Blind), j.GPU, holds, j.Pipes)
	}
	return fmt.Sprintf("process %s of the job computes on the shared %s without its control daemon, %s: leave CUDA_MPS_PIPE_DIRECTORY as it is, and hand it into containers", numbers(j.Beside), j.GPU, holds)
}

func (j watched) overBudget(used gpu.MiB) string {
	said := fmt.Sprintf("used %d MiB of %d MiB requested", int64(used), int64(j.Budget))
	need := used.Ceil(max(j.Quantum, 1))
	if need > j.Largest {
		return fmt.Sprintf("%s, more than one job may have on %s (%d MiB): ask for a whole GPU", said, j.GPU, int64(j.Largest))
	}
	return fmt.Sprintf("%s: ask for request_vram = %d", said, int64(need))
}

func (j watched) onOtherGPU() string {
	if len(j.Elsewhere) == 0 {
		return ""
	}
	s := j.Elsewhere[0]
	return fmt.Sprintf("process %d of the job computes on %s, and its slot holds %s: leave CUDA_VISIBLE_DEVICES and CUDA_MPS_PIPE_DIRECTORY as they are", s.pid, s.gpu, j.GPU)
}

func (j watched) outside() string {
	return fmt.Sprintf("process %s of the job computes on %s outside the job's cgroup, where the driver's limit of %d MiB does not hold: "+
		"leave processes in the cgroup that HTCondor starts them in", numbers(j.Outside), j.GPU, int64(j.Budget))
}

func numbers(pids []int) string {
	s := fmt.Sprint(pids)
	return s[1 : len(s)-1]
}

// watchedJobs puts a sample to the jobs on shared GPUs. It goes through sample
// and books once each: a node may have hundreds of slots.
func watchedJobs(snap *usage.Snapshot, p *plan.Plan, running []jobs.Job) []watched {
	var out []watched
	at, held, memory := sightings(snap), holdings(running), memories(snap)
	for _, r := range running {
		g, ok := find(p, r.GPU)
		if !ok || !g.Shared() {
			continue
		}
		w := watched{Job: r, MostClients: g.MaxClients, Largest: g.LargestRequest, Quantum: p.RequestVRAM.Quantum}
		key, device := slotKey(r.Starter), snap.DeviceOf(r.GPU)
		w.Memory = memory[slotOnDevice{key, device}]
		if d, ok := snap.Device(device); ok && d.Processes.Known {
			w.Known = true
			for _, s := range at[key] {
				if s.device == device {
					w.PIDs = append(w.PIDs, s.pid)
					if !s.client {
						w.Beside = append(w.Beside, s.pid)
					}
				}
			}
		}
		w.Elsewhere = strays(at[key], p, held[key])
		slices.Sort(w.PIDs)
		slices.Sort(w.Beside)
		out = append(out, w)
	}
	return out
}

// sighting is a process of a slot on a device.
type sighting struct {
	device usage.Device
	pid    int
	client bool
}

func sightings(snap *usage.Snapshot) map[usage.SlotKey][]sighting {
	out := map[usage.SlotKey][]sighting{}
	for _, d := range snap.Devices {
		for _, p := range d.Processes.Value {
			if p.Owner == usage.OwnerSlot {
				out[p.Slot] = append(out[p.Slot], sighting{d.Device, p.PID, p.MPSClient})
			}
		}
	}
	return out
}

// holdings are what each slot holds.
func holdings(running []jobs.Job) map[usage.SlotKey][]gpu.UUID {
	out := map[usage.SlotKey][]gpu.UUID{}
	for _, r := range running {
		key := slotKey(r.Starter)
		out[key] = append(out[key], r.GPU)
	}
	return out
}

type slotOnDevice struct {
	slot   usage.SlotKey
	device usage.Device
}

func memories(snap *usage.Snapshot) map[slotOnDevice]gpu.Measured[gpu.Bytes] {
	out := make(map[slotOnDevice]gpu.Measured[gpu.Bytes], len(snap.Slots))
	for _, u := range snap.Slots {
		out[slotOnDevice{u.Slot, u.Device}] = u.Memory
	}
	return out
}

// strays are a slot's processes on devices that it does not hold.
func strays(at []sighting, plan *plan.Plan, held []gpu.UUID) []stray {
	var out []stray
	for _, s := range at {
		if !slices.ContainsFunc(held, func(u gpu.UUID) bool { return isOn(plan, u, s.device) }) {
			out = append(out, stray{s.pid, s.device.GPU})
		}
	}
	return out
}

// isOn: what a slot holds is the device, or a part of it; the driver lists the
// processes of MIG devices with their GPU, too.
func isOn(p *plan.Plan, held gpu.UUID, d usage.Device) bool {
	g, ok := find(p, held)
	if d.MIG != "" {
		return held == d.MIG || ok && g.Device == d.MIG
	}
	return held == d.GPU || ok && g.Physical() == d.GPU
}

// slotKey is a starter in the words of package usage.
func slotKey(s starter.Starter) usage.SlotKey {
	return usage.SlotKey{Slot: condor.SlotName(s.Slot), Starter: s.PID, Started: s.Started}
}
