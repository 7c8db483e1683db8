package agent

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/closures"
	"github.com/gpuslot/gpuslot/agent/daemons"
	"github.com/gpuslot/gpuslot/agent/faults"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/page"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/rules"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
)

// page serves the node page; nil, and the log has why, if it cannot be made.
func (a *Agent) page() http.Handler {
	h, err := page.Handler(a.pageNode, &a.lastHour)
	if err != nil {
		a.log.Error("the node page is not served", "err", err)
		return nil
	}
	return h
}

// remember feeds the page's last hour; it needs what was sampled alone.
func (a *Agent) remember(snap *usage.Snapshot) {
	n := page.Node{At: snap.At}
	for _, d := range snap.Devices {
		if d.MIG == "" {
			n.GPUs = append(n.GPUs, page.GPU{Device: pageDevice(d), Power: d.Power})
		}
	}
	a.lastHour.Add(n)
}

// pageNode is the node as the page shows it: without owner, account or job,
// and with reasons that cannot name one.
func (a *Agent) pageNode() page.Node {
	v, now, snap := a.view.Load(), time.Now(), a.sampling.Last()
	n := page.Node{Host: hostName(v), Version: a.version, Driver: v.plan.Driver, At: snap.At, Problems: a.pageProblems(v)}
	running := a.jobs.Running()
	for i := range v.plan.GPUs {
		g := &v.plan.GPUs[i]
		p := page.GPU{Index: g.Index, Name: g.Name, Mode: string(g.Mode), Shared: g.Shared(), Shares: g.Shares}
		p.Device = page.Device{UUID: g.UUID, Total: gpu.Known(gpu.Bytes(g.Memory.Bytes()))}
		if g.Place == "" || g.Device != "" {
			p.Closed = a.pageReason(v, g, now)
		}
		var servers []string
		for _, s := range v.daemons[g.UUID].Proof.States {
			servers = append(servers, daemons.ServerText(s, ""))
		}
		p.MPS = strings.Join(servers, "; ")
		fillUsage(&p, snap)
		budgets(&p, running)
		n.GPUs = append(n.GPUs, p)
	}
	for _, d := range snap.Devices {
		if _, planned := v.plan.GPU(d.GPU); d.MIG != "" || planned {
			continue
		}
		p := page.GPU{Device: page.Device{UUID: d.GPU}, Index: page.NotPlanned}
		fillUsage(&p, snap)
		n.GPUs = append(n.GPUs, p)
	}
	return n
}

// pageProblems are fixed sentences: others may name accounts and files.
func (a *Agent) pageProblems(v *view) []string {
	var out []string
	if !v.planned {
		out = append(out, "There is no plan in force yet: gpuslot status on the node says why.")
	}
	if v.configError != "" {
		out = append(out, "gpuslot.toml was rejected, the plan before it is still in force: gpuslot status on the node says why.")
	}
	if a.startds.Said().Older() {
		out = append(out, "HTCondor runs an older layout: gpuslot status on the node says what it waits for.")
	}
	for _, u := range v.plan.Absent {
		out = append(out, fmt.Sprintf("%s is configured, but not in this node.", u))
	}
	return out
}

// faultTexts say what opens a GPU again.
var faultTexts = map[faults.Closure]string{
	faults.ClosedForServer: "A client met a fatal GPU error; it opens when its MPS server is well.",
	faults.ClosedForReset:  "Its hardware told of an error that only a reset repairs.",
	faults.ClosedBroken:    "Its hardware is broken; an operator opens it.",
}

// pageReason says in general why a GPU takes no new jobs; empty if it does.
func (a *Agent) pageReason(v *view, g *plan.GPU, now time.Time) string {
	j, guard := a.judge(v, g, now), v.daemons[g.UUID]
	if j.reason == "" {
		return ""
	}
	say := "It takes no new jobs for now."
	switch verdict, held := a.troubles.Verdict(g.Physical(), now), a.closedBy(g).Owners(); {
	case a.closures.Node().Phase != closures.Serving:
		say = fmt.Sprintf("The node is %s.", a.closures.Node().Phase)
	case len(held) > 0: // their reasons may name anybody
		say = fmt.Sprintf("Closed by %s.", strings.Join(held, ", "))
	case v.closed != "":
		say = "The whole node takes no new jobs."
	case !v.present[g.UUID]:
		say = "The node does not have it any more."
	case faultTexts[verdict.Class] != "":
		say = faultTexts[verdict.Class]
	case guard.Servers.Closed(now) != "":
		say = "Its MPS server is not ready for jobs."
	case guard.Closed() != "" || j.health.Check != nil:
		say = "Its control daemon is not proven healthy."
	case a.verifier.Runs(g.UUID):
		say = "A CUDA client tries it now."
	}
	return say + " gpuslot status on the node, as root, says more."
}

// fillUsage adds what was sampled of a GPU and its MIG devices.
func fillUsage(p *page.GPU, snap *usage.Snapshot) {
	for _, d := range snap.Devices {
		switch {
		case d.GPU != p.UUID:
		case d.MIG == "":
			total := p.Total
			p.Device, p.Power = pageDevice(d), d.Power
			if !p.Total.Known {
				p.Total = total
			}
			p.Slots = pageSlots(snap, d.Device)
		default:
			m := pageDevice(d)
			m.Slots = pageSlots(snap, d.Device)
			p.MIG = append(p.MIG, m)
		}
	}
}

func pageDevice(d usage.DeviceUsage) page.Device {
	out := page.Device{UUID: d.GPU, Unowned: d.UnownedMemory, Activity: d.Activity, KernelTime: d.KernelTime, Method: string(d.Method)}
	if d.MIG != "" {
		out.UUID = d.MIG
	}
	if d.Memory.Known {
		out.Total, out.Used = gpu.Known(d.Memory.Value.Total), gpu.Known(d.Memory.Value.Used)
	}
	return out
}

func pageSlots(snap *usage.Snapshot, d usage.Device) []page.Slot {
	var out []page.Slot
	for _, s := range snap.Slots {
		if s.Device == d {
			out = append(out, page.Slot{
				Name: s.Slot.Slot, Memory: s.Memory, Lower: s.SM.Lower, Estimate: s.SM.Estimate, Upper: s.SM.Upper, Joules: s.Job.Energy.Estimate,
			})
		}
	}
	return out
}

// budgets joins the job table: jobs that no sample has seen stand there, too.
func budgets(p *page.GPU, running []jobs.Job) {
	for _, r := range running {
		if r.GPU != p.UUID {
			continue
		}
		name := rules.SlotKey(r.Starter).Slot
		i := slices.IndexFunc(p.Slots, func(s page.Slot) bool { return s.Name == name })
		if i < 0 {
			i = len(p.Slots)
			p.Slots = append(p.Slots, page.Slot{Name: name})
		}
		p.Slots[i].Budget = gpu.Bytes(r.Budget.Bytes())
	}
}
