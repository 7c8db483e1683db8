package closures

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/faults"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
)

// Events keeps what happened to GPUs and to the node.
type Events interface {
	Event(history.Event)
}

// Faults are what the hardware reported.
type Faults interface {
	// Verdict says whether that closes a GPU.
	Verdict(u gpu.UUID, now time.Time) faults.Verdict
	// Open opens the GPU all the same. The error says that the next agent will close it
	// again.
	Open(u gpu.UUID) error
}

// Operator carries out requests of operators and of a site's programs to close and open
// GPUs.
type Operator struct {
	Table  *Table
	Faults Faults
	Events Events
	Log    *slog.Logger
}

// Close closes GPUs of the plan for an owner. Running jobs are left alone.
func (o Operator) Close(p *plan.Plan, req api.Request) (api.Closing, error) {
	owner := cmp.Or(req.Owner, OwnerOperator)
	reason, err := check(owner, req.Reason)
	if err != nil {
		return api.Closing{}, err
	}
	targets, err := Named(p, req.GPU)
	if err != nil {
		return api.Closing{}, err
	}
	var out api.Closing
	var errs []error
	now := time.Now()
	for _, n := range targets {
		for _, g := range n.Devices {
			out.Devices = append(out.Devices, string(g.UUID))
		}
		if err := o.Table.Close(Closure{GPU: n.UUID, Owner: owner, Reason: reason, Since: now}); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", n, err))
			continue
		}
		out.Text = append(out.Text, fmt.Sprintf("%s is closed by %s: %s", n, owner, reason))
		o.Events.Event(history.Event{Kind: history.EventClose, GPU: n.UUID, By: owner, Text: reason})
		o.Log.Warn("GPU closed by its owner", "gpu", n.UUID, "owner", owner, "reason", reason)
	}
	return out, errors.Join(errs...)
}

// Open takes away an owner's closures; with --override everybody's, and those by what the
// hardware reported too. Seen is why the agent keeps GPUs closed, by the last round.
func (o Operator) Open(p *plan.Plan, seen map[gpu.UUID]string, req api.Request) (api.Closing, error) {
	owner := cmp.Or(req.Owner, OwnerOperator)
	if err := checkOwner(owner); err != nil {
		return api.Closing{}, err
	}
	targets, err := Named(p, req.GPU)
	if u, bad := gpu.ParseUUID(req.GPU); err != nil && bad == nil && len(o.Table.On(u)) > 0 {
		targets, err = []Target{{UUID: u}}, nil // it left the node closed
	}
	if err != nil {
		return api.Closing{}, err
	}
	var out api.Closing
	var errs []error
	for _, n := range targets {
		text, err := o.open(n, seen, owner, req.Force)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out.Text = append(out.Text, text)
	}
	return out, errors.Join(errs...)
}

func (o Operator) open(n Target, seen map[gpu.UUID]string, owner string, override bool) (string, error) {
	lifted, left, err := o.Table.Open(n.UUID, owner, override)
	if err != nil {
		return "", fmt.Errorf("%s %w", n, err)
	}
	if away := o.Table.Node(); away.Phase != Serving {
		c := away.closure()
		c.Reason += ": gpuslot node resume takes that back"
		left = left.With(c)
	}
	for _, c := range lifted {
		text := fmt.Sprintf("No longer closed by %s (%s).", c.Owner, c.Reason)
		o.Events.Event(history.Event{Kind: history.EventOpen, GPU: n.UUID, By: owner, Text: text})
		o.Log.Warn("GPU opened by its owner", "gpu", n.UUID, "owner", c.Owner, "override", override && c.Owner != owner)
	}
	verdict := o.Faults.Verdict(n.UUID, time.Now())
	why := n.first(seen)
	switch {
	case verdict.Closed() && override:
		if err := o.Faults.Open(n.UUID); err != nil {
			return "", fmt.Errorf("%s is open, but the next gpuslotd will close it again, "+
				"since that could not be kept: %w", n, err)
		}
		text := fmt.Sprintf("Opened although %s", verdict.Reason)
		o.Events.Event(history.Event{Kind: history.EventOpen, GPU: n.UUID, By: owner, Text: text})
		o.Log.Warn("an operator opened a GPU", "gpu", n.UUID, "although", verdict.Reason)
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

// first is the first reason of a device of the target.
func (n Target) first(reasons map[gpu.UUID]string) string {
	for _, g := range n.Devices {
		if why := reasons[g.UUID]; why != "" {
			return why
		}
	}
	return ""
}
