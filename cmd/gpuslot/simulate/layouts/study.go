package layouts

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
	"github.com/gpuslot/gpuslot/mig"
)

// Study is what to compare.
type Study struct {
	// Traces are files of jobs, Synthetic what ParseSynthetic reads.
	Traces    []string
	Synthetic []string
	// Model is that of the GPUs; Node's chip follows from it.
	Model string
	Node  Node
	// Layouts are static ones to compare with.
	Layouts []string
	// Rules are those of repartition = auto, Every the time between two looks.
	Rules mig.Rules
	Every time.Duration
	// WriteTrace is a file for the only trace; empty for none.
	WriteTrace string
}

// Compare reads the traces and runs every policy on them.
func (s *Study) Compare() ([]Row, error) {
	chip, err := mig.Model(s.Model, 0)
	if err != nil {
		return nil, err
	}
	s.Node.Chip = Plain(chip)
	traces, err := s.read()
	if err != nil {
		return nil, err
	}
	if err := s.write(traces); err != nil {
		return nil, err
	}
	var policies []Policy
	for _, l := range s.Layouts {
		policies = append(policies, Layout{Text: l})
	}
	best, err := BestStatic(s.Node, traces)
	if err != nil {
		return nil, err
	}
	policies = append(append(policies, best), Usual(best, s.Rules, s.Every)...)
	return Compare(s.Node, traces, policies)
}

// read reads the traces, or makes them.
func (s *Study) read() (traces []Trace, err error) {
	for _, path := range s.Traces {
		t, err := readTrace(path)
		if err != nil {
			return nil, err
		}
		traces = append(traces, t)
	}
	for _, text := range s.Synthetic {
		made, err := ParseSynthetic(text)
		if err != nil {
			return nil, err
		}
		t, err := made.Trace(s.Node.Chip, s.Node.GPUs)
		if err != nil {
			return nil, err
		}
		traces = append(traces, t)
	}
	if len(traces) == 0 {
		return nil, show.Hint(errors.New("there is no trace"),
			"--trace names a file of jobs, --synthetic load=0.5,seed=1 makes some up")
	}
	return traces, nil
}

func readTrace(path string) (Trace, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	t, err := ReadTrace(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// write keeps a trace that was made up.
func (s *Study) write(traces []Trace) error {
	if s.WriteTrace == "" {
		return nil
	}
	if len(traces) != 1 {
		return errors.New("--write-trace writes one trace; give --trace or --synthetic once")
	}
	return show.WriteFile(s.WriteTrace, traces[0].WriteCSV)
}
