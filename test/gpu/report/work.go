package report

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/bench"
)

// workFile stands beside the result that it belongs to.
const workFile = "work.json"

// Work is what the copies of one run told of their work, without their start:
// the process, imports, the context. gpuslot bench knows only the whole.
type Work struct {
	Mode    bench.Mode `json:"mode"`
	Profile string     `json:"profile,omitempty"`
	Copies  int        `json:"copies"`
	Repeat  int        `json:"repeat"`
	// Seconds from the first copy's first step to the last one's end.
	Seconds float64 `json:"seconds"`
	// Each is how long each copy worked.
	Each []float64 `json:"each"`
}

// starts are the steps that are no work.
var starts = []string{"cuInit", "context", "eof"}

// worked reads when the work of a copy began and ended, in seconds since 1970;
// false where it tells nothing of it.
func worked(log string) (began, ended float64, ok bool) {
	f, err := os.Open(log)
	if err != nil {
		return 0, 0, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var step struct {
			Step   string
			MS, At float64
		}
		if json.Unmarshal(lines.Bytes(), &step) != nil || step.At <= 0 || slices.Contains(starts, step.Step) {
			continue
		}
		if from := step.At - step.MS/1000; !ok || from < began {
			began = from
		}
		ended, ok = max(ended, step.At), true
	}
	return began, ended, ok && ended > began
}

// KeepWork reads the copies' output below dir, as gpuslot bench left it, and keeps
// what it tells of their work. Runs of which a copy tells nothing are left out.
func KeepWork(dir string, r bench.Result) error {
	all := []Work{}
	for _, run := range r.Runs {
		w := Work{Mode: run.Mode, Profile: run.Profile, Copies: run.Copies, Repeat: run.Repeat}
		var first, last float64
		for i := range run.Jobs {
			name := fmt.Sprintf("%s%s-%d-repeat%d-copy%d.log", run.Mode, strings.ReplaceAll(run.Profile, ".", ""), run.Copies, run.Repeat, i)
			began, ended, ok := worked(filepath.Join(dir, "logs", name))
			if !ok {
				break
			}
			if i == 0 || began < first {
				first = began
			}
			last, w.Each = max(last, ended), append(w.Each, ended-began)
		}
		if w.Seconds = last - first; len(w.Each) == len(run.Jobs) && len(run.Failures()) == 0 {
			all = append(all, w)
		}
	}
	b, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, workFile), append(b, '\n'), 0o644)
}

// readWork reads what KeepWork kept; nothing where it did not.
func readWork(dir string) ([]Work, error) {
	b, err := os.ReadFile(filepath.Join(dir, workFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all []Work
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, workFile), err)
	}
	return all, nil
}

// workOf are the spreads of one point: of each copy's work, and of how many
// copies' work there was in a second.
func workOf(all []Work, p bench.Point) (each, rate bench.Spread, ok bool) {
	var seconds, rates []float64
	for _, w := range all {
		if w.Mode == p.Mode && w.Profile == p.Profile && w.Copies == p.Copies && w.Seconds > 0 {
			seconds = append(seconds, w.Each...)
			rates = append(rates, float64(w.Copies)/w.Seconds)
		}
	}
	each, ok = bench.SpreadOf(seconds)
	if ok {
		rate, ok = bench.SpreadOf(rates)
	}
	return each, rate, ok
}

// tableWork is the throughput of the work alone. A job of seconds starts for a
// good part of its time; one of minutes or hours does not.
func tableWork(b *strings.Builder, points []bench.Point, all []Work) {
	alone, known := bench.Alone(points)
	each, one, ok := workOf(all, alone)
	if !known || !ok {
		return
	}
	b.WriteString("### The work alone\n\n")
	fmt.Fprintf(b, "A job takes %.2f s alone, of which %.2f s are its work; the rest is its start and its end (the process, imports, the CUDA context). ", alone.JobSeconds.Median, each.Median)
	b.WriteString("The tables above count whole jobs, as the paper did with trainings of ten minutes, of which a start is nothing. Without it:\n\n")
	b.WriteString("| mode | copies | work of a copy [s] | throughput against one after the other |\n|---|---|---|---|\n")
	for _, p := range points {
		each, rate, ok := workOf(all, p)
		gain, related := bench.Ratio(rate, one)
		if ok && related {
			fmt.Fprintf(b, "| %s | %d | %s | %s |\n", name(p), p.Copies, span(&each), span(&gain))
		}
	}
	b.WriteByte('\n')
}
