package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
	"github.com/gpuslot/gpuslot/gpu"
)

func whyCommand(f *flags) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "why JOB|SLOT|GPU",
		Short: "Show what happened to a job, a slot or a GPU",
		Long: `why prints what the agent noted of a job, a slot or a GPU, the oldest first. A job is
12.0, or 12 for all of a cluster; a slot is slot1_2; a GPU is its index or the
beginning of its UUID. It prints admissions and refusals, holds, faults and who
caused them, restarts, and changes of the plan. It prints when a GPU was closed and
opened, and when jobs on it slowed each other down at its memory. Of a job it also
prints its GPU's events during its life.

It reads the history on disk, so it also has jobs that are gone and the
time before a restart. The history has a bounded size; the oldest is forgotten.
Only root may read it.`,
		Example: `  gpuslot why 12.0
  gpuslot why slot1_2
  gpuslot why 0`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			cfg, err := loadConfig(c, f.config)
			if err != nil {
				return err
			}
			events, err := history.Events(cfg.Paths)
			if err != nil {
				return unreadable(err, "run it as root on the node that is asked about")
			}
			p, err := plan.Read(cfg.Paths.PlanFile())
			if err != nil {
				p = plan.Plan{} // then a GPU is named by its UUID alone
			}
			found := story(events, p, args[0])
			if asJSON {
				return show.JSON(c.OutOrStdout(), found)
			}
			if len(found) == 0 {
				return show.Hint(fmt.Errorf("no event of %s; the history has %d events%s", meaning(p, args[0]), len(events),
					sinceFirst(events)), "name a job (12.0), a slot (slot1_2) or a GPU (its index or UUID)"+seen(events))
			}
			whyText(c.OutOrStdout(), found)
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func sinceFirst(events []history.Event) string {
	if len(events) == 0 {
		return ""
	}
	return " since " + clock(events[0].Time)
}

// story chooses the events that a name stands for.
func story(events []history.Event, p plan.Plan, name string) []history.Event {
	short, _, _ := strings.Cut(name, "@")
	if strings.HasPrefix(short, "slot") {
		return chosen(events, func(e history.Event) bool { return e.Slot == short })
	}
	if strings.Contains(name, ".") {
		return ofJob(events, name)
	}
	index := gpuAt(p, name)
	if index == "" && isNumber(name) {
		cluster := chosen(events, func(e history.Event) bool { return strings.HasPrefix(e.Job, name+".") })
		if len(cluster) > 0 || len(name) <= 3 { // so few digits are not taken for the beginning of a UUID
			return cluster
		}
	}
	return chosen(events, func(e history.Event) bool {
		if e.Kind == history.EventNode {
			return true // it is all of its GPUs
		}
		if index != "" {
			return e.GPU == index
		}
		bare := strings.TrimPrefix(string(e.GPU), "GPU-")
		return bare != "" && strings.HasPrefix(bare, strings.TrimPrefix(name, "GPU-"))
	})
}

// gpuAt is the GPU with this index in the plan; empty if there is none.
func gpuAt(p plan.Plan, index string) gpu.UUID {
	for _, g := range p.GPUs {
		if strconv.Itoa(g.Index) == index {
			return g.UUID
		}
	}
	return ""
}

// meaning is what a name without events was taken for.
func meaning(p plan.Plan, name string) string {
	switch {
	case gpuAt(p, name) != "":
		return "GPU " + name
	case isNumber(name):
		return fmt.Sprintf("a job %s.*, and the plan has no GPU %s", name, name)
	}
	return strconv.Quote(name)
}

// isNumber: it may be a cluster of jobs.
func isNumber(name string) bool {
	_, err := strconv.ParseUint(name, 10, 64)
	return err == nil
}

// seen names the GPUs that the history has events of.
func seen(events []history.Event) string {
	gpus := gpusOfHistory(events)
	if len(gpus) == 0 {
		return ""
	}
	return "; it has events of " + strings.Join(gpus, ", ")
}

// gpusOfHistory are the beginnings of the UUIDs that events name, in order.
func gpusOfHistory(events []history.Event) []string {
	var names []string
	for _, e := range events {
		if e.GPU != "" {
			names = append(names, shortUUID(e.GPU))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func chosen(events []history.Event, want func(history.Event) bool) []history.Event {
	out := []history.Event{}
	for _, e := range events {
		if want(e) {
			out = append(out, e)
		}
	}
	return out
}

// ofJob are a job's events, and those of its GPUs and of the node while it ran:
// from each admission to the end that follows, or to now.
func ofJob(events []history.Event, job string) []history.Event {
	running := map[gpu.UUID]bool{}
	return chosen(events, func(e history.Event) bool {
		switch {
		case e.Job == job && e.Kind == history.EventAdmitted:
			running[e.GPU] = true
			return true
		case e.Job == job && e.Kind == history.EventEnd:
			delete(running, e.GPU)
			return true
		case e.Job == job:
			return true
		}
		return e.Job == "" && (running[e.GPU] || e.GPU == "" && len(running) > 0)
	})
}

func whyText(w io.Writer, events []history.Event) {
	t := &show.Table{}
	t.Row("TIME", "WHAT", "JOB", "SLOT", "GPU", "BY", "")
	for _, e := range events {
		t.Row(stamp(e.Time), string(e.Kind), show.OrDash(e.Job), show.OrDash(e.Slot), show.OrDash(shortUUID(e.GPU)),
			show.OrDash(e.By), e.Text)
	}
	t.Print(w)
}

// stamp is local time to the millisecond: causes and effects lie close together.
func stamp(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05.000") }

// shortUUID is enough to tell the GPUs of one node apart.
func shortUUID(u gpu.UUID) string {
	const enough = len("GPU-12345678")
	return string(u)[:min(len(u), enough)]
}
