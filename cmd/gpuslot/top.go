package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
	"github.com/gpuslot/gpuslot/gpu/backoff"
)

// The orders of gpuslot top, and the keys that choose them.
const (
	byVRAM  = "vram"
	bySM    = "sm"
	byWatts = "watts"
)

func topCommand(f *flags) *cobra.Command {
	order, once := byVRAM, false
	c := &cobra.Command{
		Use:   "top",
		Short: "Show the jobs on the GPUs, those that use most first",
		Long: `top lists the jobs on the GPUs by the VRAM they use, by their share of the
multiprocessors' time, or by the power apportioned to them, again each second.
The keys v, s and w choose the order, q quits. Without a terminal it prints one
list.

SM is the estimate, SM RANGE the bounds that are certain; without a source that
reports how many multiprocessors are busy there is an upper bound alone. WATTS is
apportioned, not measured, over the last seconds. For programs the same numbers
are in "gpuslot status --json". Everybody may ask; only root sees the names and
jobs of other accounts.`,
		Example: "  gpuslot top --sort sm",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if !slices.Contains([]string{byVRAM, bySM, byWatts}, order) {
				return show.Usage(fmt.Errorf("--sort is %q; write vram, sm or watts", order))
			}
			l := topLive(f.socket, &order)
			if screen, ok := c.OutOrStdout().(*os.File); once || !ok || !show.IsTerminal(screen) {
				return topOnce(c, l)
			}
			return l.run(c.Context(), c.InOrStdin(), c.OutOrStdout())
		},
	}
	c.Flags().StringVar(&order, "sort", byVRAM, "`what` comes first: vram, sm or watts")
	c.Flags().BoolVar(&once, "once", false, "print one list and end")
	return c
}

func topLive(socket string, order *string) live {
	p := newPower()
	return live{
		ask: func(ctx context.Context) (api.Status, error) { return api.AskStatus(ctx, socket) },
		text: func(s api.Status, now time.Time) string {
			p.see(s, now)
			rows := jobRows(s, p)
			sortRows(rows, *order)
			var b strings.Builder
			fmt.Fprintf(&b, "%s  %s  by %s (keys: v, s, w; q)\n\n", orUnnamed(s.Host), clock(now), *order)
			headed(&b, topTable(rows, now))
			return b.String()
		},
		key: func(k byte) {
			if o, ok := map[byte]string{'v': byVRAM, 's': bySM, 'w': byWatts}[k]; ok {
				*order = o
			}
		},
	}
}

// topOnce looks twice, because power is energy over time.
func topOnce(c *cobra.Command, l live) error {
	var text string
	for i := range 2 {
		s, err := l.ask(c.Context())
		if err != nil {
			return err
		}
		text = l.text(s, time.Now())
		if i == 0 {
			_ = backoff.Wait(c.Context(), refresh) // the second question fails if it ended
		}
	}
	fmt.Fprint(c.OutOrStdout(), strings.ReplaceAll(text, headMark, ""))
	return nil
}

// jobRow is one job with its GPU.
type jobRow struct {
	api.StatusJob
	gpu   int
	watts *float64
}

func jobRows(s api.Status, p *power) []jobRow {
	var out []jobRow
	for _, g := range s.GPUs {
		for _, j := range g.Jobs {
			out = append(out, jobRow{j, g.Index, p.watts(g.UUID, j)})
		}
	}
	return out
}

// sortRows puts the greediest first and the unknown last; a job without an
// estimate counts by its upper bound.
func sortRows(rows []jobRow, order string) {
	value := func(r jobRow) *float64 {
		switch {
		case order == byVRAM && r.UseMiB != nil:
			f := float64(*r.UseMiB)
			return &f
		case order == bySM && r.SM != nil:
			return r.SM
		case order == bySM:
			return r.SMMax
		case order == byWatts:
			return r.watts
		}
		return nil
	}
	slices.SortStableFunc(rows, func(a, b jobRow) int {
		x, y := value(a), value(b)
		switch {
		case x == nil && y == nil:
			return cmp.Compare(a.Slot, b.Slot)
		case x == nil:
			return 1
		case y == nil:
			return -1
		}
		return cmp.Or(cmp.Compare(*y, *x), cmp.Compare(a.Slot, b.Slot))
	})
}

func topTable(rows []jobRow, now time.Time) *show.Table {
	t := &show.Table{}
	t.Row("SLOT", "GPU", "JOB", "ACCOUNT", "VRAM/MiB", "OF", "SM", "SM RANGE", "WATTS", "PROCS", "RUNS", "")
	for _, r := range rows {
		note := ""
		switch {
		case r.Hold != "":
			note = "is to be held"
		case r.UseMiB != nil && *r.UseMiB > r.BudgetMiB:
			note = "over its budget"
		}
		t.Row(r.Slot, strconv.Itoa(r.gpu), show.OrDash(r.ID), show.OrDash(r.Account),
			orUnknown(r.UseMiB, func(m int64) string { return show.MiB(m) }), show.MiB(r.BudgetMiB),
			orUnknown(r.SM, share), smRange(r.StatusJob), orUnknown(r.watts, whole), orUnknown(r.Processes, strconv.Itoa),
			ago(now.Sub(r.Since)), note)
	}
	return t
}

// smRange is what is certain of a job's SM time.
func smRange(j api.StatusJob) string {
	switch {
	case j.SMMax == nil:
		return "-"
	case j.SMMin == nil:
		return "at most " + share(*j.SMMax)
	case share(*j.SMMin) == share(*j.SMMax):
		return "exact"
	}
	return fmt.Sprintf("%.0f-%s", 100**j.SMMin, share(*j.SMMax))
}

// ago is a time in the two largest units that matter.
func ago(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}
