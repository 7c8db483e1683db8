// Package report makes tables and plots of what the harness measured, beside
// the figures of the papers that this project follows (papers.go). It computes
// nothing but what the recordings hold. Start at Write.
package report

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/bench"
	"github.com/gpuslot/gpuslot/test/gpu/node"
	"github.com/gpuslot/gpuslot/test/gpu/truth"
)

// Write reads the results below dir and writes report.md with its plots, and
// truth.md and node.md, as far as there is something to write, into it. What
// cannot be read is told and keeps nothing else from being written.
func Write(dir string) error {
	parts, errParts := readParts(dir)
	results, errResults := read(dir)
	mps, errMPS := trials(dir, "truth", "What holds of MPS", truth.Trials())
	whole, errWhole := trials(dir, "node", "What gpuslot does", (&node.Node{}).Trials())
	errs := []error{errParts, errResults, errMPS, errWhole}
	if len(parts)+len(results)+mps+whole == 0 {
		return errors.Join(append(errs, fmt.Errorf("%s has no results", dir))...)
	}
	all := plots(results)
	if len(results) > 0 {
		maps.Copy(all, paperPlots(results))
	}
	for name, svg := range all {
		errs = append(errs, os.WriteFile(filepath.Join(dir, name), []byte(svg), 0o644))
	}
	errs = append(errs, os.WriteFile(filepath.Join(dir, "report.md"), []byte(Page(parts, results)), 0o644))
	return errors.Join(errs...)
}

// trials writes the page of a part's trials, and says how many there were.
func trials(dir, part, title string, all []truth.Trial) (int, error) {
	outcomes, unread := truth.Read(filepath.Join(dir, part), all)
	if len(outcomes) == 0 {
		return 0, unread
	}
	var page strings.Builder
	if err := truth.Summary(&page, title, outcomes); err != nil {
		return 0, err
	}
	if missing := notMade(all, outcomes); len(missing) > 0 {
		fmt.Fprintf(&page, "Not made: %s.\n", strings.Join(missing, ", "))
	}
	return len(outcomes), errors.Join(unread, os.WriteFile(filepath.Join(dir, part+".md"), []byte(page.String()), 0o644))
}

// notMade are the trials without an outcome.
func notMade(all []truth.Trial, outcomes []truth.Outcome) (ids []string) {
	for _, t := range all {
		if !slices.ContainsFunc(outcomes, func(o truth.Outcome) bool { return o.ID == t.ID }) {
			ids = append(ids, t.ID)
		}
	}
	return ids
}

// Sharing is a result of gpuslot bench with what the copies told of their work.
type Sharing struct {
	bench.Result
	Work []Work
}

// read finds the results of gpuslot bench, by label.
func read(dir string) ([]Sharing, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*", bench.FileName))
	if err != nil {
		return nil, err
	}
	var out []Sharing
	var errs []error
	for _, f := range files {
		r, err := bench.Read(f)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		work, err := readWork(filepath.Dir(f))
		errs = append(errs, err)
		out = append(out, Sharing{r, work})
	}
	slices.SortStableFunc(out, func(a, b Sharing) int { return strings.Compare(a.Label, b.Label) })
	return joined(out), errors.Join(errs...)
}

// joined puts together what was measured of one command out of MIG mode and in it.
func joined(sorted []Sharing) (out []Sharing) {
	for _, r := range sorted {
		if n := len(out); n > 0 && out[n-1].Label == r.Label {
			if both, err := bench.Join(out[n-1].Result, r.Result); err == nil {
				out[n-1] = Sharing{both, slices.Concat(out[n-1].Work, r.Work)}
				continue
			}
		}
		out = append(out, r)
	}
	return out
}

// Page is the report as Markdown.
func Page(parts []Part, results []Sharing) string {
	var b strings.Builder
	b.WriteString("# What sharing gains\n\n")
	if slices.ContainsFunc(results, func(s Sharing) bool { return s.Simulated }) || slices.ContainsFunc(parts, func(p Part) bool { return p.Simulated }) {
		b.WriteString("**SIMULATED: no GPU was there; the figures show that the harness works and nothing else.**\n\n")
	}
	tableParts(&b, parts)
	if len(results) == 0 {
		b.WriteString("Nothing of sharing was measured.\n")
		return b.String()
	}
	first := results[0]
	fmt.Fprintf(&b, "%s, driver %s, %d CPUs. Every figure follows from the `bench.json` of its part; brackets hold the least and the most of the repeats. ", first.Machine.GPU.Name, first.Machine.Driver, first.Machine.Host.CPUs)
	b.WriteString("Power and energy are those of the GPU alone; the paper's are those of the whole machine of eight GPUs.\n\n")
	for _, r := range results {
		section(&b, r)
	}
	b.WriteString(besidePapers(results))
	return b.String()
}

func section(b *strings.Builder, r Sharing) {
	points := r.Points()
	fmt.Fprintf(b, "## %s\n\n`%s`\n\n", r.Label, r.CommandLine())
	fmt.Fprintf(b, "![run time](%s-runtime.svg) ![occupancy](%s-occupancy.svg) ![throughput](%s-throughput.svg) ![energy](%s-energy.svg)\n\n", r.Label, r.Label, r.Label, r.Label)
	b.WriteString("### As the paper's Table 1: each mode with its most copies\n\n")
	tableOne(b, points)
	b.WriteString("### As the paper's Table 2: throughput against one after the other, and against as many copies by time slicing\n\n")
	tableTwo(b, points)
	tableWork(b, points, r.Work)
	for _, s := range r.Skipped {
		if s.Copies == 0 {
			fmt.Fprintf(b, "- not measured: %s: %s\n", s.Mode, s.Reason)
		} else {
			fmt.Fprintf(b, "- not measured: %s with %d copies: %s\n", s.Mode, s.Copies, s.Reason)
		}
	}
	if len(r.Skipped) > 0 {
		b.WriteByte('\n')
	}
	if r.Simulated {
		b.WriteString("Advice: none, for the GPU is simulated.\n\n")
	} else {
		advice(b, bench.Advise(r.Result))
	}
}

// most is each mode's point with the most copies.
func most(points []bench.Point) (out []bench.Point) {
	for _, p := range points {
		if p.Repeats == 0 {
			continue
		}
		if n := len(out); n > 0 && out[n-1].Mode == p.Mode && out[n-1].Profile == p.Profile {
			out[n-1] = p // in the order of copies
		} else {
			out = append(out, p)
		}
	}
	return out
}

func tableOne(b *strings.Builder, points []bench.Point) {
	columns := most(points)
	row := func(title string, cell func(bench.Point) string) {
		fmt.Fprintf(b, "| %s |", title)
		for _, p := range columns {
			fmt.Fprintf(b, " %s |", cell(p))
		}
		b.WriteByte('\n')
	}
	row("", name)
	b.WriteString("|---|" + strings.Repeat("---|", len(columns)) + "\n")
	row("concurrent copies", func(p bench.Point) string { return fmt.Sprint(p.Copies) })
	row("run time [s]", func(p bench.Point) string { return span(&p.JobSeconds) })
	row("95th percentile [s]", func(p bench.Point) string { return fmt.Sprintf("%.2f", p.P95) })
	row("slowest copy [s]", func(p bench.Point) string { return span(&p.Slowest) })
	row("power [W]", func(p bench.Point) string { return span(p.Watts) })
	row("energy per job [J]", func(p bench.Point) string { return span(p.Joules) })
	row("SM activity", func(p bench.Point) string { return span(p.SMActivity) })
	row("DRAM activity", func(p bench.Point) string { return span(p.DRAMActivity) })
	row("VRAM of a copy [MiB]", func(p bench.Point) string {
		if p.JobVRAM == nil {
			return "not told"
		}
		return fmt.Sprint(int64(*p.JobVRAM))
	})
	b.WriteByte('\n')
}

func tableTwo(b *strings.Builder, points []bench.Point) {
	b.WriteString("| mode | copies | jobs per hour | against one after the other | against time slicing |\n|---|---|---|---|---|\n")
	alone, _ := bench.Alone(points)
	for _, p := range points {
		if p.Repeats == 0 {
			fmt.Fprintf(b, "| %s | %d | a copy failed: %s | | |\n", name(p), p.Copies, p.Failure)
			continue
		}
		fmt.Fprintf(b, "| %s | %d | %s | %s | %s |\n", name(p), p.Copies, span(&p.PerHour), ratio(p, alone), ratio(p, sliced(points, alone, p.Copies)))
	}
	b.WriteByte('\n')
}

// sliced is time slicing with so many copies, of which one is alone; without runs
// where it was not measured.
func sliced(points []bench.Point, alone bench.Point, copies int) bench.Point {
	if copies == 1 {
		return alone
	}
	for _, p := range points {
		if p.Mode == bench.TimeSlice && p.Copies == copies {
			return p
		}
	}
	return bench.Point{}
}

func ratio(of, to bench.Point) string {
	r, ok := bench.Ratio(of.PerHour, to.PerHour)
	if !ok {
		return "not known"
	}
	return span(&r)
}

func name(p bench.Point) string {
	if p.Mode == bench.MIG {
		return "mig " + p.Profile
	}
	return string(p.Mode)
}

func span(s *bench.Spread) string {
	switch {
	case s == nil || s.N == 0:
		return "not told"
	case s.N == 1:
		return fmt.Sprintf("%.2f", s.Median)
	}
	return fmt.Sprintf("%.2f (%.2f–%.2f)", s.Median, s.Min, s.Max)
}

func advice(b *strings.Builder, a bench.Advice) {
	if a.Mode == "" {
		b.WriteString("Advice: unknown.\n\n")
	} else {
		fmt.Fprintf(b, "Advice: %s, %d at once.\n\n", a.Mode, a.Copies)
	}
	for _, s := range a.Reasons {
		fmt.Fprintf(b, "- %s\n", s)
	}
	for _, s := range a.Unknown {
		fmt.Fprintf(b, "- unknown: %s\n", s)
	}
	b.WriteByte('\n')
}
