package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/simulate/layouts"
	"github.com/gpuslot/gpuslot/mig"
)

func simulateMIGCommand() *cobra.Command {
	o := layouts.Study{Rules: mig.DefaultRules()}
	var asJSON bool
	c := &cobra.Command{
		Use:   "mig",
		Short: "Compare ways to divide GPUs by MIG on a trace of jobs",
		Long: `mig runs jobs on simulated GPUs in MIG mode and compares what they get: static
layouts, among them the one that would have been best for these very jobs;
reflashing a whole GPU when no job runs on it; and gpuslot's repartition = auto,
with and without hysteresis. Nothing of the node is read or changed.

A trace is CSV with a header line of some of arrival, duration (seconds),
profile, vram (MiB), sms; or JSON lines with these keys. A job that names a
profile runs on that one only; one that names VRAM or SMs on any instance with
as much, except that gpuslot, which can split what is idle, gives each job the
smallest. Several traces are run one by one and summed up.

MEAN WAIT and P95 are those of the jobs that started: a policy that never starts
the large ones looks better by it. SMs and MEMORY are the parts that jobs needed
until the last one ended. A job runs equally long on any instance. DISTURBED are
jobs that lost their instance.`,
		Example: `  gpuslot simulate mig --synthetic load=0.5,seed=1
  gpuslot simulate mig --synthetic load=0.65,fit=larger --layout 4g.20gb,3g.20gb
  gpuslot simulate mig --trace jobs.csv --model H100-80 --gpus 4`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			rows, err := o.Compare()
			if err != nil {
				return err
			}
			if asJSON {
				return show.JSON(c.OutOrStdout(), struct {
					Policies []layouts.Row `json:"policies"`
				}{rows})
			}
			layouts.Print(c.OutOrStdout(), rows)
			return nil
		},
	}
	s := c.Flags()
	s.StringArrayVar(&o.Traces, "trace", nil, "a `file` of jobs; may be given again")
	s.StringArrayVar(&o.Synthetic, "synthetic", nil,
		"make `jobs` up, by any of load=0.5,seed=1,jobs=500,minutes=30,fit=exact|larger,most=4,"+
			"mix=small|mixed|large,arrivals=flat|daily|bursts; may be given again")
	s.StringVar(&o.Model, "model", "A100-40", "the `model` of the GPUs")
	s.IntVar(&o.Node.GPUs, "gpus", 1, "the `number` of GPUs")
	s.StringArrayVar(&o.Layouts, "layout", nil,
		"a static `layout` to compare with, one for all GPUs or several behind semicolons; may be given again")
	s.DurationVar(&o.Node.Destroy, "destroy", time.Second, "the `time` to destroy an instance")
	s.DurationVar(&o.Node.Create, "create", time.Second/2, "the `time` to create an instance")
	s.DurationVar(&o.Node.Reset, "reset", 0, "the `time` that reflashing takes besides, if it resets the GPU")
	s.DurationVar(&o.Every, "every", time.Minute, "the `time` between two looks of auto")
	s.DurationVar(&o.Rules.Dwell, "dwell", o.Rules.Dwell, "auto: the `time` that an instance exists at least")
	s.IntVar(&o.Rules.Samples, "samples", o.Rules.Samples,
		"auto: the `number` of looks in a row in which a demand is there")
	s.IntVar(&o.Rules.PerHour, "per-hour", o.Rules.PerHour, "auto: the largest `number` of changes of a GPU in an hour")
	s.DurationVar(&o.Rules.ReserveAfter, "reserve-after", o.Rules.ReserveAfter,
		"auto: the `time` that a job waits before instances are kept free for it; also before reflashing drains a GPU")
	s.StringVar(&o.WriteTrace, "write-trace", "", "also write the only trace to this `file` as CSV")
	s.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
