package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/simulate"
)

func simulateCommand() *cobra.Command {
	var o simulate.Study
	var seed uint64
	var asJSON bool
	c := &cobra.Command{
		Use:   "simulate POOL",
		Short: "Replay jobs on a pool under several ways to share its GPUs",
		Long: `simulate replays a stream of jobs on a pool of nodes, once for each policy, and
shows them side by side: what sharing would gain before anything is changed.
Nothing of the node is read or changed, and no GPU is needed.

POOL is a file of a few lines that says how many nodes there are of which GPUs.
The jobs are records (gpuslot usage --export), what condor_history -json prints, or a file
(.toml) of classes of jobs that are made up. Each kind of node is planned as its
agent would plan it. How jobs slow each other down is a model, whose formulae
and limits docs/simulate.md tells; --bench takes its losses from gpuslot bench.

Policies are exclusive (a job has whole GPUs), time-slicing (shared without MPS),
mps (shared through MPS, with VRAM pools), static-mig, dynamic-mig (layouts
follow the work that waits), mixed (the configuration of each group of nodes),
and those that POOL has.

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

Ctrl-C ends the runs and prints what is known so far.`,
		Example: `  gpuslot simulate docs/examples/simulate/kit.toml --jobs docs/examples/simulate/kit-jobs.toml
  condor_history -json -completedsince 1700000000 > jobs.json; gpuslot simulate pool.toml --jobs jobs.json
  gpuslot usage --export > jobs.jsonl; gpuslot simulate pool.toml --jobs jobs.jsonl --policy exclusive,mps --shares 6`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
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
			return err
		},
	}
	s := c.Flags()
	s.StringArrayVar(&o.Jobs, "jobs", nil, "a `file` of jobs, which may be compressed with gzip; "+
		"records and histories may be given again, \"-\" is the standard input")
	s.StringSliceVar(&o.Policies, "policy", nil,
		"the `policies` to compare, the first one is what gains refer to; all that the pool allows if not given")
	s.IntVar(&o.Shares, "shares", 0, "how many `jobs` share a GPU with time-slicing and mps; 0: "+
		"as POOL says, or as the plan chooses")
	s.Float64Var(&o.Days, "days", 0, "end synthetic jobs after so many `days`; 0: as their file says")
	s.Uint64Var(&seed, "seed", 0, "another `seed` of synthetic jobs than that of their file")
	s.StringVar(&o.Bench, "bench", "", "a `result` of gpuslot bench: "+
		"the losses of sharing, and the work of jobs that tell nothing of theirs")
	s.Float64Var(&o.Margin, "margin", 1.2, "request_vram of a recorded job that had none is so many `times` its peak")
	s.Float64Var(&o.Dead, "dead-time", 0, "`seconds` in which a recorded job holds its slot without CPUs or GPU")
	s.BoolVar(&asJSON, "json", false, "print JSON")
	c.AddCommand(simulateMIGCommand())
	return c
}
