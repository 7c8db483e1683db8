package layouts_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/simulate/layouts"
	"github.com/gpuslot/gpuslot/mig"
)

// scene is one comparison: two traces of 500 jobs each.
type scene struct {
	title string
	layouts.Synthetic
	model string
	gpus  int
}

func (s scene) make(tb testing.TB) (layouts.Node, []layouts.Trace) {
	tb.Helper()
	n := node(tb, s.model, s.gpus)
	var traces []layouts.Trace
	for seed := range uint64(2) {
		s.Seed, s.Jobs, s.Mean = seed+1, 500, 30*time.Minute
		t, err := s.Trace(n.Chip, n.GPUs)
		if err != nil {
			tb.Fatal(err)
		}
		traces = append(traces, t)
	}
	return n, traces
}

func node(tb testing.TB, model string, gpus int) layouts.Node {
	tb.Helper()
	chip, err := mig.Model(model, 0)
	if err != nil {
		tb.Fatal(err)
	}
	return layouts.Node{Chip: layouts.Plain(chip), GPUs: gpus, Destroy: time.Second, Create: time.Second / 2}
}

// scenes are those of a mixed load, and those in which a static layout is as good:
// jobs that may use larger instances, and jobs that one layout serves all.
func scenes() []scene {
	return []scene{
		{"1g to 4g", layouts.Synthetic{Load: 0.65, Most: 4}, "A100-40", 1},
		{"1g to 4g, may use larger instances", layouts.Synthetic{Load: 0.65, Most: 4, Larger: true}, "A100-40", 1},
		{"1g to 3g", layouts.Synthetic{Load: 0.5, Most: 3}, "A100-40", 1},
		{"1g to 3g, may use larger instances", layouts.Synthetic{Load: 0.5, Most: 3, Larger: true}, "A100-40", 1},
		{"1g only", layouts.Synthetic{Load: 0.65, Most: 1}, "A100-40", 1},
		{"1g to 4g", layouts.Synthetic{Load: 0.5, Most: 4}, "H100-80", 4},
	}
}

func (s scene) run(tb testing.TB) []layouts.Row {
	n, traces := s.make(tb)
	best, err := layouts.BestStatic(n, traces)
	if err != nil {
		tb.Fatal(err)
	}
	var policies []layouts.Policy
	if s.model == "A100-40" && s.Most > 1 {
		policies = append(policies, layouts.Layout{Text: "3g.20gb,2g.10gb,1g.5gb*2"})
	}
	policies = append(append(policies, best), layouts.Usual(best, mig.DefaultRules(), time.Minute)...)
	rows, err := layouts.Compare(n, traces, policies)
	if err != nil {
		tb.Fatal(err)
	}
	return rows
}

// TestCompare prints what policies do with equal traces (-v), and holds
// gpuslot's to what it promises: every job starts, none is disturbed, and a
// mixed load waits less than for reflashed GPUs. That it beats a static layout is
// not promised.
func TestCompare(t *testing.T) {
	for _, s := range scenes() {
		rows := s.run(t)
		var b strings.Builder
		layouts.Print(&b, rows)
		t.Logf("%s, load %g, %d x %s, 2 traces of 500 jobs\n%s%s\n", s.title, s.Load, s.gpus, s.model, b.String(), verdict(rows))
		for _, r := range rows {
			if r.Disturbed != 0 {
				t.Errorf("%s: %d jobs disturbed", r.Policy, r.Disturbed)
			}
			if !strings.HasPrefix(r.Policy, "gpuslot") {
				continue
			}
			if r.Started != r.Jobs {
				t.Errorf("%s: %d of %d jobs started", r.Policy, r.Started, r.Jobs)
			}
			for _, o := range rows {
				if strings.Contains(o.Policy, "reflash") && s.Most > 1 && r.MeanWait > o.MeanWait {
					t.Errorf("%s: mean wait %.0f s, %s: %.0f s", r.Policy, r.MeanWait, o.Policy, o.MeanWait)
				}
			}
		}
	}
}

// verdict says how gpuslot's policy stands against static layouts.
func verdict(rows []layouts.Row) string {
	var ours layouts.Row
	for _, r := range rows {
		if r.Policy == "gpuslot auto" {
			ours = r
		}
	}
	var lines []string
	for _, r := range rows {
		if !r.Static {
			continue
		}
		never := ""
		if r.Started < ours.Started {
			never = fmt.Sprintf(", but leaves %d of %d jobs waiting for ever", r.Jobs-r.Started, r.Jobs)
		}
		word := "a longer"
		switch ratio := r.MeanWait / ours.MeanWait; {
		case ratio < 0.95:
			word = "a shorter"
		case ratio < 1.05:
			word = "the same"
		}
		lines = append(lines, fmt.Sprintf("%s: %s mean wait (%.0f s, gpuslot auto %.0f s)%s.", r.Policy, word, r.MeanWait, ours.MeanWait, never))
	}
	return strings.Join(lines, "\n")
}

// BenchmarkSimulate runs 500 jobs on one GPU under gpuslot's policy.
func BenchmarkSimulate(b *testing.B) {
	n, traces := scene{"", layouts.Synthetic{Load: 0.65, Most: 4}, "A100-40", 1}.make(b)
	r := mig.DefaultRules()
	r.Repartition = mig.Auto
	for b.Loop() {
		got, err := layouts.Run(n, traces[0], layouts.Incremental{Title: "auto", Rules: r, Every: time.Minute})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(len(traces[0]))/float64(got.Started), "jobs/started") // 1: all
	}
}
