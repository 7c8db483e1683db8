package simulate

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/mig"
)

// Row is what a policy did with all traces of a comparison together.
type Row struct {
	Result
	// Static says that nothing changes: the layout was chosen before.
	Static bool `json:"static,omitempty"`
}

// Compare runs every policy on every trace and sums up.
func Compare(n Node, traces []Trace, policies []Policy) ([]Row, error) {
	if len(traces) == 0 {
		return nil, errors.New("there is no trace to compare policies on")
	}
	c := &mig.Catalogue{}
	var rows []Row
	for _, p := range policies {
		r, err := runAll(n, traces, p, c)
		if err != nil {
			return nil, err
		}
		_, static := p.(Layout)
		rows = append(rows, Row{r, static})
	}
	return rows, nil
}

func runAll(n Node, traces []Trace, p Policy, c *mig.Catalogue) (sum Result, err error) {
	for i, t := range traces {
		r, err := run(n, t, p, c)
		if err != nil {
			return Result{}, err
		}
		if i == 0 {
			sum = r
			continue
		}
		sum.add(r)
	}
	sum.measure()
	return sum, nil
}

// add sums counts and waits, and weighs utilisation by time.
func (r *Result) add(o Result) {
	r.Jobs += o.Jobs
	r.Started += o.Started
	r.SMs = weighed(r.SMs, r.Hours, o.SMs, o.Hours)
	r.Memory = weighed(r.Memory, r.Hours, o.Memory, o.Hours)
	r.Hours += o.Hours
	r.Changes += o.Changes
	r.Destroyed += o.Destroyed
	r.Created += o.Created
	r.Disturbed += o.Disturbed
	r.waits = append(slices.Clip(r.waits), o.waits...)
}

func weighed(a *float64, hoursA float64, b *float64, hoursB float64) *float64 {
	if a == nil || b == nil || hoursA+hoursB == 0 {
		return nil
	}
	x := (*a*hoursA + *b*hoursB) / (hoursA + hoursB)
	return &x
}

// BestStatic tries every full layout, the same on all GPUs, and returns the one
// with the most jobs started, then the shortest mean wait: what a site could have
// chosen had it known the jobs.
func BestStatic(n Node, traces []Trace) (Layout, error) {
	c := &mig.Catalogue{}
	ls, err := c.Layouts(n.Chip)
	if err != nil {
		return Layout{}, err
	}
	var names []string
	for l := range ls.Maximal() {
		if name := countsOf(n.Chip, l); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	var best Layout
	var score Result
	for _, name := range names {
		l := Layout{Text: name}
		r, err := runAll(n, traces, l, c)
		if err != nil {
			return Layout{}, err
		}
		if best.Text == "" || r.better(score) {
			best, score = l, r
		}
	}
	best.Title = "best static " + best.Text
	return best, nil
}

func (r Result) better(o Result) bool {
	return cmp.Or(cmp.Compare(o.Started, r.Started), cmp.Compare(r.MeanWait, o.MeanWait)) < 0
}

// Plain is the chip without the profiles that differ from others only in their
// media engines (+me, +gfx), which would stand in the tables as if they were
// layouts of their own.
func Plain(chip mig.Chip) mig.Chip {
	chip.Profiles = slices.DeleteFunc(slices.Clone(chip.Profiles), func(p mig.Profile) bool {
		return strings.ContainsAny(p.Name, "+-")
	})
	return chip
}

// Usual are the policies that a comparison shows without being asked: reflashing
// in two ways, and gpuslot's with the rules, looking every so often, and without
// hysteresis, at every event.
func Usual(r mig.Rules, every time.Duration) []Policy {
	r.Repartition = mig.Auto
	eager := r
	eager.Samples, eager.Dwell, eager.PerHour = 1, 0, 1_000_000
	return []Policy{
		Reflash{},
		Reflash{DrainAfter: r.ReserveAfter},
		Incremental{Title: "gpuslot auto", Rules: r, Every: every},
		Incremental{Title: "gpuslot auto, no hysteresis", Rules: eager},
	}
}

// countsOf is a layout without its starts, as mig.Chip.ParseWant reads it.
func countsOf(chip mig.Chip, l mig.Layout) string {
	var w mig.Want
	for _, p := range l {
		if last := len(w.Counts) - 1; last >= 0 && w.Counts[last].Profile == p.Profile {
			w.Counts[last].N++
			continue
		}
		w.Counts = append(w.Counts, mig.Count{Profile: p.Profile, N: 1})
	}
	return chip.FormatWant(w)
}
