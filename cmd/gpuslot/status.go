package main

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

func statusCommand(f *flags) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Show GPUs, shares, running jobs and the health of the control daemons",
		Long: `status shows for each GPU the shares and the VRAM in use, the limit of its control
daemon, and what enforces the budgets. It says whether the GPU takes new jobs, and
if not why. Then it shows the running jobs.

A job in a static SM partition has its own multiprocessors: "watch, 32 SMs".

ENFORCED BY is what limits a job to its VRAM budget:

  cgroup  the driver's limit for the whole job
  daemon  the control daemon's limit, which no process can raise
  watch   the agent: it sums what the job's processes use; HTCondor holds the job
  none    the job's environment alone

docs/operations.md says what each is worth.

VRAM is what was budgeted of the pool, USED what NVML reports. Jobs marked
unconfirmed were announced by the hook and not yet seen in the startd's own slot
ads. Everybody may ask; only root sees the names and jobs of other accounts, and
why a GPU is closed in full.`,
		Example: `  gpuslot status
  gpuslot status --json | jq '.gpus[] | select(.accept | not) | .reason'`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := api.AskStatus(c.Context(), f.socket)
			if err != nil {
				return err
			}
			if asJSON {
				return show.JSON(c.OutOrStdout(), s)
			}
			statusText(c.OutOrStdout(), s)
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func statusText(w io.Writer, s api.Status) {
	fmt.Fprintln(w, describeAgent(s))
	if s.Node != nil {
		fmt.Fprint(w, describeNode(*s.Node))
	}
	fmt.Fprintln(w)
	gpuTable(s).Print(w)
	if jobs := jobTable(s); jobs.Len() > 1 {
		fmt.Fprintln(w)
		jobs.Print(w)
	} else if s.Observe {
		fmt.Fprintln(w, "\nno GPU jobs")
	} else {
		fmt.Fprintln(w, "\nno jobs on shared GPUs")
	}
	if lines := notes(s); len(lines) > 0 {
		fmt.Fprintf(w, "\n%s\n", strings.Join(lines, "\n"))
	}
}

func describeAgent(s api.Status) string {
	text := fmt.Sprintf("%s: gpuslotd %s", orUnnamed(s.Host), s.Version)
	if s.Driver != "" {
		text += ", driver " + s.Driver
	}
	if s.HTCondor != "" {
		text += ", HTCondor " + s.HTCondor
	}
	if s.PlanApplied.IsZero() {
		return text + ", no plan in force"
	}
	return text + ", plan in force since " + clock(s.PlanApplied)
}

// clock prints local time to the second.
func clock(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

func gpuTable(s api.Status) *show.Table {
	if s.Observe {
		return observedTable(s)
	}
	t := &show.Table{}
	t.Row("GPU", "UUID", "MODE", "SHARES", "VRAM/MiB", "USED/MiB", "DAEMON LIMIT", "TAKES JOBS", "TENANT", "ENFORCED BY",
		"COMPUTE MODE", "MPS SERVER")
	for _, g := range s.GPUs {
		limit, takes := "-", "no"
		if g.LimitMiB > 0 {
			limit = show.MiB(g.LimitMiB)
		}
		if limitRange(g) != "" {
			limit += " *"
		}
		if g.Accept {
			takes = "yes"
		}
		t.Row(strconv.Itoa(g.Index), g.UUID, strings.TrimSpace(g.Mode+" "+g.Place),
			fmt.Sprintf("%d/%d", len(g.Jobs), g.Shares), fmt.Sprintf("%d/%d", g.UsedMiB, g.PoolMiB),
			known(g.UseMiB), limit, takes, show.OrDash(g.Tenant), show.OrDash(g.EnforcedBy), show.OrDash(brief(g.ComputeMode)),
			show.OrDash(brief(g.Server)))
	}
	return t
}

// observedTable has no word of what gpuslot does not do there.
func observedTable(s api.Status) *show.Table {
	t := &show.Table{}
	t.Row("GPU", "UUID", "MODE", "JOBS", "VRAM/MiB", "USED/MiB", "SM", "WATTS")
	for _, g := range s.GPUs {
		t.Row(strconv.Itoa(g.Index), g.UUID, g.Mode, strconv.Itoa(len(g.Jobs)), show.MiB(g.PoolMiB), known(g.UseMiB),
			orUnknown(g.SM, share), orUnknown(g.Watts, whole))
	}
	return t
}

// brief is the first clause of what the agent says; remarks has the rest.
func brief(text string) string {
	if end := strings.IndexAny(text, ",("); end > 0 {
		return strings.TrimSpace(text[:end]) + " *"
	}
	return text
}

// limitRange says between which bounds the daemon's limit was read back, where that is not exact.
func limitRange(g api.StatusGPU) string {
	if strings.Contains(g.LimitReadBack, " to ") {
		return "the daemon's limit is read back as " + g.LimitReadBack
	}
	return ""
}

// remarks are the texts that the table shortened, each with its GPUs.
func remarks(s api.Status) []string {
	gpus := map[string][]string{}
	var texts []string // in the order of the table
	for _, g := range s.GPUs {
		for _, text := range []string{limitRange(g), g.ComputeMode, g.Server} {
			if text != limitRange(g) && brief(text) == text || text == "" {
				continue
			}
			if gpus[text] == nil {
				texts = append(texts, text)
			}
			gpus[text] = append(gpus[text], strconv.Itoa(g.Index))
		}
	}
	for i, text := range texts {
		texts[i] = fmt.Sprintf("* GPU %s: %s", strings.Join(gpus[text], ", "), text)
	}
	return texts
}

func jobTable(s api.Status) *show.Table {
	t := &show.Table{}
	t.Row("SLOT", "JOB", "ACCOUNT", "GPU", "BUDGET/MiB", "USED/MiB", "ENFORCED BY", "SINCE", "CONFIRMED")
	for _, g := range s.GPUs {
		for _, j := range g.Jobs {
			confirmed := "no"
			if j.Confirmed {
				confirmed = "yes"
			}
			enforcedBy := show.OrDash(j.EnforcedBy)
			if j.SMs != nil { // multiprocessors of its own
				enforcedBy = fmt.Sprintf("%s, %d SMs", enforcedBy, *j.SMs)
			}
			t.Row(j.Slot, show.OrDash(j.ID), show.OrDash(j.Account), strconv.Itoa(g.Index), show.MiB(j.BudgetMiB),
				known(j.UseMiB), enforcedBy, clock(j.Since), confirmed)
		}
	}
	return t
}

// notes says in sentences what a table has no room for.
func notes(s api.Status) []string {
	out := remarks(s)
	if s.Partial {
		out = append(out, "names of other accounts are left out: root sees all")
	}
	if s.Observe {
		out = append(out, "observed: gpuslot changes nothing here; HTCondor gives the GPUs out by the site's own rules")
	}
	for _, g := range s.GPUs {
		if g.Place != "" && g.Device == "" {
			continue // its GPU has another layout
		}
		if !g.Accept && g.Reason != "" {
			out = append(out, fmt.Sprintf("closed: GPU %d, %s: %s", g.Index, g.UUID, g.Reason))
		}
		out = append(out, misuse(g)...)
	}
	for _, r := range s.Repartition {
		out = append(out, "layouts: "+followed(r))
	}
	for _, u := range s.Absent {
		out = append(out, fmt.Sprintf("absent: %s is configured, but not in this node", u))
	}
	for _, e := range s.Errors {
		out = append(out, "error: "+e)
	}
	if s.ConfigError != "" {
		out = append(out, fmt.Sprintf("warning: %s was rejected, the plan before it is still in force: %s", s.ConfigFile,
			s.ConfigError))
	}
	if line := capabilities(s.MPS); line != "" && !s.Observe {
		out = append(out, line)
	}
	for _, w := range s.MissingEnforcement {
		out = append(out, "limitation: "+w)
	}
	for _, w := range s.Warnings {
		out = append(out, "warning: "+w)
	}
	return out
}

// misuse is what the jobs and processes of a GPU do against the rules, and
// what did not hold when the GPU was verified.
func misuse(g api.StatusGPU) []string {
	var out []string
	for _, j := range g.Jobs {
		if j.Hold != "" {
			out = append(out, fmt.Sprintf("to be held: %s, job %s: %s", j.Slot, show.OrDash(j.ID), j.Hold))
		}
	}
	for _, p := range g.Strangers {
		on, of, vram := fmt.Sprintf("GPU %d: process %d", g.Index, p.PID), cmp.Or(p.Slot, "no slot"), known(p.VRAMMiB)
		switch {
		case p.Unknown:
			out = append(out, fmt.Sprintf("unknown: %s, %s MiB: the kernel has not said yet whose it is", on, vram))
		case p.MPSClient:
			out = append(out, fmt.Sprintf("of no job: %s, an MPS client, %s MiB: no budget counts it; "+
				"see whose it is, and end it", on, vram))
		default:
			out = append(out, fmt.Sprintf("beside MPS: %s of %s, %s MiB: no limit holds for it", on, of, vram))
		}
	}
	if g.Unlisted != "" && g.Unlisted != g.Reason {
		out = append(out, fmt.Sprintf("unlisted: GPU %d: %s", g.Index, g.Unlisted))
	}
	if v := g.Verified; v != nil && !v.OK && !v.At.IsZero() {
		out = append(out, fmt.Sprintf("verified: GPU %d at %s: %s", g.Index, clock(v.At), v.Text))
	}
	return out
}

// known is a number, or a question mark.
func known(n *int64) string {
	if n == nil {
		return "?"
	}
	return show.MiB(*n)
}

// capabilities is one line about what control daemon, driver and kernel can do.
func capabilities(all []api.Capability) string {
	var has, lacks, unknown []string
	for _, c := range all {
		switch {
		case c.Has == nil:
			unknown = append(unknown, c.Name)
		case *c.Has:
			has = append(has, c.Name)
		default:
			lacks = append(lacks, c.Name)
		}
	}
	var parts []string
	for _, p := range []struct {
		word  string
		names []string
	}{{"has", has}, {"lacks", lacks}, {"not known:", unknown}} {
		if len(p.names) > 0 {
			parts = append(parts, p.word+" "+strings.Join(p.names, ", "))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "MPS " + strings.Join(parts, "; ")
}
