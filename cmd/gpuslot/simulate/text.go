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
	t.Row("POLICY", "DONE", "JOBS/H", "FULL LOAD", "GAIN", "WAIT", "P50", "P95", "RUN", "AT ONCE", "GPUS", "SMS", "VRAM",
		"UNUSED", "kJ/JOB", "ENERGY")
	for _, r := range results {
		t.Row(r.row(results[0])...)
	}
	t.Print(w)
	for _, r := range results {
		if r.Refused > 0 {
			fmt.Fprintf(w, "%s: %d jobs fit no slot\n", r.Policy, r.Refused)
		}
		if r.Over > 0 {
			fmt.Fprintf(w, "%s: %d jobs used more VRAM than they had; they would be held, or run again with more\n",
				r.Policy, r.Over)
		}
	}
}

func (r Result) row(first Result) []string {
	done := fmt.Sprintf("%d of %d", r.Ended, r.Jobs)
	if r.Partial {
		done += " so far"
	}
	full, gain, unused := "-", "-", "-"
	if r.Full != nil {
		full, unused = figure(r.Full.PerHour), percent(r.Full.Stranded+r.Full.Unasked)
		if first.Full != nil {
			gain = ratio(r.Full.PerHour, first.Full.PerHour)
		}
	}
	wait, p50, p95, run := "-", "-", "-", "-"
	if r.Started > 0 {
		wait, p50, p95 = lasting(r.Wait.Mean), lasting(r.Wait.P50), lasting(r.Wait.P95)
	}
	kJ, energy := "-", "-"
	if r.Ended > 0 {
		run, kJ = lasting(r.MeanRun), figure(r.KJPerJob)
		energy = ratio(r.KJPerJob, first.KJPerJob)
	}
	return []string{r.Policy, done, figure(r.PerHour), full, gain, wait, p50, p95, run, strconv.Itoa(r.Concurrent),
		percent(r.GPUBusy), percent(r.SM), percent(r.VRAM), unused, kJ, energy}
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

func ratio(v, of float64) string {
	if of <= 0 {
		return "-"
	}
	return strconv.FormatFloat(v/of, 'f', 2, 64)
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
