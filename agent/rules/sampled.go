package rules

import (
	"slices"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// Sampled puts a sample to the jobs on shared GPUs. It goes through sample
// and books once each: a node may have hundreds of slots.
func Sampled(snap *usage.Snapshot, p *plan.Plan, running []jobs.Job) []Job {
	var out []Job
	at, held, memory := sightings(snap), holdings(running), memories(snap)
	unclear := unclearOn(snap)
	for _, r := range running {
		g, ok := p.Find(r.GPU)
		if !ok || !g.Shared() {
			continue
		}
		w := Job{Job: r, MostClients: g.MaxClients, Largest: g.LargestRequest, Quantum: p.RequestVRAM.Quantum}
		key, device := SlotKey(r.Starter), snap.DeviceOf(r.GPU)
		w.Unclear = slices.Contains(unclear, device)
		w.UnclearElsewhere = slices.ContainsFunc(unclear, func(d usage.Device) bool { return !isHeld(p, held[key], d) })
		w.Memory = memory[slotOnDevice{key, device}]
		if d, ok := snap.Device(device); ok && d.Processes.Known {
			w.Known = true
			for _, s := range at[key] {
				if s.device == device {
					w.PIDs = append(w.PIDs, s.pid)
					if !s.client && g.MPS() {
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
			// Who shares the memory of a process (CLONE_VM) computes on as that one after its end. Whether it is a client
			// of MPS the driver may not say then.
			ended := p.OfSlot() && p.Stays
			if p.Owner == usage.OwnerSlot || ended {
				out[p.Slot] = append(out[p.Slot], sighting{d.Device, p.PID, p.MPSClient || ended})
			}
		}
	}
	return out
}

// unclearOn are the devices with processes that may be any job's.
func unclearOn(snap *usage.Snapshot) (out []usage.Device) {
	for i := range snap.Devices {
		if slices.ContainsFunc(snap.Devices[i].Processes.Value, usage.Process.Unclear) {
			out = append(out, snap.Devices[i].Device)
		}
	}
	return out
}

// holdings are what each slot holds.
func holdings(running []jobs.Job) map[usage.SlotKey][]gpu.UUID {
	out := map[usage.SlotKey][]gpu.UUID{}
	for _, r := range running {
		key := SlotKey(r.Starter)
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
func strays(at []sighting, plan *plan.Plan, held []gpu.UUID) []Stray {
	var out []Stray
	for _, s := range at {
		if !isHeld(plan, held, s.device) {
			out = append(out, Stray{s.pid, s.device.GPU})
		}
	}
	return out
}

// isHeld says whether a slot holds a device, or a part of it.
func isHeld(p *plan.Plan, held []gpu.UUID, d usage.Device) bool {
	return slices.ContainsFunc(held, func(u gpu.UUID) bool { return isOn(p, u, d) })
}

// isOn: what a slot holds is the device, or a part of it; the driver lists the
// processes of MIG devices with their GPU, too.
func isOn(p *plan.Plan, held gpu.UUID, d usage.Device) bool {
	g, ok := p.Find(held)
	if d.MIG != "" {
		return held == d.MIG || ok && g.Device == d.MIG
	}
	return held == d.GPU || ok && g.Physical() == d.GPU
}

// SlotKey is a starter in the words of package usage.
func SlotKey(s starter.Starter) usage.SlotKey {
	return usage.SlotKey{Slot: condor.SlotName(s.Slot), Starter: s.PID, Started: s.Started}
}
