package simulate

import (
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

// Print prints results as a table, each beside the first. An error of w shows at
// its next use.
func Print(w io.Writer, results []Result) {
	t := &show.Table{}
	t.Row(columns...)
	for _, r := range results {
		t.Row(r.row()...)
	}
	t.Print(w)
	for _, note := range notes(results) {
		fmt.Fprintln(w, note)
	}
}

// columns are the heads of what row returns.
var columns = []string{"POLICY", "DONE", "LEFT OUT", "JOBS/H", "FULL LOAD", "GAIN",
	"WAIT", "P50", "P95", "RUN", "AT ONCE", "GPUS", "SMS", "VRAM", "UNUSED", "kJ/JOB", "ENERGY"}

// notes says in sentences what the table has no room for.
func notes(results []Result) (all []string) {
	for _, r := range results {
		if r.Note != "" {
			all = append(all, fmt.Sprintf("%s: %s", r.Policy, r.Note))
		}
		switch {
		case r.Refused > 0 && len(results) > 1:
			all = append(all, fmt.Sprintf("%s: %d jobs fit no slot; they were left out of all policies", r.Policy, r.Refused))
		case r.Refused > 0:
			all = append(all, fmt.Sprintf("%s: %d jobs fit no slot", r.Policy, r.Refused))
		}
		if r.Over > 0 {
			all = append(all, fmt.Sprintf("%s: %d jobs used more VRAM than they had; they would be held, or run again with more",
				r.Policy, r.Over))
		}
	}
	return all
}

func (r Result) row() []string {
	done := fmt.Sprintf("%d of %d", r.Ended, r.Jobs)
	if r.Partial {
		done += " so far"
	}
	full, unused := "-", "-"
	if r.Full != nil {
		full, unused = figure(r.Full.PerHour), percent(r.Full.Stranded+r.Full.Unasked)
	}
	wait, p50, p95, run := "-", "-", "-", "-"
	if r.Started > 0 {
		wait, p50, p95 = lasting(r.Wait.Mean), lasting(r.Wait.P50), lasting(r.Wait.P95)
	}
	kJ := "-"
	if r.Ended > 0 {
		run, kJ = lasting(r.MeanRun), figure(r.KJPerJob)
	}
	return []string{r.Policy, done, strconv.Itoa(r.Refused), figure(r.PerHour), full, r.Gain.text(),
		wait, p50, p95, run, strconv.Itoa(r.Concurrent), percent(r.GPUBusy), percent(r.SM), percent(r.VRAM),
		unused, kJ, r.Energy.text()}
}

// figure has three digits that count.
func figure(v float64) string {
	if v == 0 {
		return "0"
	}
	digits := max(0, 2-int(math.Floor(math.Log10(math.Abs(v)))))
	return strconv.FormatFloat(v, 'f', min(digits, 6), 64)
}

func percent(v float64) string { return strconv.FormatFloat(max(0, v)*100, 'f', 0, 64) + " %" }

// text is the expected value with its bounds: "9.1 (6.3–12)".
func (i *Interval) text() string {
	if i == nil {
		return "-"
	}
	one := func(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }
	if one(i.Low) == one(i.High) {
		return one(i.Expected)
	}
	return one(i.Expected) + " (" + one(i.Low) + "–" + one(i.High) + ")"
}

// lasting is a time in the unit that fits.
func lasting(s float64) string {
	switch {
	case s < 100:
		return figure(s) + " s"
	case s < 100*60:
		return figure(s/60) + " min"
	case s < 100*3600:
		return figure(s/3600) + " h"
	}
	return figure(s/86400) + " d"
}
