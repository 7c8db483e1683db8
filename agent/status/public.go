package status

import (
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
)

// publicAge is how old a snapshot may be that accounts other than root get. They may ask as
// often as they like, and each snapshot costs time.
const publicAge = time.Second

// Public shows accounts other than root the state of the node: what the GPUs have and give,
// the jobs of that account, and of other jobs only their slots and use. Sentences that can
// name accounts, jobs or processes are left out.
type Public struct {
	// Look takes a snapshot for people: see Reader.Look.
	Look func(now time.Time) *Snapshot

	mu sync.Mutex
	// last is the last snapshot, all its status, reasons in general why each GPU takes no jobs.
	last    *Snapshot
	all     *api.Status
	reasons []string
}

// Status returns the state of the node for an account.
func (p *Public) Status(uid uint32) *api.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); p.last == nil || now.Sub(p.last.At) >= publicAge {
		p.last = p.Look(now)
		p.all, p.reasons = p.last.Status(), nil
		for i := range p.last.GPUs {
			reason := ""
			if !p.all.GPUs[i].Accept {
				reason = p.last.GeneralReason(&p.last.GPUs[i])
			}
			p.reasons = append(p.reasons, reason)
		}
	}
	own := map[slotSince]bool{}
	for _, j := range p.last.Running {
		if j.Account.Known && j.Account.UID == uid {
			own[slotSince{j.Starter.Slot, j.Since}] = true
		}
	}
	all := p.all
	s := &api.Status{
		Partial: true, Version: all.Version, Host: all.Host, Driver: all.Driver, HTCondor: all.HTCondor,
		PlanApplied: all.PlanApplied, Observe: all.Observe, GPUs: make([]api.StatusGPU, 0, len(all.GPUs)),
	}
	for i, g := range all.GPUs {
		s.GPUs = append(s.GPUs, publicGPU(g, p.reasons[i], own))
	}
	return s
}

// slotSince is one job in a slot.
type slotSince struct {
	slot  string
	since time.Time
}

func publicGPU(g api.StatusGPU, reason string, own map[slotSince]bool) api.StatusGPU {
	out := api.StatusGPU{
		UUID: g.UUID, Index: g.Index, Name: g.Name, Place: g.Place, Device: g.Device, Mode: g.Mode, Shares: g.Shares,
		PoolMiB: g.PoolMiB, UsedMiB: g.UsedMiB, LimitMiB: g.LimitMiB, Accept: g.Accept, Reason: reason,
		EnforcedBy: g.EnforcedBy, UseMiB: g.UseMiB, SM: g.SM, Watts: g.Watts,
	}
	for _, j := range g.Jobs {
		if !own[slotSince{j.Slot, j.Since}] {
			j.ID, j.Account, j.Hold = "", "", ""
		}
		out.Jobs = append(out.Jobs, j)
	}
	return out
}
