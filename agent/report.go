package agent

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/plan"
)

// reporter logs what is new since the last round.
type reporter struct {
	history *history.Writer
	heart   *heart
	before  *before
	log     *slog.Logger
}

// changes logs what is new since the last round, once, and gives the service manager its line.
func (r *reporter) changes(old, new *view) {
	if new.configError != "" && new.configError != old.configError {
		r.log.Error("configuration rejected; the plan in force stays", "err", new.configError)
	}
	if new.planned && !old.applied.Equal(new.applied) {
		for _, line := range r.newsOf(old, new) {
			r.history.Event(history.Event{Kind: history.EventPlan, By: history.ByAgent, Text: line})
			r.log.Info("plan", "change", line)
		}
		for _, w := range new.plan.Warnings {
			r.log.Warn("plan", "warning", w)
		}
	}
	if new.closed != old.closed {
		if new.closed == "" {
			r.log.Info("GPUs are offered again")
		} else {
			r.log.Error("no GPU takes jobs", "err", new.closed)
		}
	}
	for _, p := range new.problems {
		if !slices.Contains(old.problems, p) {
			r.log.Warn("problem", "err", p)
		}
	}
	r.closures(old, new)
	r.heart.tell(r.heart.manager.Status(new.summary()))
}

// newsOf are the changes of a plan; a first one is not compared with nothing.
func (r *reporter) newsOf(old, new *view) []string {
	before := old.plan
	if !old.planned {
		before = r.before.plan
	}
	if before.Schema == "" {
		return []string{fmt.Sprintf("The node's first plan, for %d GPUs.", len(new.plan.GPUs))}
	}
	return plan.Diff(before, new.plan)
}

// closures logs GPUs that were closed or opened.
func (r *reporter) closures(old, new *view) {
	for _, g := range new.plan.GPUs {
		before, now := old.reasons[g.UUID], new.reasons[g.UUID]
		switch {
		case g.Place != "" && g.Device == "": // its GPU has another layout
		case !g.Shared() && !g.Alone() || (before == "") == (now == ""):
		case now == "" && new.held[g.UUID]:
			r.history.Event(history.Event{Kind: history.EventOpen, GPU: g.UUID, By: history.ByAgent, Text: "The agent sees " +
				"no reason any more to keep it closed; its owners do."})
			r.log.Info("GPU would be open, but is held", "gpu", g.UUID)
		case now == "":
			r.history.Event(history.Event{Kind: history.EventOpen, GPU: g.UUID, By: history.ByAgent, Text: "It takes jobs " +
				"again."})
			r.log.Info("GPU opened", "gpu", g.UUID)
		default:
			r.history.Event(history.Event{Kind: history.EventClose, GPU: g.UUID, By: history.ByAgent, Text: now})
			r.log.Error("GPU closed", "gpu", g.UUID, "err", now)
		}
	}
}

// summary is the service manager's status line.
func (v *view) summary() string {
	switch {
	case !v.planned:
		return "no plan yet: " + v.closed
	case v.closed != "" && v.plan.Observe:
		return "not observing: " + v.closed
	case v.closed != "":
		return "no GPU takes jobs: " + v.closed
	}
	if v.plan.Observe {
		return fmt.Sprintf("%d GPUs observed", len(v.physicals())) + rejected(v)
	}
	shared, open := 0, 0
	for _, g := range v.plan.GPUs {
		if g.Shared() {
			shared++
			if v.reasons[g.UUID] == "" && !v.held[g.UUID] {
				open++
			}
		}
	}
	s := fmt.Sprintf("%d GPUs, %d shared, %d of them open", len(v.physicals()), shared, open)
	if len(v.plan.MIG) > 0 {
		s = fmt.Sprintf("%d GPUs, %d of them in MIG mode; %d GPUs and MIG devices, %d shared, %d of them "+
			"open", len(v.physicals()), len(v.plan.MIG), len(v.plan.GPUs), shared, open)
	}
	return s + rejected(v)
}

func rejected(v *view) string {
	if v.configError == "" {
		return ""
	}
	return "; the last configuration was rejected"
}
