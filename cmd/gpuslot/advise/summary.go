package advise

import (
	"fmt"
	"strings"
	"time"
)

// Together says what a change brought to all jobs.
func (a Advice) Together() string {
	s := a.Comparison.Text()
	if s != "" && a.Comparison.Enough && len(a.Classes) > 1 {
		s += " Other jobs may have run before it than after it: the classes tell more."
	}
	return s
}

// Judged names the requests that are too large or too small.
func (a Advice) Judged() []Sentence {
	var small, large []string
	for _, c := range a.Classes {
		last := c.Asked[len(c.Asked)-1]
		switch {
		case c.Verdict == TooSmall && c.Request.MiB > 0:
			small = append(small, fmt.Sprintf("%s asks for %d and should for %d", c, last, c.Request.MiB))
		case c.Verdict == TooSmall:
			small = append(small, fmt.Sprintf("%s asks for %d, and how much it needs is not known", c, last))
		case c.Verdict == TooLarge:
			large = append(large, fmt.Sprintf("%s asks for %d where %d are enough", c, last, c.Request.MiB))
		}
	}
	var out []Sentence
	if len(small) > 0 {
		out = append(out, Sentence{"Too small", strings.Join(small, "; ") + "."})
	}
	if len(large) > 0 {
		out = append(out, Sentence{"Too large", strings.Join(large, "; ") + "."})
	}
	return out
}

// Summary is what the advice rests on.
func (a Advice) Summary() string {
	if a.Records == 0 {
		return "No job ended in that time."
	}
	s := fmt.Sprintf("%s of %s, %s to %s.", count(a.Records, "record", "records"), count(a.GPUs, "GPU", "GPUs"),
		day(a.From), day(a.To))
	if a.Nodes > 1 {
		s = fmt.Sprintf("%s of %s on %s, %s to %s.", count(a.Records, "record", "records"), count(a.GPUs, "GPU", "GPUs"),
			count(a.Nodes, "node", "nodes"), day(a.From), day(a.To))
	}
	switch {
	case a.ChangedBy == "date":
		s += fmt.Sprintf(" Compared are the jobs before and after %s.", day(*a.Changed))
	case a.Changed != nil:
		s += fmt.Sprintf(" Jobs share GPUs since %s; they are compared with those that had one to themselves.",
			day(*a.Changed))
	}
	return s
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// ConfigLines are those of all models, to be added to gpuslot.toml.
func (a Advice) ConfigLines() []string {
	var out []string
	for _, s := range a.Settings {
		if len(s.Lines) > 0 {
			if len(out) > 0 {
				out = append(out, "")
			}
			out = append(out, s.Lines...)
		}
	}
	return out
}
