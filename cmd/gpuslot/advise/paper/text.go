package paper

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

// Text prints one table, then the reasons, then the lines.
func Text(w io.Writer, a advise.Advice, all bool) {
	fmt.Fprintln(w, a.Summary())
	if a.Records == 0 {
		if a.Early > 0 {
			fmt.Fprintf(w, "The last of %d earlier jobs ended %s: --since goes further back.\n", a.Early,
				a.Newest.Format("2006-01-02"))
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
		fmt.Fprintf(w, "… and %d classes more with %s reserved GPU-hours; --all prints them.\n", len(rest),
			advise.Number(hours))
	}
	reasonsText(w, classes)
	comparisonText(w, a)
	judgedText(w, a)
	linesText(w, a, classes)
}

func adviceTable(w io.Writer, classes []*advise.Class) {
	t := &show.Table{}
	t.Row("", "CLASS", "JOBS", "RESERVED/h", "UNUSED/h", "REQUEST/MiB", "RISK", "N", "MODE", "PER DAY", "THEN",
		"kWh/JOB", "THEN")
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
		t.Row(strconv.Itoa(i+1), c.String(), strconv.Itoa(c.Jobs), advise.Number(c.Reserved), brief(c.Unused), request,
			risk, n, mode,
			brief(c.Expect.PerGPUNow), brief(c.Expect.PerGPUAfter), brief(c.Expect.KWhNow), brief(c.Expect.KWhAfter))
	}
	t.Print(w)
}

// brief is a range in a column of a table.
func brief(r advise.Range) string { return strings.ReplaceAll(one(r), " to ", "–") }

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
