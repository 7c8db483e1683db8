package layouts

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
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

// BestStatic finds the static layout with the most jobs started, then the
// shortest mean wait: what a site could have chosen had it known the jobs. For jobs
// that name their profile no static layout is better. For others it
// tries every full layout on all GPUs, then every one on each GPU in turn
// until nothing helps; for one GPU that is all there are.
func BestStatic(n Node, traces []Trace) (Layout, error) {
	c := &mig.Catalogue{}
	if err := n.check(); err != nil {
		return Layout{}, err
	}
	if texts, ok, err := hindsight(n, traces, c); err != nil || ok {
		return Layout{Text: strings.Join(texts, ";"), Title: "best static " + counted(texts)}, err
	}
	names, err := fullLayouts(n.Chip, c)
	if err != nil {
		return Layout{}, err
	}
	var best []string
	var score Result
	better := func(texts []string) (bool, error) {
		r, err := runAll(n, traces, Layout{Text: strings.Join(texts, ";")}, c)
		if err != nil || best != nil && !r.better(score) {
			return false, err
		}
		best, score = texts, r
		return true, nil
	}
	for _, name := range names {
		if _, err := better(slices.Repeat([]string{name}, n.GPUs)); err != nil {
			return Layout{}, err
		}
	}
	for helps := n.GPUs > 1; helps; {
		helps = false
		for g := range n.GPUs {
			for _, name := range names {
				texts := slices.Clone(best)
				texts[g] = name
				b, err := better(texts)
				if err != nil {
					return Layout{}, err
				}
				helps = helps || b
			}
		}
	}
	return Layout{Text: strings.Join(best, ";"), Title: "best static " + counted(best)}, nil
}

// fullLayouts are those to which nothing can be added, however they stand.
func fullLayouts(chip gpu.Chip, c *mig.Catalogue) (names []string, err error) {
	ls, err := c.Layouts(chip)
	if err != nil {
		return nil, err
	}
	for l := range ls.Maximal() {
		if name := mig.FormatCounts(chip, l); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// counted is "3 x a; b".
func counted(texts []string) string {
	sorted := slices.Sorted(slices.Values(texts))
	var words []string
	for i := 0; i < len(sorted); {
		n := 1
		for i+n < len(sorted) && sorted[i+n] == sorted[i] {
			n++
		}
		word := sorted[i]
		if n > 1 {
			word = fmt.Sprintf("%d x %s", n, word)
		}
		words = append(words, word)
		i += n
	}
	return strings.Join(words, "; ")
}

func (r Result) better(o Result) bool {
	return cmp.Or(cmp.Compare(o.Started, r.Started), cmp.Compare(r.MeanWait, o.MeanWait)) < 0
}

// Plain is the chip without the profiles that differ from others only in their
// media engines (+me, +gfx), which would stand in the tables as if they were
// layouts of their own.
func Plain(chip gpu.Chip) gpu.Chip {
	chip.Profiles = slices.DeleteFunc(slices.Clone(chip.Profiles), func(p gpu.Profile) bool {
		return strings.ContainsAny(p.Name, "+-")
	})
	return chip
}

// Usual are the policies that a comparison shows without being asked: reflashing
// in two ways, from a first layout, and gpuslot's with the rules, looking every so often, and without
// hysteresis, at every event.
func Usual(first Layout, r mig.Rules, every time.Duration) []Policy {
	r.Repartition = mig.Auto
	eager := r
	eager.Samples, eager.Dwell, eager.PerHour = 1, 0, 1_000_000
	return []Policy{
		Reflash{First: first.Text},
		Reflash{First: first.Text, DrainAfter: r.ReserveAfter},
		Incremental{Title: "gpuslot auto", Rules: r, Every: every},
		Incremental{Title: "gpuslot auto, no hysteresis", Rules: eager},
	}
}
