package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/simulate/layouts"
	"github.com/gpuslot/gpuslot/mig"
)

// simulateFlags say what is simulated.
type simulateFlags struct {
	traces     []string
	synthetic  []string
	model      string
	layouts    []string
	node       layouts.Node
	every      time.Duration
	writeTrace string
	rules      mig.Rules
}

func simulateMIGCommand() *cobra.Command {
	f := simulateFlags{rules: mig.DefaultRules()}
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
			rows, err := f.compare()
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
	s.StringArrayVar(&f.traces, "trace", nil, "a `file` of jobs; may be given again")
	s.StringArrayVar(&f.synthetic, "synthetic", nil, "make `jobs` up, by any of load=0.5,seed=1,jobs=500,minutes=30,fit=exact|larger,most=4; may be given again")
	s.StringVar(&f.model, "model", "A100-40", "the `model` of the GPUs")
	s.IntVar(&f.node.GPUs, "gpus", 1, "the `number` of GPUs")
	s.StringArrayVar(&f.layouts, "layout", nil, "a static `layout` to compare with, one for all GPUs or several behind semicolons; may be given again")
	s.DurationVar(&f.node.Destroy, "destroy", time.Second, "the `time` to destroy an instance")
	s.DurationVar(&f.node.Create, "create", time.Second/2, "the `time` to create an instance")
	s.DurationVar(&f.node.Reset, "reset", 0, "the `time` that reflashing takes besides, if it resets the GPU")
	s.DurationVar(&f.every, "every", time.Minute, "the `time` between two looks of auto")
	s.DurationVar(&f.rules.Dwell, "dwell", f.rules.Dwell, "auto: the `time` that an instance exists at least")
	s.IntVar(&f.rules.Samples, "samples", f.rules.Samples, "auto: the `number` of looks in a row in which a demand is there")
	s.IntVar(&f.rules.PerHour, "per-hour", f.rules.PerHour, "auto: the largest `number` of changes of a GPU in an hour")
	s.DurationVar(&f.rules.ReserveAfter, "reserve-after", f.rules.ReserveAfter, "auto: the `time` that a job waits before instances are kept free for it; also before reflashing drains a GPU")
	s.StringVar(&f.writeTrace, "write-trace", "", "also write the only trace to this `file` as CSV")
	s.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// compare runs everything.
func (f *simulateFlags) compare() ([]layouts.Row, error) {
	chip, err := mig.Model(f.model, 0)
	if err != nil {
		return nil, err
	}
	f.node.Chip = layouts.Plain(chip)
	traces, err := f.read()
	if err != nil {
		return nil, err
	}
	if err := f.write(traces); err != nil {
		return nil, err
	}
	var policies []layouts.Policy
	for _, l := range f.layouts {
		policies = append(policies, layouts.Layout{Text: l})
	}
	best, err := layouts.BestStatic(f.node, traces)
	if err != nil {
		return nil, err
	}
	policies = append(append(policies, best), layouts.Usual(best, f.rules, f.every)...)
	return layouts.Compare(f.node, traces, policies)
}

// read reads the traces, or makes them.
func (f *simulateFlags) read() (traces []layouts.Trace, err error) {
	for _, path := range f.traces {
		t, err := readTrace(path)
		if err != nil {
			return nil, err
		}
		traces = append(traces, t)
	}
	for _, text := range f.synthetic {
		s, err := layouts.ParseSynthetic(text)
		if err != nil {
			return nil, err
		}
		t, err := s.Trace(f.node.Chip, f.node.GPUs)
		if err != nil {
			return nil, err
		}
		traces = append(traces, t)
	}
	if len(traces) == 0 {
		return nil, show.Hint(errors.New("there is no trace"), "--trace names a file of jobs, --synthetic load=0.5,seed=1 makes some up")
	}
	return traces, nil
}

func readTrace(path string) (layouts.Trace, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	t, err := layouts.ReadTrace(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// write keeps a trace that was made up.
func (f *simulateFlags) write(traces []layouts.Trace) error {
	if f.writeTrace == "" {
		return nil
	}
	if len(traces) != 1 {
		return errors.New("--write-trace writes one trace; give --trace or --synthetic once")
	}
	file, err := os.Create(f.writeTrace)
	if err != nil {
		return err
	}
	return errors.Join(traces[0].WriteCSV(file), file.Close())
}
