package page

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/agent/daemons"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/rules"
	"github.com/gpuslot/gpuslot/agent/status"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
)

// NodeOf is the node as the page shows it: without owner, account or job, and with reasons
// that cannot name one.
func NodeOf(s *status.Snapshot) Node {
	n := Node{Host: s.Host, Version: s.Version, Driver: s.Plan.Driver, At: s.Usage.At, Problems: problems(s)}
	for i := range s.GPUs {
		g := &s.GPUs[i]
		p := GPU{Index: g.Index, Name: g.Name, Mode: string(g.Mode), Shared: g.Shared(), Shares: g.Shares}
		p.Device = Device{UUID: g.UUID, Total: gpu.Known(gpu.Bytes(g.Memory.Bytes()))}
		if g.Place == "" || g.Device != "" {
			p.Closed = s.GeneralReason(g)
		}
		var servers []string
		for _, one := range g.Daemon.Checked.States {
			servers = append(servers, daemons.ServerText(one, ""))
		}
		p.MPS = strings.Join(servers, "; ")
		fillUsage(&p, s.Usage)
		budgets(&p, s.Running)
		n.GPUs = append(n.GPUs, p)
	}
	for _, d := range s.Usage.Devices {
		if _, planned := s.Plan.GPU(d.GPU); d.MIG != "" || planned {
			continue
		}
		p := GPU{Device: Device{UUID: d.GPU}, Index: NotPlanned}
		fillUsage(&p, s.Usage)
		n.GPUs = append(n.GPUs, p)
	}
	return n
}

// AddSample feeds the last hour; it needs what was sampled alone.
func (h *History) AddSample(snap *usage.Snapshot) {
	n := Node{At: snap.At}
	for _, d := range snap.Devices {
		if d.MIG == "" {
			n.GPUs = append(n.GPUs, GPU{Device: deviceOf(d), Power: d.Power})
		}
	}
	h.Add(n)
}

// problems are fixed sentences: others may name accounts and files.
func problems(s *status.Snapshot) []string {
	var out []string
	if !s.Planned {
		out = append(out, "There is no plan in force yet: gpuslot status on the node says why.")
	}
	if s.ConfigError != "" {
		out = append(out, "gpuslot.toml was rejected, the plan before it is still in force: gpuslot status on the node "+
			"says why.")
	}
	if s.Startds.Older() {
		out = append(out, "HTCondor runs an older layout: gpuslot status on the node says what it waits for.")
	}
	for _, u := range s.Plan.Absent {
		out = append(out, fmt.Sprintf("%s is configured, but not in this node.", u))
	}
	return out
}

// fillUsage adds what was sampled of a GPU and its MIG devices.
func fillUsage(p *GPU, snap *usage.Snapshot) {
	for _, d := range snap.Devices {
		switch {
		case d.GPU != p.UUID:
		case d.MIG == "":
			total := p.Total
			p.Device, p.Power = deviceOf(d), d.Power
			if !p.Total.Known {
				p.Total = total
			}
			p.Slots = slotsOf(snap, d.Device)
		default:
			m := deviceOf(d)
			m.Slots = slotsOf(snap, d.Device)
			p.MIG = append(p.MIG, m)
		}
	}
}

func deviceOf(d usage.DeviceUsage) Device {
	out := Device{
		UUID:       d.GPU,
		Unowned:    d.UnownedMemory,
		Activity:   d.Activity,
		KernelTime: d.KernelTime,
		Method:     string(d.Method),
	}
	if d.MIG != "" {
		out.UUID = d.MIG
	}
	if d.Memory.Known {
		out.Total, out.Used = gpu.Known(d.Memory.Value.Total), gpu.Known(d.Memory.Value.Used)
	}
	return out
}

func slotsOf(snap *usage.Snapshot, d usage.Device) []Slot {
	var out []Slot
	for _, s := range snap.Slots {
		if s.Device == d {
			out = append(out, Slot{
				Name: s.Slot.Slot, Memory: s.Memory, Lower: s.SM.Lower, Estimate: s.SM.Estimate, Upper: s.SM.Upper,
				Joules: s.Job.Energy.Estimate,
			})
		}
	}
	return out
}

// budgets joins the job table: jobs that no sample has seen stand there, too.
func budgets(p *GPU, running []jobs.Job) {
	for _, r := range running {
		if r.GPU != p.UUID {
			continue
		}
		name := rules.SlotKey(r.Starter).Slot
		i := slices.IndexFunc(p.Slots, func(s Slot) bool { return s.Name == name })
		if i < 0 {
			i = len(p.Slots)
			p.Slots = append(p.Slots, Slot{Name: name})
		}
		p.Slots[i].Budget = gpu.Bytes(r.Budget.Bytes())
	}
}
