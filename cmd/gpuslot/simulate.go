package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sort"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpuslot/gpuslot/agent/record"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/bench"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/simulate"
)

// poolFlags say what is simulated.
type poolFlags struct {
	jobs     []string
	bench    string
	policies []string
	shares   int
	days     float64
	margin   float64
	dead     float64
	seed     uint64
	seeded   bool
	asJSON   bool
}

func simulateCommand() *cobra.Command {
	var f poolFlags
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

DONE      jobs that ended, of all; the rest fits no slot, or never got one
FULL LOAD jobs an hour while others waited; GAIN is its ratio to the first policy
WAIT      from submission to start: mean, median and 95th percentile
RUN       from start to end: longer where jobs share
GPUS      part of the GPUs with a job; SMS of their multiprocessors at work;
          VRAM of their memory given to jobs
UNUSED    memory that no running job asked for, although jobs waited
ENERGY    kJ/JOB against the first policy's

Ctrl-C ends the runs and prints what is known so far.`,
		Example: `  gpuslot simulate docs/examples/simulate/kit.toml --jobs docs/examples/simulate/kit-jobs.toml
  condor_history -json -completedsince 1700000000 > jobs.json; gpuslot simulate pool.toml --jobs jobs.json
  gpuslot usage --export > jobs.jsonl; gpuslot simulate pool.toml --jobs jobs.jsonl --policy exclusive,mps --shares 6`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			f.seeded = c.Flags().Changed("seed")
			return f.run(c, args[0])
		},
	}
	s := c.Flags()
	s.StringArrayVar(&f.jobs, "jobs", nil, "a `file` of jobs, which may be compressed with gzip; records and histories may be given again, \"-\" is the standard input")
	s.StringSliceVar(&f.policies, "policy", nil, "the `policies` to compare, the first one is what gains refer to; all that the pool allows if not given")
	s.IntVar(&f.shares, "shares", 0, "how many `jobs` share a GPU with time-slicing and mps; 0: as POOL says, or as the plan chooses")
	s.Float64Var(&f.days, "days", 0, "end synthetic jobs after so many `days`; 0: as their file says")
	s.Uint64Var(&f.seed, "seed", 0, "another `seed` of synthetic jobs than that of their file")
	s.StringVar(&f.bench, "bench", "", "a `result` of gpuslot bench: the losses of sharing, and the work of jobs that tell nothing of theirs")
	s.Float64Var(&f.margin, "margin", 1.2, "request_vram of a recorded job that had none is so many `times` its peak")
	s.Float64Var(&f.dead, "dead-time", 0, "`seconds` in which a recorded job holds its slot without CPUs or GPU")
	s.BoolVar(&f.asJSON, "json", false, "print JSON")
	c.AddCommand(simulateMIGCommand())
	return c
}

// run reads everything, runs and prints.
func (f *poolFlags) run(c *cobra.Command, path string) error {
	out, stderr := c.OutOrStdout(), c.ErrOrStderr()
	if !(f.margin >= 1 && f.margin <= 100 && f.dead >= 0) { // NaN is neither
		return fmt.Errorf("--margin %v, --dead-time %v: they are 1 to 100, and 0 or more", f.margin, f.dead)
	}
	file, err := simulate.OpenPool(path)
	if err != nil {
		return err
	}
	if err := f.calibrate(&file, stderr); err != nil {
		return err
	}
	policies, err := f.chosen(file, stderr)
	if err != nil {
		return err
	}
	source, scale, err := f.source(file, c.InOrStdin(), stderr)
	if err != nil {
		return err
	}
	told := simulate.NewReport(stderr, policies, scale)
	results, err := simulate.Compare(c.Context(), file.Pool, policies, source, told.Watch)
	told.End()
	switch {
	case errors.Is(err, context.Canceled):
		err = errors.New("interrupted: this is what was simulated until then")
	case err != nil:
		return err
	}
	if f.asJSON {
		return errors.Join(err, show.JSON(out, struct {
			Policies []simulate.Result `json:"policies"`
		}{results}))
	}
	simulate.Print(out, results)
	return err
}

// calibrate takes the model from a benchmark.
func (f *poolFlags) calibrate(file *simulate.File, stderr io.Writer) error {
	if f.bench == "" {
		return nil
	}
	r, err := bench.Read(f.bench)
	if err != nil {
		return err
	}
	model, work, notes, err := simulate.Calibrate(r, file.Pool.Model, file.Work)
	if err != nil {
		return fmt.Errorf("%s: %w", f.bench, err)
	}
	file.Pool.Model, file.Work = model, work
	file.Work.Seconds, file.Work.Dead = 0, 0
	fmt.Fprintf(stderr, "%s: losses %.1f %% in time slices, %.1f %% with MPS, %.1f %% on MIG devices; kernels %.0f %% of the time, on %.0f %% of the SMs\n",
		f.bench, 100*model.Slicing, 100*model.MPS, 100*model.MIG, 100*work.Kernel, 100*work.SM)
	for _, n := range notes {
		fmt.Fprintf(stderr, "%s: %s\n", f.bench, n)
	}
	return nil
}

// chosen are the policies to compare.
func (f *poolFlags) chosen(file simulate.File, stderr io.Writer) ([]simulate.Policy, error) {
	if f.shares < 0 || f.shares > 60 {
		return nil, fmt.Errorf("--shares %d: it is 1 to 60, or 0", f.shares)
	}
	if len(f.policies) == 0 {
		usual, err := file.Usual(f.shares)
		has := func(name string) bool {
			return slices.ContainsFunc(usual, func(p simulate.Policy) bool { return p.Name == name })
		}
		if has("static-mig") && !has("dynamic-mig") {
			show.Warn(stderr, []string{"dynamic-mig is left out, since it takes minutes on so many nodes; --policy dynamic-mig runs it"})
		}
		return usual, err
	}
	all, err := file.Named(f.shares)
	if err != nil {
		return nil, err
	}
	var out []simulate.Policy
	for _, name := range f.policies {
		i := slices.IndexFunc(all, func(p simulate.Policy) bool { return p.Name == name })
		if i < 0 {
			var names []string
			for _, p := range all {
				names = append(names, p.Name)
			}
			return nil, fmt.Errorf("there is no policy %q; there are %s", name, strings.Join(names, ", "))
		}
		out = append(out, all[i])
	}
	return out, nil
}

// source gives each policy the same jobs; done tells how much of them a run has seen, 0 to
// 1.
func (f *poolFlags) source(file simulate.File, stdin io.Reader, stderr io.Writer) (jobs func() simulate.Jobs, done func(simulate.Progress) float64, err error) {
	made := slices.ContainsFunc(f.jobs, func(name string) bool { return strings.HasSuffix(name, ".toml") })
	switch {
	case len(f.jobs) == 0:
		return nil, nil, show.Hint(errors.New("there are no jobs"), "--jobs names records, what condor_history -json printed, or a .toml file of classes of jobs")
	case made && len(f.jobs) > 1:
		return nil, nil, errors.New("--jobs: a .toml file of classes of jobs stands alone")
	case made:
		return f.synthetic(file)
	}
	recorded, err := f.recorded(file, stdin)
	if err != nil {
		return nil, nil, err
	}
	var reasons []string
	for why, n := range recorded.Skipped {
		reasons = append(reasons, fmt.Sprintf("%d entries left out: %s", n, why))
	}
	sort.Strings(reasons)
	show.Warn(stderr, reasons)
	if len(recorded.Jobs) == 0 {
		return nil, nil, fmt.Errorf("%s: no GPU job that ran", strings.Join(f.jobs, ", "))
	}
	n := float64(len(recorded.Jobs))
	return func() simulate.Jobs { return simulate.List(recorded.Jobs...) }, func(p simulate.Progress) float64 { return float64(p.Ended) / n }, nil
}

// jobsFile is a file of jobs under its name, compressed or not.
type jobsFile struct {
	io.Reader
	name string
}

// Name is for errors.
func (f jobsFile) Name() string { return f.name }

func (f *poolFlags) recorded(file simulate.File, stdin io.Reader) (simulate.Recorded, error) {
	var files []io.Reader
	for _, name := range f.jobs {
		from := stdin
		if name != "-" {
			opened, err := os.Open(name)
			if err != nil {
				return simulate.Recorded{}, err
			}
			defer opened.Close()
			from = opened
		}
		text, err := record.Uncompressed(from)
		if err != nil {
			return simulate.Recorded{}, fmt.Errorf("%s: %w", name, err)
		}
		files = append(files, jobsFile{text, name})
	}
	return simulate.ReadJobs(simulate.Reading{Work: file.Work, Margin: f.margin, Dead: f.dead}, files...)
}

func (f *poolFlags) synthetic(file simulate.File) (func() simulate.Jobs, func(simulate.Progress) float64, error) {
	s, err := simulate.OpenSynthetic(f.jobs[0], file.Work)
	if err != nil {
		return nil, nil, err
	}
	if f.days != 0 {
		s.Days = f.days
	}
	if f.seeded {
		s.Seed = f.seed
	}
	if err := s.Check(); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", f.jobs[0], err)
	}
	return s.Jobs, func(p simulate.Progress) float64 { return float64(p.Ended) / max(1, s.Expected()) }, nil
}
