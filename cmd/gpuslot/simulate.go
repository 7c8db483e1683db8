package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/simulate"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/simulate/layouts"
	"github.com/gpuslot/gpuslot/mig"
)

func simulateCommand() *cobra.Command {
	var o simulate.Study
	m := layouts.Study{Rules: mig.DefaultRules(), Every: time.Minute}
	m.Node.Destroy, m.Node.Create = time.Second, time.Second/2
	var seed uint64
	var asJSON bool
	var html string
	c := &cobra.Command{
		Use:   "simulate [POOL]",
		Short: "Replay jobs on a pool, or on GPUs with MIG layouts, under several policies",
		Long: `simulate replays a stream of jobs on a pool of nodes, once for each policy, and
shows them side by side: what sharing would gain before anything is changed.
With --trace or --synthetic instead of POOL it compares MIG layouts on one node.
Nothing of the node is read or changed, and no GPU is needed.

POOL is a file of a few lines that says how many nodes there are of which GPUs.
The jobs are records (gpuslot usage --export), what condor_history -json prints, or a file
(.toml) of classes of jobs that are made up. Each kind of node is planned as its
agent would plan it. How jobs slow each other down is a model, whose formulae
and limits are in docs/simulate.md; --bench takes its losses from gpuslot bench.

Policies are exclusive (a job has whole GPUs), time-slicing (shared without MPS),
mps (shared through MPS, with VRAM pools), static-mig and dynamic-mig (layouts
follow the work that waits). POOL may have more. With mixed each group of nodes has
its own configuration.

All policies get the same jobs, those that each of them has a slot for.

DONE      jobs that ended, of those; LEFT OUT: how many of all fit no slot
FULL LOAD jobs an hour while others waited
GAIN      work done then by that under the first policy, with its bounds: work is
          what the jobs take alone on their GPUs
WAIT      from submission to start: mean, median and 95th percentile
RUN       from start to end: longer where jobs share
GPUS      part of the GPUs with a job; SMS of their multiprocessors at work;
          VRAM of their memory given to jobs
UNUSED    memory that no running job asked for, although jobs waited
ENERGY    kJ/JOB by the first policy's, with its bounds

A trace for MIG layouts is CSV with a header line of some of arrival, duration
(seconds), profile, vram (MiB), sms; or JSON lines with these keys. A job that
names a profile runs on that one only; one that names VRAM or SMs runs on any
instance with as much. Compared are static layouts, among them the best one for
these jobs; reflashing a whole GPU when no job runs on it; and gpuslot's
repartition = auto, with and without hysteresis. MEAN WAIT and P95 are those of
the jobs that started, so a policy that never starts the large ones looks better
by it. SMs and MEMORY are the parts that jobs needed until the last one ended.
DISTURBED are jobs that lost their instance.

Ctrl-C ends the runs and prints what is known so far.`,
		Example: `  gpuslot simulate docs/examples/simulate/kit.toml --jobs docs/examples/simulate/kit-jobs.toml
  condor_history -json -completedsince 1700000000 > jobs.json; gpuslot simulate pool.toml --jobs jobs.json
  gpuslot usage --export > jobs.jsonl; gpuslot simulate pool.toml --jobs jobs.jsonl --policy exclusive,mps --shares 6
  gpuslot simulate --synthetic load=0.65,fit=larger --layout 4g.20gb,3g.20gb
  gpuslot simulate --trace jobs.csv --model H100-80 --gpus 4`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := oneSimulation(c, args); err != nil {
				return err
			}
			if len(args) == 0 {
				return compareLayouts(c.OutOrStdout(), m, asJSON)
			}
			if o.Pool = args[0]; c.Flags().Changed("seed") {
				o.Seed = &seed
			}
			results, err := o.Run(c.Context(), c.InOrStdin(), c.ErrOrStderr())
			switch {
			case err != nil && results == nil:
				return err
			case asJSON:
				return errors.Join(err, show.JSON(c.OutOrStdout(), struct {
					Policies []simulate.Result `json:"policies"`
				}{results}))
			}
			simulate.Print(c.OutOrStdout(), results)
			if html == "" {
				return err
			}
			page, pageErr := simulate.HTML(results)
			if pageErr == nil {
				pageErr = show.WriteText(html, page)
			}
			return errors.Join(err, pageErr)
		},
	}
	s := c.Flags()
	s.StringArrayVar(&o.Jobs, "jobs", nil, "a `file` of jobs, which may be compressed with gzip; "+
		"records and histories may be given again, \"-\" is the standard input")
	s.StringSliceVar(&o.Policies, "policy", nil,
		"the `policies` to compare; gains refer to the first; without it all that the pool allows")
	s.IntVar(&o.Shares, "shares", 0, "how many `jobs` share a GPU with time-slicing and mps; 0: "+
		"as POOL says, or as the plan chooses")
	s.Float64Var(&o.Days, "days", 0, "end synthetic jobs after so many `days`; 0: as their file says")
	s.Uint64Var(&seed, "seed", 0, "another `seed` of synthetic jobs than that of their file")
	s.StringVar(&o.Bench, "bench", "", "a `result` of gpuslot bench: "+
		"the losses of sharing, and the work of jobs whose own is not known")
	s.Float64Var(&o.Margin, "margin", 1.2, "request_vram of a recorded job that had none is so many `times` its peak")
	s.Float64Var(&o.Dead, "dead-time", 0, "`seconds` in which a recorded job holds its slot without CPUs or GPU")
	s.BoolVar(&asJSON, "json", false, "print JSON")
	s.StringVar(&html, "html", "", "also write a page with plots to this `file`")
	exclusive(c, "json", "html")
	s.StringArrayVar(&m.Traces, "trace", nil, "compare MIG layouts on a `file` of jobs; may be given again")
	s.StringArrayVar(&m.Synthetic, "synthetic", nil,
		"compare MIG layouts on made-up `jobs`, by any of load=0.5,seed=1,jobs=500,minutes=30,fit=exact|larger,most=4,"+
			"mix=small|mixed|large,arrivals=flat|daily|bursts; may be given again")
	s.StringVar(&m.Model, "model", "A100-40", "MIG layouts: the `model` of the GPUs")
	s.IntVar(&m.Node.GPUs, "gpus", 1, "MIG layouts: the `number` of GPUs")
	s.StringArrayVar(&m.Layouts, "layout", nil, "MIG layouts: a static `layout` to compare with, one for all GPUs or "+
		"several behind semicolons; may be given again")
	s.StringVar(&m.WriteTrace, "write-trace", "", "MIG layouts: also write the only trace to this `file` as CSV")
	return c
}

// oneSimulation rejects flags of a pool without one, and those of MIG layouts with one.
func oneSimulation(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		if !c.Flags().Changed("trace") && !c.Flags().Changed("synthetic") {
			return show.Usage(show.Hint(errors.New("there is nothing to simulate"),
				"name a POOL file, or jobs for MIG layouts with --trace or --synthetic"))
		}
		for _, name := range []string{"jobs", "policy", "shares", "days", "seed", "bench", "margin", "dead-time", "html"} {
			if c.Flags().Changed(name) {
				return show.Usage(fmt.Errorf("--%s needs a POOL file", name))
			}
		}
		return nil
	}
	for _, name := range []string{"trace", "synthetic", "model", "gpus", "layout", "write-trace"} {
		if c.Flags().Changed(name) {
			return show.Usage(fmt.Errorf("--%s compares MIG layouts, which takes no POOL file", name))
		}
	}
	return nil
}

// compareLayouts prints what each way to divide GPUs by MIG gives the jobs of traces.
func compareLayouts(w io.Writer, m layouts.Study, asJSON bool) error {
	if _, err := mig.Model(m.Model, 0); err != nil {
		return show.Usage(err)
	}
	for _, text := range m.Synthetic {
		if _, err := layouts.ParseSynthetic(text); err != nil {
			return show.Usage(err)
		}
	}
	rows, err := m.Compare()
	if err != nil {
		return err
	}
	if asJSON {
		return show.JSON(w, struct {
			Policies []layouts.Row `json:"policies"`
		}{rows})
	}
	layouts.Print(w, rows)
	return nil
}
