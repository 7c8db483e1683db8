package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/advise"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/advise/paper"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
	"github.com/gpuslot/gpuslot/gpu"
)

// adviseFlags say what is advised on, and how.
type adviseFlags struct {
	since, changed, risk string
	inventories          []string
	html                 string
	asJSON, all          bool
}

func adviseCommand(f *flags) *cobra.Command {
	var a adviseFlags
	c := &cobra.Command{
		Use:   "advise [FILE...]",
		Short: "Recommend from ended jobs how to share GPUs, with what that would bring",
		Long: `advise reads the records of ended jobs. For each class of jobs it prints how much
VRAM they should ask for, how sure that is, and how many fit a GPU. It says whether
MPS, MIG or whole GPUs serve them and why, and what that would bring. It prints the
lines for gpuslot.toml and the submit files. Where the records are too few it says
"not enough data". After the change it compares before and after.

The records are this node's (run it as root), or those of many nodes in FILEs, which
"gpuslot usage --export" wrote there. Files may be compressed with gzip; "-" is the
standard input. A record that comes twice counts once. A class is the jobs of one
user and group that run the same program on the same number of GPUs, in batches of
the same name. Numbers in names do not count.

REQUEST is the request_vram that at most RISK of all jobs exceed, with 95 %
confidence, however their need is distributed. N is how many jobs run on a GPU by
the advice. PER DAY are jobs in a day of a reserved GPU. docs/advise.md has the
formulae, and what is not known.`,
		Example: `  gpuslot advise --since 14d
  gpuslot advise --since 30d --html advice.html node1.jsonl node2.jsonl.gz
  gpuslot advise --risk 1% --json
  gpuslot advise --since 60d --changed 2026-11-01`,
		RunE: func(c *cobra.Command, files []string) error { return a.run(c, f, files) },
	}
	c.Flags().StringVar(&a.since, "since", "14d", "read jobs that ended within this `time`, such as 24h or 14d")
	c.Flags().StringVar(&a.changed, "changed", "",
		"the `date` since when GPUs are given otherwise, such as 2026-11-01; without it, when jobs began to share GPUs")
	c.Flags().StringVar(&a.risk, "risk", "5%", "the `part` of the jobs that may need more VRAM than is recommended")
	c.Flags().StringArrayVar(&a.inventories, "inventory", nil,
		"a recorded inventory `file` of the nodes that the advice is for, so that their CPUs count; may be given again")
	c.Flags().StringVar(&a.html, "html", "",
		"also write the advice with plots to this `file`, one page that needs nothing else")
	c.Flags().BoolVar(&a.asJSON, "json", false, "print JSON")
	c.Flags().BoolVar(&a.all, "all", false, "print every class, not the ten that reserved most")
	return c
}

func (a *adviseFlags) run(c *cobra.Command, f *flags, files []string) error {
	o, err := a.options(time.Now())
	if err != nil {
		return err
	}
	if o.Config, err = loadConfig(c, f.config); err != nil {
		return err
	}
	adviser := advise.NewAdviser(o)
	if len(files) == 0 {
		err = readOwn(adviser, o.Config.Paths, o.Since)
	} else {
		err = adviser.ReadFiles(c.InOrStdin(), files, c.ErrOrStderr())
	}
	if err != nil {
		return err
	}
	advice := adviser.Advise()
	if a.html != "" {
		text, err := paper.HTML(advice)
		if err != nil {
			return err
		}
		if err := show.WriteText(a.html, text); err != nil {
			return err
		}
		fmt.Fprintf(c.ErrOrStderr(), "%s is written\n", a.html)
	}
	if a.asJSON {
		return show.JSON(c.OutOrStdout(), advice)
	}
	paper.Text(c.OutOrStdout(), advice, a.all)
	return nil
}

// options reads the flags.
func (a *adviseFlags) options(now time.Time) (o advise.Options, err error) {
	ago, err := parseAgo(a.since)
	if err != nil {
		return o, err
	}
	o.Since = now.Add(-ago)
	if o.Risk, err = parseRisk(a.risk); err != nil {
		return o, err
	}
	if a.changed != "" {
		if o.Changed, err = parseDate(a.changed); err != nil {
			return o, err
		}
		if !o.Changed.Before(now) {
			return o, show.Usage(fmt.Errorf("--changed %s is not past yet", a.changed))
		}
	}
	for _, file := range a.inventories {
		inv, err := gpu.ReadInventory(file)
		if err != nil {
			return o, err
		}
		o.Nodes = append(o.Nodes, inv)
	}
	return o, nil
}

// parseRisk reads "5%" or "0.05".
func parseRisk(s string) (float64, error) {
	number, isPercent := strings.CutSuffix(strings.TrimSpace(s), "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if isPercent {
		v /= 100
	}
	if err != nil || v < 0.001 || v > 0.5 {
		return 0, show.Usage(fmt.Errorf("--risk is %q; write a part from 0.1%% to 50%%, such as 5%%", s))
	}
	return v, nil
}

// parseDate reads a day, which begins at midnight here, or an exact time.
func parseDate(s string) (time.Time, error) {
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, show.Usage(fmt.Errorf("--changed is %q; "+
		"write a date such as 2026-11-01, or 2026-11-01T12:00:00+01:00", s))
}

// ownRecords says what to do about records that cannot be read.
func ownRecords(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return show.Hint(err, "run it as root: records name users")
	}
	return err
}

// readOwn takes the records of this node.
func readOwn(adviser *advise.Adviser, paths config.Paths, since time.Time) error {
	records, err := history.Records(paths, since)
	if err != nil {
		return ownRecords(err)
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	for _, r := range records {
		adviser.Add(named(r, host))
	}
	return nil
}
