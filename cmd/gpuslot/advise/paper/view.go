package paper

import (
	"fmt"
	"html/template"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/advise"
)

// view is what the page's template is filled with.
type view struct {
	CSS     template.CSS
	Title   string
	Summary string
	Sums    []sum
	Hours   []drawing
	Rows    []row
	Cards   []card
	// Left are the classes without a card, and what they reserved.
	Left     string
	All      string
	AllPlots []drawing
	Settings []advise.Setting
	Config   string
	Notes    []string
	// Judged are the requests to change.
	Judged []advise.Sentence
	Risk   string
	Empty  bool
}

type sum struct{ Value, Name string }

// row is a class in the table.
type row struct {
	N                                                                              int
	Class, Jobs, Reserved, Unused, Request, Jobsper, Mode, Now, Then, KWh, KWhThen string
	Unknown                                                                        bool
}

// card is a class with its plots and reasons.
type card struct {
	N         int
	Name      string
	Sub       string
	Plots     []drawing
	Sentences []advise.Sentence
	Submit    string
}

// mostCards is how many classes have plots; the table has all of the first page's.
const (
	mostCards = 12
	mostRows  = 40
)

func viewOf(a advise.Advice) view {
	v := view{
		Title: "How these GPUs could be shared", Summary: a.Summary(), Sums: sums(a), Empty: len(a.Classes) == 0,
		Settings: a.Settings, Config: strings.Join(a.ConfigLines(), "\n"), Notes: a.Notes, All: a.Together(),
		Risk: strconv.FormatFloat(100*a.Risk, 'g', 3, 64),
	}
	if v.Empty {
		return v
	}
	v.Hours = append(v.Hours, hours("Reserved and used GPU-hours by user", a.Users))
	if len(a.Groups) > 1 {
		v.Hours = append(v.Hours, hours("By accounting group", asUsers(a.Groups)))
	}
	v.Judged = a.Judged()
	for i, c := range a.Classes {
		if i < mostRows {
			v.Rows = append(v.Rows, rowOf(i+1, c))
		}
		if i < mostCards {
			v.Cards = append(v.Cards, cardOf(i+1, c))
		}
	}
	if n := len(a.Classes) - len(v.Rows); n > 0 {
		v.Left = fmt.Sprintf("%d classes with fewer GPU-hours are left out here; gpuslot advise --json has all.", n)
	}
	if c := a.Comparison; c != nil && c.Enough {
		v.AllPlots = both(c)
	}
	return v
}

// asUsers lets groups have bars, too.
func asUsers(groups []advise.Group) []advise.User {
	var out []advise.User
	for _, g := range groups {
		out = append(out, advise.User{User: g.Group, Jobs: g.Jobs, Hours: g.Hours})
	}
	return out
}

// both draws what a change brought.
func both(c *advise.Comparison) []drawing {
	var out []drawing
	for _, p := range []struct {
		title, unit   string
		before, after advise.Range
	}{
		{"Jobs in a day of a reserved GPU", "jobs", c.Before.PerGPUDay, c.After.PerGPUDay},
		{"Energy of a job", "kWh", c.Before.KWh, c.After.KWh},
		{"Run time", "min", c.Before.Minutes, c.After.Minutes},
		{"Used part of what was reserved", "", c.Before.UsedPart, c.After.UsedPart},
	} {
		if d, ok := steps(p.title, p.unit, []step{{"before", "bar rest", p.before}, {"after", "bar", p.after}}); ok {
			out = append(out, d)
		}
	}
	return out
}

func sums(a advise.Advice) []sum {
	var jobs int
	var reserved, known, used, low, high float64
	for _, u := range a.Users {
		jobs += u.Jobs
		reserved += u.Reserved
		known += u.Reserved - u.Unknown
		used, low, high = used+value(u.Used.Expected), low+value(u.Used.Low), high+value(u.Used.High)
	}
	out := []sum{{grouped(strconv.Itoa(jobs)), "jobs"}, {large(reserved), "GPU-hours reserved"}}
	switch {
	case known <= 0:
		out = append(out, sum{"-", "use not known"})
	case used > 0:
		out = append(out, sum{fmt.Sprintf("%.0f %%", 100*used/known), "of them used by multiprocessors"},
			sum{large(known - used), "GPU-hours reserved and not used"})
	default:
		out = append(out, sum{fmt.Sprintf("%.0f–%.0f %%", 100*low/known, 100*high/known), "of them used by multiprocessors"})
	}
	saved := 0.0
	for _, c := range a.Classes {
		saved += value(c.Expect.Saved.Expected)
	}
	if saved > 0 {
		out = append(out, sum{large(saved), "GPU-hours a day that the advice would free"})
	}
	return out
}

func rowOf(n int, c *advise.Class) row {
	r := row{
		N: n, Class: c.String(), Jobs: grouped(strconv.Itoa(c.Jobs)), Reserved: large(c.Reserved),
		Unused:  grouped(one(c.Unused)),
		Request: "-", Jobsper: "-", Mode: string(c.Mode.Kind), Unknown: c.Mode.Kind == advise.Unknown,
		Now: one(c.Expect.PerGPUNow), Then: c.Expect.PerGPUAfter.Text(), KWh: one(c.Expect.KWhNow),
		KWhThen: c.Expect.KWhAfter.Text(),
	}
	if c.Request.MiB > 0 {
		r.Request = strconv.FormatInt(c.Request.MiB, 10)
	}
	if c.Mode.Jobs > 0 {
		r.Jobsper = strconv.Itoa(c.Mode.Jobs)
	}
	if c.Mode.Profile != "" {
		r.Mode += " " + c.Mode.Profile
	}
	return r
}

func one(r advise.Range) string {
	if r.Expected != nil {
		return advise.Number(*r.Expected)
	}
	return r.Text()
}

func cardOf(n int, c *advise.Class) card {
	out := card{N: n, Name: c.String(), Sentences: c.Sentences(), Submit: strings.Join(c.Submit, "\n")}
	out.Sub = fmt.Sprintf("%s jobs · %s GPU-hours reserved", grouped(strconv.Itoa(c.Jobs)), large(c.Reserved))
	if c.Minutes.Expected != nil {
		out.Sub += fmt.Sprintf(" · %s min each", advise.Number(*c.Minutes.Expected))
	}
	if len(c.Peaks) > 0 {
		out.Plots = append(out.Plots, peaks(c))
	}
	if d, ok := life(c); ok {
		out.Plots = append(out.Plots, d)
	}
	e := c.Expect
	jobs, energy := []step{{"now", "bar rest", e.PerGPUNow}, {"expected", "bar maybe", e.PerGPUAfter}},
		[]step{{"now", "bar rest", e.KWhNow}, {"expected", "bar maybe", e.KWhAfter}}
	if m := c.Comparison; m != nil && m.Enough {
		jobs = []step{{"before", "bar rest", m.Before.PerGPUDay}, {"after", "bar", m.After.PerGPUDay},
			{"expected", "bar maybe", e.PerGPUAfter}}
		energy = []step{{"before", "bar rest", m.Before.KWh}, {"after", "bar", m.After.KWh},
			{"expected", "bar maybe", e.KWhAfter}}
	}
	for _, p := range []struct {
		title, unit string
		of          []step
	}{{"Jobs in a day of a reserved GPU", "jobs", jobs}, {"Energy of a job", "kWh", energy}} {
		if d, ok := steps(p.title, p.unit, p.of); ok && c.Mode.Kind != advise.Whole {
			out.Plots = append(out.Plots, d)
		}
	}
	return out
}
