package simulate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/mig"
	"github.com/gpuslot/gpuslot/mig/simulate"
)

// TestCompare reproduces in kind ...
func TestCompare(t *testing.T) {
	for _, fit := range []string{"exact", "larger"} {
		for _, load := range []float64{0.5, 0.65} {
			n, traces := toy(t, load, fit == "larger")
			best, err := simulate.BestStatic(n, traces)
			if err != nil {
				t.Fatal(err)
			}
			policies := append([]simulate.Policy{simulate.Layout{Text: "3g.20gb,2g.10gb,1g.5gb*2"}, best}, simulate.Usual(mig.DefaultRules())...)
			rows, err := simulate.Compare(n, traces, policies)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			if err := simulate.Print(&b, rows); err != nil {
				t.Fatal(err)
			}
			t.Logf("load %g, fit=%s, 4 x 500 jobs, one A100-40\n%s", load, fit, b.String())
		}
	}
}

func toy(t testing.TB, load float64, larger bool) (simulate.Node, []simulate.Trace) {
	chip, err := mig.Model("A100-40", 0)
	if err != nil {
		t.Fatal(err)
	}
	n := simulate.Node{Chip: simulate.Plain(chip), GPUs: 1, Destroy: time.Second, Create: time.Second / 2}
	var traces []simulate.Trace
	for seed := range uint64(4) {
		tr, err := simulate.Synthetic{Load: load, Seed: seed + 1, Jobs: 500, Mean: 30 * time.Minute, Larger: larger}.Trace(n.Chip, 1)
		if err != nil {
			t.Fatal(err)
		}
		traces = append(traces, tr)
	}
	return n, traces
}
