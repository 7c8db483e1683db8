package simulate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sort"
	"strings"

	"github.com/gpuslot/gpuslot/agent/record"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/bench"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

// Study is what to simulate.
type Study struct {
	// Pool is the pool's file. Jobs are files of records and histories, "-" is
	// standard input, or one .toml file of classes of jobs.
	Pool string
	Jobs []string
	// Bench is a result of gpuslot bench, empty for none.
	Bench string
	// Policies are names, all that the pool allows if there are none. Shares is how
	// many jobs share a GPU; 0: as the pool or the plan says.
	Policies []string
	Shares   int
	// Days end synthetic jobs; 0: as their file says. Seed replaces their file's.
	Days float64
	Seed *uint64
	// Margin, 1 to 100, times its peak is the request of a recorded job without one.
	// Dead is the time in seconds in which a recorded job holds its slot idle.
	Margin, Dead float64
}

// Run reads everything and runs every policy. It writes warnings and progress to
// stderr. After an interruption there are results beside the error.
func (s Study) Run(ctx context.Context, stdin io.Reader, stderr io.Writer) ([]Result, error) {
	if !(s.Margin >= 1 && s.Margin <= 100 && s.Dead >= 0) { // NaN is neither
		return nil, fmt.Errorf("--margin %v, --dead-time %v: they are 1 to 100, and 0 or more", s.Margin, s.Dead)
	}
	file, err := OpenPool(s.Pool)
	if err != nil {
		return nil, err
	}
	if err := s.calibrate(&file, stderr); err != nil {
		return nil, err
	}
	policies, err := s.chosen(file, stderr)
	if err != nil {
		return nil, err
	}
	source, scale, err := s.source(file, stdin, stderr)
	if err != nil {
		return nil, err
	}
	if err := file.layOut(ctx, policies, source); err != nil {
		return nil, err
	}
	told := NewReport(stderr, policies, scale)
	results, err := Compare(ctx, file.Pool, policies, source, told.Watch)
	told.End()
	switch {
	case errors.Is(err, context.Canceled):
		results = append([]Result{}, results...) // not nil: they are to be printed
		err = errors.New("interrupted: this is what was simulated until then")
	case err != nil:
		return nil, err
	}
	return results, err
}

// calibrate takes the model from a benchmark.
func (s Study) calibrate(file *File, stderr io.Writer) error {
	if s.Bench == "" {
		return nil
	}
	r, err := bench.Read(s.Bench)
	if err != nil {
		return err
	}
	model, work, notes, err := Calibrate(r, file.Pool.Model, file.Work)
	if err != nil {
		return fmt.Errorf("%s: %w", s.Bench, err)
	}
	file.Pool.Model, file.Work = model, work
	file.Work.Seconds, file.Work.Dead = 0, 0
	fmt.Fprintf(stderr, "%s: losses %.1f %% in time slices, %.1f %% with MPS, %.1f %% on MIG devices; "+
		"kernels %.0f %% of the time, on %.0f %% of the SMs\n",
		s.Bench, 100*model.Slicing, 100*model.MPS, 100*model.MIG, 100*work.Kernel, 100*work.SM)
	for _, n := range notes {
		fmt.Fprintf(stderr, "%s: %s\n", s.Bench, n)
	}
	return nil
}

// chosen are the policies to compare.
func (s Study) chosen(file File, stderr io.Writer) ([]Policy, error) {
	if s.Shares < 0 || s.Shares > 60 {
		return nil, fmt.Errorf("--shares %d: it is 1 to 60, or 0", s.Shares)
	}
	if len(s.Policies) == 0 {
		usual, err := file.Usual(s.Shares)
		has := func(name string) bool {
			return slices.ContainsFunc(usual, func(p Policy) bool { return p.Name == name })
		}
		if has("static-mig") && !has("dynamic-mig") {
			show.Warn(stderr, []string{"dynamic-mig is left out, since it takes minutes on so many nodes; " +
				"--policy dynamic-mig runs it"})
		}
		return usual, err
	}
	all, err := file.Named(s.Shares)
	if err != nil {
		return nil, err
	}
	var out []Policy
	for _, name := range s.Policies {
		i := slices.IndexFunc(all, func(p Policy) bool { return p.Name == name })
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

// source gives each policy the same jobs; done is how much of them a run has seen, 0 to
// 1.
func (s Study) source(file File, stdin io.Reader, stderr io.Writer) (jobs func() Jobs,
	done func(Progress) float64, err error) {
	made := slices.ContainsFunc(s.Jobs, func(name string) bool { return strings.HasSuffix(name, ".toml") })
	switch {
	case len(s.Jobs) == 0:
		return nil, nil, show.Hint(errors.New("there are no jobs"),
			"--jobs names records, what condor_history -json printed, or a .toml file of classes of jobs")
	case made && len(s.Jobs) > 1:
		return nil, nil, errors.New("--jobs: a .toml file of classes of jobs stands alone")
	case made:
		return s.synthetic(file)
	}
	recorded, err := s.recorded(file, stdin)
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
		return nil, nil, fmt.Errorf("%s: no GPU job that ran", strings.Join(s.Jobs, ", "))
	}
	n := float64(len(recorded.Jobs))
	return func() Jobs { return List(recorded.Jobs...) }, func(p Progress) float64 { return float64(p.Ended) / n }, nil
}

// jobsFile is a file of jobs under its name, compressed or not.
type jobsFile struct {
	io.Reader
	name string
}

// Name is for errors.
func (f jobsFile) Name() string { return f.name }

func (s Study) recorded(file File, stdin io.Reader) (Recorded, error) {
	var files []io.Reader
	for _, name := range s.Jobs {
		from := stdin
		if name != "-" {
			opened, err := os.Open(name)
			if err != nil {
				return Recorded{}, err
			}
			defer opened.Close()
			from = opened
		}
		text, err := record.Uncompressed(from)
		if err != nil {
			return Recorded{}, fmt.Errorf("%s: %w", name, err)
		}
		files = append(files, jobsFile{text, name})
	}
	return ReadJobs(Reading{Work: file.Work, Margin: s.Margin, Dead: s.Dead}, files...)
}

func (s Study) synthetic(file File) (func() Jobs, func(Progress) float64, error) {
	made, err := OpenSynthetic(s.Jobs[0], file.Work)
	if err != nil {
		return nil, nil, err
	}
	if s.Days != 0 {
		made.Days = s.Days
	}
	if s.Seed != nil {
		made.Seed = *s.Seed
	}
	if err := made.Check(); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", s.Jobs[0], err)
	}
	return made.Jobs, func(p Progress) float64 { return float64(p.Ended) / max(1, made.Expected()) }, nil
}
