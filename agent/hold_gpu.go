package agent

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// held are the holds that keep jobs off a GPU or MIG device of the plan.
func (a *Agent) held(g *plan.GPU) Holds {
	return a.holds.on(g.UUID, g.Physical())
}

// heldFor are those of them that a job must heed whose starter runs since then,
// in clock ticks since boot. A job that HTCondor started before an owner closed
// the GPU is one of its running jobs, even if its hook comes a moment later.
func (a *Agent) heldFor(g *plan.GPU, started uint64) Holds {
	held := a.held(g)
	return slices.DeleteFunc(held, func(h Hold) bool {
		closed, err := usage.TicksAt(h.Since)
		return err == nil && !h.Since.IsZero() && started < closed
	})
}

// joined is why owners hold a GPU and what else closes it.
func joined(held Holds, other string) string {
	switch why := held.Reason(); {
	case why == "":
		return other
	case other == "":
		return why
	default:
		return why + "; and " + other
	}
}

// allGPUs is the name of all GPUs of the node.
const allGPUs = "all"

// gpuTarget is what a name stands for: the UUID that a hold of it has, and the
// GPUs and MIG devices of the plan that it holds.
type gpuTarget struct {
	uuid    gpu.UUID
	index   int
	devices []*plan.GPU
}

func (n gpuTarget) String() string {
	if n.uuid.IsMIG() {
		return string(n.uuid)
	}
	return fmt.Sprintf("GPU %d (%s)", n.index, n.uuid)
}

// gpusNamed finds GPUs by index, UUID, PCI bus id or the beginning of a UUID,
// MIG devices by UUID, and all GPUs by "all".
func gpusNamed(p *plan.Plan, name string) ([]gpuTarget, error) {
	bus, errBus := gpu.ParsePCIBusID(name)
	found := chosen(p, func(g *plan.GPU) (whole, part bool) {
		whole = name == allGPUs || strconv.Itoa(g.Index) == name || string(g.Physical()) == name || errBus == nil && g.PCI == bus
		return whole, string(g.UUID) == name
	})
	if len(found) > 0 {
		return found, nil
	}
	bare := strings.TrimPrefix(name, "GPU-")
	if bare != "" {
		found = chosen(p, func(g *plan.GPU) (whole, part bool) {
			return strings.HasPrefix(g.Physical().Bare(), bare), strings.HasPrefix(g.UUID.Bare(), bare)
		})
	}
	switch {
	case len(found) == 0 && name == allGPUs:
		return nil, errors.New("there is no GPU in the plan: see gpuslot status")
	case len(found) == 0:
		return nil, fmt.Errorf("there is no GPU %q in the plan: name one by its index, UUID or PCI bus id, as gpuslot status shows them, or all", foreign.Clip(name))
	case len(found) > 1:
		return nil, fmt.Errorf("%q begins the UUIDs of %d GPUs: give more of it", foreign.Clip(name), len(found))
	}
	return found, nil
}

// chosen are the GPUs that are meant as a whole, and the MIG devices that are
// meant by themselves.
func chosen(p *plan.Plan, is func(*plan.GPU) (whole, part bool)) []gpuTarget {
	var found []gpuTarget
	for i := range p.GPUs {
		g := &p.GPUs[i]
		n := gpuTarget{uuid: g.Physical(), index: g.Index, devices: []*plan.GPU{g}}
		whole, part := is(g)
		if !whole && !part {
			continue
		}
		if !whole {
			n.uuid = g.UUID
		}
		if i := slices.IndexFunc(found, func(o gpuTarget) bool { return o.uuid == n.uuid }); i >= 0 {
			found[i].devices = append(found[i].devices, g)
			continue
		}
		found = append(found, n)
	}
	return found
}

// closeGPU holds GPUs for an owner. Running jobs are left alone.
func (a *Agent) closeGPU(req api.Request) (api.Closing, error) {
	owner := req.Owner
	if owner == "" {
		owner = OwnerOperator
	}
	reason, err := checkHold(owner, req.Reason)
	if err != nil {
		return api.Closing{}, err
	}
	v := a.view.Load()
	if err := v.refusesObserved(); err != nil {
		return api.Closing{}, err
	}
	gpus, err := gpusNamed(&v.plan, req.GPU)
	if err != nil {
		return api.Closing{}, err
	}
	var out api.Closing
	var errs []error
	now := time.Now()
	for _, n := range gpus {
		for _, g := range n.devices {
			out.Devices = append(out.Devices, string(g.UUID))
		}
		if err := a.holds.set(Hold{GPU: n.uuid, Owner: owner, Reason: reason, Since: now}); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", n, err))
			continue
		}
		out.Text = append(out.Text, fmt.Sprintf("%s is closed by %s: %s", n, owner, reason))
		a.note(history.Event{Kind: history.EventClose, GPU: n.uuid, By: owner, Text: reason})
		a.log.Warn("GPU closed by its owner", "gpu", n.uuid, "owner", owner, "reason", reason)
	}
	nudge(a.wake)
	return out, errors.Join(errs...)
}

// openGPU lifts an owner's holds; an operator's override lifts everybody's, and
// those of the hardware's word too.
func (a *Agent) openGPU(req api.Request) (api.Closing, error) {
	owner := req.Owner
	if owner == "" {
		owner = OwnerOperator
	}
	if err := checkOwner(owner); err != nil {
		return api.Closing{}, err
	}
	v := a.view.Load()
	gpus, err := gpusNamed(&v.plan, req.GPU)
	if u, bad := gpu.ParseUUID(req.GPU); err != nil && bad == nil && len(a.holds.on(u)) > 0 {
		gpus, err = []gpuTarget{{uuid: u}}, nil // it left the node closed
	}
	if err != nil {
		return api.Closing{}, err
	}
	var out api.Closing
	var errs []error
	for _, n := range gpus {
		text, err := a.openOne(v, n, owner, req.Force)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out.Text = append(out.Text, text)
	}
	nudge(a.wake)
	return out, errors.Join(errs...)
}

func (a *Agent) openOne(v *view, n gpuTarget, owner string, override bool) (string, error) {
	lifted, left, err := a.holds.lift(n.uuid, owner, override)
	if err != nil {
		return "", fmt.Errorf("%s %w", n, err)
	}
	if away := a.holds.node(); away.Phase != nodeServes {
		hold := away.hold()
		hold.Reason += ": gpuslot node resume takes that back"
		left = left.With(hold)
	}
	for _, h := range lifted {
		a.note(history.Event{Kind: history.EventOpen, GPU: n.uuid, By: owner, Text: fmt.Sprintf("No longer closed by %s (%s).", h.Owner, h.Reason)})
		a.log.Warn("GPU opened by its owner", "gpu", n.uuid, "owner", h.Owner, "override", override && h.Owner != owner)
	}
	verdict := a.troubles.Verdict(n.uuid, time.Now())
	why := n.closedBy(v)
	switch {
	case verdict.Closed() && override:
		a.troubles.Open(n.uuid)
		if err := a.keepTroubles(v.config.Paths); err != nil {
			return "", fmt.Errorf("%s is open, but the next gpuslotd will close it again, since that could not be kept: %w", n, err)
		}
		a.note(history.Event{Kind: history.EventOpen, GPU: n.uuid, By: owner, Text: fmt.Sprintf("Opened although %s", verdict.Reason)})
		a.log.Warn("an operator opened a GPU", "gpu", n.uuid, "although", verdict.Reason)
		return fmt.Sprintf("%s is opened, although %s", n, verdict.Reason), nil
	case len(left) > 0 && len(lifted) > 0:
		return fmt.Sprintf("%s is no longer closed by %s, but stays %s", n, owner, left.Reason()), nil
	case len(left) > 0:
		return fmt.Sprintf("%s is not closed by %s, but it is %s", n, owner, left.Reason()), nil
	case verdict.Closed() && len(lifted) == 0:
		return "", fmt.Errorf("%s is closed since %s: %s", n, verdict.Since.Format(time.DateTime), verdict.Reason)
	case verdict.Closed():
		why = verdict.Reason
	case why != "" && len(lifted) == 0:
		return "", fmt.Errorf("%s is not closed by an event of the hardware, but because %s", n, why)
	}
	switch {
	case why != "":
		return fmt.Sprintf("%s is no longer closed by %s, but stays closed because %s", n, owner, why), nil
	case len(lifted) > 0:
		return fmt.Sprintf("%s is opened, no longer %s", n, lifted.Reason()), nil
	}
	return fmt.Sprintf("%s is open", n), nil
}

// closedBy is what else keeps jobs off, by the last round.
func (n gpuTarget) closedBy(v *view) string {
	for _, g := range n.devices {
		if why := v.reasons[g.UUID]; why != "" {
			return why
		}
	}
	return ""
}
