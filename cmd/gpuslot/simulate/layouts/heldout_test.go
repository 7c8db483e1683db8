package layouts_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/simulate/layouts"
	"github.com/gpuslot/gpuslot/mig"
)

// heldOut is the number of traces of each kind; go run ./test/bench hindsight asks for 20.
const heldOut = "GPUSLOT_HELD_OUT"

var (
	mixes    = []string{"small", "mixed", "large"}
	arrivals = []string{"flat", "daily", "bursts"}
)

// cell is what both layouts gave the jobs of some traces.
type cell struct {
	traces, worse int
	// static and ours are sums of mean times from arrival to end, in seconds.
	static, ours, worst float64
}

func (c *cell) add(static, ours float64) {
	c.traces++
	c.static, c.ours, c.worst = c.static+static, c.ours+ours, max(c.worst, ours/static)
	if ours > static {
		c.worse++
	}
}

// TestHeldOut measures repartition = auto against the static layout that is the best for each
// trace in hindsight, on traces that nothing was fitted to, and prints the table of
// docs/simulate.md (-v). It holds the policy to a tenth less time from arrival to end over all;
// that it is better on each trace is not promised, and not so.
func TestHeldOut(t *testing.T) {
	seeds, jobs, loads := 1, 500, []float64{0.65, 1}
	if n, err := strconv.Atoi(os.Getenv(heldOut)); err == nil {
		seeds, jobs, loads = n, 1000, []float64{0.5, 0.65, 0.8, 1, 1.2}
	}
	n := node(t, "A100-40", 8)
	var mu sync.Mutex
	cells := map[string]*cell{}
	var all cell
	t.Run("traces", func(t *testing.T) {
		for _, mix := range mixes {
			for _, arrival := range arrivals {
				for _, load := range loads {
					name := fmt.Sprint(mix, arrival, load)
					cells[name] = &cell{}
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						for seed := range seeds {
							s := layouts.Synthetic{Load: load, Mix: mix, Arrivals: arrival, Most: 4, Jobs: jobs,
								Mean: 30 * time.Minute, Seed: uint64(seed + 1)}
							static, ours := completion(t, n, s)
							mu.Lock()
							cells[name].add(static, ours)
							all.add(static, ours)
							mu.Unlock()
						}
					})
				}
			}
		}
	})
	out := &show.Table{}
	head := []string{"JOBS", "ARRIVALS"}
	for _, load := range loads {
		head = append(head, fmt.Sprintf("LOAD %g", load))
	}
	out.Row(head...)
	for _, mix := range mixes {
		for _, arrival := range arrivals {
			row := []string{mix, arrival}
			for _, load := range loads {
				c := cells[fmt.Sprint(mix, arrival, load)]
				row = append(row, fmt.Sprintf("%.2f (%d, %.2f)", c.ours/c.static, c.worse, c.worst))
			}
			out.Row(row...)
		}
	}
	var text strings.Builder
	out.Print(&text)
	t.Logf("mean time from arrival to end, auto by the best static layout; in parentheses the traces of %d that auto is "+
		"worse on, and the worst\n%sall: %.3f; worse on %d of %d traces, at most %.2f times", seeds, text.String(),
		all.ours/all.static, all.worse, all.traces, all.worst)
	if all.ours > 0.9*all.static {
		t.Errorf("the time from arrival to end is %.3f of that with the best static layout, not 0.9", all.ours/all.static)
	}
}

// completion is the mean time from arrival to end with the best static layout, and with
// repartition = auto.
func completion(t *testing.T, n layouts.Node, s layouts.Synthetic) (static, ours float64) {
	t.Helper()
	trace, err := s.Trace(n.Chip, n.GPUs)
	if err != nil {
		t.Fatal(err)
	}
	best, err := layouts.BestStatic(n, []layouts.Trace{trace})
	if err != nil {
		t.Fatal(err)
	}
	var runs float64
	for _, j := range trace {
		runs += j.Duration.Seconds() / float64(len(trace))
	}
	for _, p := range []layouts.Policy{best, auto()} {
		r, err := layouts.Run(n, trace, p)
		if err != nil {
			t.Fatal(err)
		}
		if r.Started != r.Jobs {
			t.Fatalf("%+v, %s: %d of %d jobs started", s, r.Policy, r.Started, r.Jobs)
		}
		static, ours = ours, r.MeanWait+runs
	}
	return static, ours
}

// Of two GPUs every pair of full layouts can be tried: none starts more jobs, or as many sooner.
func TestBestStaticIsTheBest(t *testing.T) {
	n := node(t, "A30-24", 2)
	names := []string{"4g.24gb", "2g.12gb*2", "2g.12gb,1g.6gb*2", "1g.6gb*4"}
	rapid.Check(t, func(rt *rapid.T) {
		var traces []layouts.Trace
		for range 2 {
			var trace layouts.Trace
			for range rapid.IntRange(1, 12).Draw(rt, "jobs") {
				trace = append(trace, layouts.Job{
					Arrival:  minutes(rapid.IntRange(0, 60).Draw(rt, "arrival")),
					Duration: minutes(rapid.IntRange(1, 60).Draw(rt, "duration")),
					Profile:  rapid.SampledFrom([]string{"1g.6gb", "2g.12gb", "4g.24gb"}).Draw(rt, "profile"),
				})
			}
			traces = append(traces, trace)
		}
		best, err := layouts.BestStatic(n, traces)
		if err != nil {
			rt.Fatal(err)
		}
		policies := []layouts.Policy{best}
		for i, a := range names {
			for _, b := range names[i:] {
				policies = append(policies, layouts.Layout{Text: a + ";" + b})
			}
		}
		rows, err := layouts.Compare(n, traces, policies)
		if err != nil {
			rt.Fatal(err)
		}
		for _, r := range rows[1:] {
			if r.Started > rows[0].Started || r.Started == rows[0].Started && r.MeanWait < rows[0].MeanWait-1e-6 {
				rt.Fatalf("%s: %d started after %g s; %s: %d after %g s", best.Text, rows[0].Started, rows[0].MeanWait, r.Policy,
					r.Started, r.MeanWait)
			}
		}
	})
}

// Bursts are of one profile, and daily arrivals swing; the load stays what it is.
func TestArrivals(t *testing.T) {
	n := node(t, "A100-40", 8)
	for _, arrival := range arrivals {
		s := layouts.Synthetic{Load: 0.65, Mix: "mixed", Arrivals: arrival, Most: 4, Jobs: 20000, Mean: 30 * time.Minute, Seed: 1}
		trace, err := s.Trace(n.Chip, n.GPUs)
		if err != nil {
			t.Fatal(err)
		}
		together, early := 0, 0
		var work float64
		for i, j := range trace {
			if i > 0 && trace[i-1].Arrival == j.Arrival {
				together++
				if trace[i-1].Profile != j.Profile {
					t.Fatalf("%s: %s and %s come together", arrival, trace[i-1].Profile, j.Profile)
				}
			}
			if j.Arrival%(24*time.Hour) < 12*time.Hour {
				early++
			}
			p, err := mig.ProfileNamed(n.Chip, j.Profile)
			if err != nil {
				t.Fatal(err)
			}
			work += float64(p.Slices) * j.Duration.Seconds()
		}
		if load := work / trace[len(trace)-1].Arrival.Seconds() / (7 * 8); load < 0.55 || load > 0.75 {
			t.Errorf("%s: a load of %g", arrival, load)
		}
		part := float64(together) / float64(len(trace))
		if want := map[string]float64{"bursts": 0.95}[arrival]; part < want-0.01 || part > want+0.01 {
			t.Errorf("%s: %g of the jobs come with the one before", arrival, part)
		}
		half := float64(early) / float64(len(trace))
		if want := map[string]float64{"flat": 0.5, "daily": 0.755, "bursts": 0.5}[arrival]; half < want-0.05 || half > want+0.05 {
			t.Errorf("%s: %g of the jobs come in the first half of the day", arrival, half)
		}
	}
}
