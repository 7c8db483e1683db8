package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/advise"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

// shownClasses are those that a terminal takes; they have most of the hours.
const shownClasses = 10

// adviceText prints one table, then the reasons, then the lines.
func adviceText(w io.Writer, a advise.Advice, all bool) {
	fmt.Fprintln(w, a.Summary())
	if a.Records == 0 {
		if a.Early > 0 {
			fmt.Fprintf(w, "The last of %d earlier jobs ended %s: --since goes further back.\n", a.Early, a.Newest.Format("2006-01-02"))
		}
		return
	}
	classes := a.Classes
	if !all && len(classes) > shownClasses {
		classes = classes[:shownClasses]
	}
	fmt.Fprintln(w)
	adviceTable(w, classes)
	if rest := a.Classes[len(classes):]; len(rest) > 0 {
		hours := 0.0
		for _, c := range rest {
			hours += c.Reserved
		}
		fmt.Fprintf(w, "… and %d classes more with %s reserved GPU-hours; --all prints them.\n", len(rest), advise.Number(hours))
	}
	reasonsText(w, classes)
	comparisonText(w, a)
	judgedText(w, a)
	linesText(w, a, classes)
}

func adviceTable(w io.Writer, classes []*advise.Class) {
	t := &show.Table{}
	t.Row("", "CLASS", "JOBS", "RESERVED/h", "UNUSED/h", "REQUEST/MiB", "RISK", "N", "MODE", "PER DAY", "THEN", "kWh/JOB", "THEN")
	for i, c := range classes {
		request, risk := "-", "-"
		if c.Request.MiB > 0 {
			request, risk = show.MiB(c.Request.MiB), percentOf(c.Request.Risk)
		}
		n, mode := "-", string(c.Mode.Kind)
		if c.Mode.Jobs > 0 {
			n = strconv.Itoa(c.Mode.Jobs)
		}
		if c.Mode.Profile != "" {
			mode += " " + c.Mode.Profile
		}
		t.Row(strconv.Itoa(i+1), c.String(), strconv.Itoa(c.Jobs), advise.Number(c.Reserved), one(c.Unused), request, risk, n, mode,
			one(c.Expect.PerGPUNow), one(c.Expect.PerGPUAfter), one(c.Expect.KWhNow), one(c.Expect.KWhAfter))
	}
	t.Print(w)
}

// one is the expected value of a range, or its bounds where there is none.
func one(r advise.Range) string {
	if r.Expected != nil {
		return advise.Number(*r.Expected)
	}
	return strings.ReplaceAll(r.Text(), " to ", "–")
}

func percentOf(part float64) string { return strconv.FormatFloat(100*part, 'g', 3, 64) + "%" }

// textWidth is where sentences are broken.
const textWidth = 100

func reasonsText(w io.Writer, classes []*advise.Class) {
	for i, c := range classes {
		fmt.Fprintf(w, "\n%d  %s\n", i+1, c)
		for _, s := range c.Sentences() {
			fmt.Fprintf(w, "   %-9s %s\n", s.About, show.Fold(s.Text, textWidth-13, strings.Repeat(" ", 13)))
		}
	}
}

func comparisonText(w io.Writer, a advise.Advice) {
	if text := a.Together(); text != "" {
		fmt.Fprintf(w, "\nAll jobs together\n   %s\n", show.Fold(text, textWidth-3, "   "))
	}
}

// judgedText names the requests to change, of all classes.
func judgedText(w io.Writer, a advise.Advice) {
	said := a.Judged()
	if len(said) == 0 {
		return
	}
	fmt.Fprintln(w, "\nRequests of VRAM")
	for _, s := range said {
		fmt.Fprintf(w, "   %-9s %s\n", s.About, show.Fold(s.Text, textWidth-13, strings.Repeat(" ", 13)))
	}
}

func linesText(w io.Writer, a advise.Advice, classes []*advise.Class) {
	fmt.Fprintln(w, "\ngpuslot.toml")
	for _, s := range a.Settings {
		for _, line := range s.Lines {
			fmt.Fprintln(w, "   "+line)
		}
		fmt.Fprintf(w, "   # %s\n", show.Fold(s.Model+": "+strings.Join(s.Why, " "), textWidth-5, "   # "))
	}
	fmt.Fprintln(w, "\nSubmit files")
	t := &show.Table{}
	for i, c := range classes {
		lines := strings.Join(c.Submit, "   ")
		if lines == "" {
			lines = "as they are"
		}
		t.Row("   "+strconv.Itoa(i+1), lines)
	}
	t.Print(w)
	for _, n := range a.Notes {
		fmt.Fprintf(w, "\n%s\n", show.Fold(n, textWidth, ""))
	}
}
