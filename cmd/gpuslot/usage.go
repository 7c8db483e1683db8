package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/record"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

// usageFlags are those of gpuslot usage.
type usageFlags struct {
	*flags
	since, by, site                string
	asJSON, egi, asTable, exported bool
}

func usageCommand(f *flags) *cobra.Command {
	u := usageFlags{flags: f}
	c := &cobra.Command{
		Use:   "usage [JOB]",
		Short: "Show what a job used of the GPUs, or sum up all jobs of a node",
		Long: `With a job, such as 12.0 or 12, usage prints what the job asked for and its peak of
VRAM. It prints its GPU time with bounds, its energy, and what to ask for next time.
Run it on the access point where the job was submitted. It asks condor_history and condor_q,
and needs neither root nor the agent.

Without a job, usage reads the records of the jobs that ended on this node. It sums
them up by accounting group, user, job or GPU. That needs no agent, but root:
records name users.

GPU-HOURS are of whole GPUs: ALLOCATED is share times time, ACTIVE the
multiprocessors' time with the bounds LEAST and MOST. A job whose number is not
known adds nothing to that column and one to UNKNOWN. Jobs that ran before the
agent did are counted from its start on.

--egi is experimental: no collector has read its records yet. It prints one
accelerator record per job in the fields of the EGI draft
(APEL-accelerator-message v0.1): Count is the share, ActiveDuration the active
GPU-seconds divided by it. With --table it sums the same fields up by month,
virtual organisation and model, for people. COUNT is the mean share, durations
are hours, LEAST and MOST the bounds of ACTIVE. Jobs of which it is not known
count in UNKNOWN.

--export prints the records as they are, one JSON object a line, with the node's
name: what "gpuslot advise" reads, also of many nodes together.`,
		Example: `  gpuslot usage 12.0
  gpuslot usage --since 7d --by group
  gpuslot usage --since 24h --by job --json
  gpuslot usage --since 31d --egi --site EXAMPLE-LCG2
  gpuslot usage --since 365d --egi --table --site EXAMPLE-LCG2
  gpuslot usage --since 14d --export > $(hostname).jsonl`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return u.run(c)
			}
			for _, name := range []string{"since", "by", "egi", "table", "export", "site"} {
				if c.Flags().Changed(name) {
					return show.Usage(errors.New("--" + name + " does not go with a job"))
				}
			}
			return usageOfJob(c.Context(), c.OutOrStdout(), args[0], u.asJSON)
		},
	}
	s := c.Flags()
	s.StringVar(&u.since, "since", "7d", "count jobs that ended within this `time`, such as 24h or 7d")
	s.StringVar(&u.by, "by", "group", "`what` to sum up by: group, user, job or gpu")
	s.BoolVar(&u.asJSON, "json", false, "print JSON")
	s.BoolVar(&u.egi, "egi", false, "experimental: print accelerator records in the fields of the EGI draft")
	s.BoolVar(&u.asTable, "table", false, "with --egi: a table by month, virtual organisation and model")
	s.BoolVar(&u.exported, "export", false, "print the records, for gpuslot advise")
	s.StringVar(&u.site, "site", "", "the SiteName of --egi, a `name` from GOCDB")
	exclusive(c, "export", "egi")
	exclusive(c, "export", "json")
	exclusive(c, "export", "by")
	return c
}

func (u usageFlags) run(c *cobra.Command) error {
	ago, err := parseAgo(u.since)
	if err != nil {
		return err
	}
	key, ok := usageKeys[u.by]
	switch {
	case !ok:
		return show.Usage(fmt.Errorf("--by is %q; write group, user, job or gpu", u.by))
	case u.egi && u.site == "":
		return needs("--site", "--egi writes it: the site's name in GOCDB")
	case u.asTable && !u.egi:
		return show.Usage(errors.New("--table goes with --egi; without it usage prints a table anyway"))
	}
	cfg, err := loadConfig(c, u.config)
	if err != nil {
		return err
	}
	records, err := history.Records(cfg.Paths, time.Now().Add(-ago))
	if err != nil {
		return unreadable(err, "run it as root on the node whose jobs are asked for")
	}
	return u.print(c.OutOrStdout(), records, key)
}

// print writes the records in the form that was asked for.
func (u usageFlags) print(w io.Writer, records []record.Job, key func(record.Job) string) error {
	switch {
	case u.exported:
		return exportRecords(w, records)
	case u.egi && u.asTable && u.asJSON:
		return show.JSON(w, monthsOf(records))
	case u.egi && u.asTable:
		egiText(w, u.site, monthsOf(records))
		return nil
	case u.egi:
		return printEGI(w, records, u.site)
	}
	sums, total := sumUp(records, key)
	if u.asJSON {
		return show.JSON(w, struct {
			Since string     `json:"since"`
			By    string     `json:"by"`
			Sums  []usageSum `json:"sums"`
			Total usageSum   `json:"total"`
		}{u.since, u.by, sums, total})
	}
	usageText(w, u.by, sums, total)
	return nil
}

// parseAgo reads a duration; days are not among Go's units.
func parseAgo(s string) (time.Duration, error) {
	days, isDays := strings.CutSuffix(s, "d")
	if n, err := strconv.ParseUint(days, 10, 16); isDays && err == nil && n > 0 {
		return time.Duration(n) * 24 * time.Hour, nil
	}
	if d, err := time.ParseDuration(s); err == nil && d > 0 {
		return d, nil
	}
	return 0, show.Usage(fmt.Errorf("--since is %q; write a time such as 24h or 7d", s))
}

func usageText(w io.Writer, by string, sums []usageSum, total usageSum) {
	if len(sums) == 0 {
		fmt.Fprintln(w, "no job ended in that time")
		return
	}
	t := &show.Table{}
	t.Row(strings.ToUpper(by), "JOBS", "HELD", "ALLOCATED/GPUh", "ACTIVE", "LEAST", "MOST", "UNKNOWN", "kWh", "UNKNOWN",
		"VRAM PEAK/MiB")
	for _, s := range append(sums, total) {
		peak := "-"
		if s.PeakMiB != nil {
			peak = show.MiB(*s.PeakMiB)
		}
		t.Row(show.OrDash(s.Key), strconv.Itoa(s.Jobs), strconv.Itoa(s.Held), amount(&s.Allocated), amount(s.Active),
			amount(s.Least), amount(s.Most),
			strconv.Itoa(s.ActiveUnknown), amount(s.KWh), strconv.Itoa(s.EnergyUnknown), peak)
	}
	t.Print(w)
}

// amount prints a number, or a dash for what was not measured.
func amount(v *float64) string {
	if v == nil {
		return "-"
	}
	return strconv.FormatFloat(*v, 'f', 3, 64)
}

// named is a record that says which node it is of.
func named(r record.Job, host string) record.Job {
	if r.Node == "" {
		r.Node = host
	}
	return r
}

// exportRecords writes records as "gpuslot advise" reads them elsewhere.
func exportRecords(w io.Writer, records []record.Job) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	lines := json.NewEncoder(out)
	for _, r := range records {
		if err := lines.Encode(named(r, host)); err != nil {
			return err
		}
	}
	return out.Flush()
}
