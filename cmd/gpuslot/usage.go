package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpuslot/gpuslot/agent"
)

func usageCommand(f *flags) *cobra.Command {
	var since, by, site string
	var asJSON, egi, asTable, export bool
	c := &cobra.Command{
		Use:   "usage",
		Short: "Sum up what ended jobs used of the GPUs",
		Long: `usage reads the records of the jobs that ended on this node and sums them up by
accounting group, user, job or GPU. It needs no agent, but root: records name users.

GPU-HOURS are of whole GPUs: ALLOCATED is share times time, ACTIVE the
multiprocessors' time with the bounds LEAST and MOST. A job whose number is not
known adds nothing to that column and one to UNKNOWN. Jobs that ran before the
agent did are counted from its start on.

--egi prints one accelerator record per job in the fields of the EGI draft
(APEL-accelerator-message v0.1): Count is the share, ActiveDuration the active
GPU-seconds divided by it. With --table it sums the same fields up by month,
virtual organisation and model, for a person: COUNT is the mean share, durations
are hours, LEAST and MOST the bounds of ACTIVE; jobs of which it is not known
count in UNKNOWN.

--export prints the records as they are, one JSON object a line, with the node's
name: what "gpuslot advise" reads, also of many nodes together.`,
		Example: `  gpuslot usage --since 7d --by group
  gpuslot usage --since 24h --by job --json
  gpuslot usage --since 31d --egi --site EXAMPLE-LCG2
  gpuslot usage --since 365d --egi --table --site EXAMPLE-LCG2
  gpuslot usage --since 14d --export > $(hostname).jsonl`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ago, err := parseAgo(since)
			if err != nil {
				return err
			}
			key, ok := usageKeys[by]
			if !ok {
				return fmt.Errorf("--by is %q; write group, user, job or gpu", by)
			}
			if egi && site == "" {
				return errors.New("--egi needs --site, the site's name in GOCDB")
			}
			if asTable && !egi {
				return errors.New("--table goes with --egi; without it usage prints a table anyway")
			}
			cfg, err := loadConfig(c, f.config)
			if err != nil {
				return err
			}
			records, err := agent.Records(cfg.Paths, time.Now().Add(-ago))
			if err != nil {
				return unreadable(err, "run it as root on the node whose jobs are asked for")
			}
			if export {
				return exportRecords(c.OutOrStdout(), records)
			}
			sums, total := sumUp(records, key)
			switch {
			case egi && asTable:
				months := monthsOf(records)
				if asJSON {
					return printJSON(c.OutOrStdout(), months)
				}
				egiText(c.OutOrStdout(), site, months)
				return nil
			case egi:
				return printEGI(c.OutOrStdout(), records, site)
			case asJSON:
				return printJSON(c.OutOrStdout(), struct {
					Since string     `json:"since"`
					By    string     `json:"by"`
					Sums  []usageSum `json:"sums"`
					Total usageSum   `json:"total"`
				}{since, by, sums, total})
			}
			usageText(c.OutOrStdout(), by, sums, total)
			return nil
		},
	}
	c.Flags().StringVar(&since, "since", "7d", "count jobs that ended within this `time`, such as 24h or 7d")
	c.Flags().StringVar(&by, "by", "group", "`what` to sum up by: group, user, job or gpu")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().BoolVar(&egi, "egi", false, "print accelerator records in the fields of the EGI draft")
	c.Flags().BoolVar(&asTable, "table", false, "with --egi: a table by month, virtual organisation and model")
	c.Flags().BoolVar(&export, "export", false, "print the records, for gpuslot advise")
	c.MarkFlagsMutuallyExclusive("export", "egi")
	c.MarkFlagsMutuallyExclusive("export", "json")
	c.MarkFlagsMutuallyExclusive("export", "by")
	c.Flags().StringVar(&site, "site", "", "the SiteName of --egi, a `name` from GOCDB")
	return c
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
	return 0, fmt.Errorf("--since is %q; write a time such as 24h or 7d", s)
}

func usageText(w io.Writer, by string, sums []usageSum, total usageSum) {
	if len(sums) == 0 {
		fmt.Fprintln(w, "no job ended in that time")
		return
	}
	t := &table{}
	t.row(strings.ToUpper(by), "JOBS", "HELD", "ALLOCATED/GPUh", "ACTIVE", "LEAST", "MOST", "UNKNOWN", "kWh", "UNKNOWN", "VRAM PEAK/MiB")
	for _, s := range append(sums, total) {
		peak := "-"
		if s.PeakMiB != nil {
			peak = mib(*s.PeakMiB)
		}
		t.row(orDash(s.Key), strconv.Itoa(s.Jobs), strconv.Itoa(s.Held), amount(&s.Allocated), amount(s.Active), amount(s.Least), amount(s.Most),
			strconv.Itoa(s.ActiveUnknown), amount(s.KWh), strconv.Itoa(s.EnergyUnknown), peak)
	}
	t.print(w)
}

// amount prints a number, or a dash for what nobody measured.
func amount(v *float64) string {
	if v == nil {
		return "-"
	}
	return strconv.FormatFloat(*v, 'f', 3, 64)
}
