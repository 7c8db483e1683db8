package published_test

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/advise"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/bench"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/published"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/sharing"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/simulate"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/history"
)

var update = flag.Bool("update", false, "write the table in docs/simulate.md")

// said is what a tool prints of a result.
type said struct {
	low, expected, high float64
	by                  string
}

// TestPublished holds advise, simulate and bench's model to all published results: at least
// 90 % lie in the printed intervals, and docs/simulate.md shows each, and each miss by name.
func TestPublished(t *testing.T) {
	tools := map[string]said{}
	simulated(t, tools)
	devices(t, tools)
	advised(t, tools)
	gromacs(tools)
	var table, misses, open strings.Builder
	table.WriteString("| source | what | published | printed | by | |\n|--|--|--|--|--|--|\n")
	within, of := map[published.Use]int{}, map[published.Use]int{}
	var off []float64 // of the predicted ones
	for _, r := range published.Results() {
		s, is := tools[r.Key]
		delete(tools, r.Key)
		if is == (r.Use == published.Open) {
			t.Errorf("%s is %s: compared %v", r.Key, r.Use, is)
		}
		note := ""
		if r.Note != "" {
			note = " (" + r.Note + ")"
		}
		if !is {
			fmt.Fprintf(&open, "- %s: %s, %s%s\n", r.Source, r.What, r.Printed(), note)
			continue
		}
		of[r.Use]++
		if r.Use == published.Predicted {
			off = append(off, math.Abs(s.expected/((r.Low+r.High)/2)-1))
		}
		verdict := string(r.Use)
		if r.Within(s.low, s.high) {
			within[r.Use]++
		} else {
			verdict += ", **missed**"
			fmt.Fprintf(&misses, "- %s: %s. Published %s, printed %.4g to %.4g%s\n",
				r.Source, r.What, r.Printed(), s.low, s.high, note)
		}
		fmt.Fprintf(&table, "| %s | %s | %s | %.4g (%.4g to %.4g) | %s | %s |\n",
			r.Source, r.What, r.Printed(), s.expected, s.low, s.high, s.by, verdict)
	}
	for key := range tools {
		t.Errorf("no result has the key %s", key)
	}
	fit, guess := published.Fitted, published.Predicted
	all := float64(within[fit]+within[guess]) / float64(of[fit]+of[guess])
	predicted := float64(within[guess]) / float64(of[guess])
	if all < 0.9 || predicted < 0.9 {
		t.Errorf("%.0f %% of all and %.0f %% of the predicted results lie in the printed intervals:\n%s",
			100*all, 100*predicted, misses.String())
	}
	if misses.Len() == 0 {
		misses.WriteString("None.\n")
	}
	slices.Sort(off)
	text := fmt.Sprintf("%s\nOf %d fitted results %d lie in the printed interval, of %d predicted ones %d. The expected\n"+
		"value of a predicted one is off by %.0f %% in the median and by %.0f %% at most. Missed:\n\n%s\nNot compared:\n\n%s",
		table.String(), of[fit], within[fit], of[guess], within[guess],
		100*bench.Quantile(off, 0.5), 100*off[len(off)-1], misses.String(), open.String())
	inDocs(t, text)
}

// inDocs holds docs/simulate.md to the table.
func inDocs(t *testing.T, text string) {
	const page, begin, end = "../../../docs/simulate.md", "<!-- published -->\n\n", "\n<!-- /published -->"
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(b), begin)
	was, after, closed := strings.Cut(rest, end)
	switch {
	case !ok || !closed:
		t.Fatalf("%s has no %q", page, begin)
	case was == text:
	case *update:
		if err := os.WriteFile(page, []byte(before+begin+text+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s has another table; go test ./cmd/gpuslot/published -update writes it. It would be:\n%s", page, text)
	}
}

// kit is KIT's machine and job as docs/examples/simulate has them.
func kit(t *testing.T) (simulate.File, simulate.Job) {
	t.Helper()
	file, err := simulate.OpenPool("../../../docs/examples/simulate/kit.toml")
	if err != nil {
		t.Fatal(err)
	}
	made, err := simulate.OpenSynthetic("../../../docs/examples/simulate/kit-jobs.toml", file.Work)
	if err != nil {
		t.Fatal(err)
	}
	job, err := made.Jobs().Next()
	if err != nil {
		t.Fatal(err)
	}
	return file, job
}

// runs are those of equal jobs under a policy, in all cases.
func runs(t *testing.T, pool simulate.Pool, policy simulate.Policy, job simulate.Job, n int) (out []simulate.Result) {
	t.Helper()
	for _, c := range sharing.Cases() {
		pool.Model.Case = c
		jobs := simulate.List(slices.Repeat([]simulate.Job{job}, n)...)
		r, err := simulate.Run(context.Background(), pool, policy, jobs, simulate.Options{})
		if err != nil || r.Ended != n {
			t.Fatalf("%s: %d of %d jobs, %v", policy.Name, r.Ended, n, err)
		}
		out = append(out, r)
	}
	return out
}

// over is a value of the cases, by that of other ones.
func over(by string, of []simulate.Result, value func(simulate.Result) float64, to ...simulate.Result) said {
	s := said{low: math.Inf(1), by: by}
	if len(to) == 0 {
		to = []simulate.Result{{}}
	}
	for i, r := range of {
		for k, o := range to {
			v := value(r)
			if o.Jobs > 0 {
				v /= value(o)
			}
			if i == 0 && k == 0 {
				s.expected = v
			}
			s.low, s.high = min(s.low, v), max(s.high, v)
		}
	}
	return s
}

func minutes(r simulate.Result) float64 { return r.MeanRun / 60 }
func watts(r simulate.Result) float64   { return r.KWh * 1000 / r.Hours }
func kJ(r simulate.Result) float64      { return r.KJPerJob }
func hours(r simulate.Result) float64   { return r.Hours }

// simulated are KIT's Figure 2 and Tables 1 and 2, and Table 1 again with the job that
// gpuslot bench's measurements would tell.
func simulated(t *testing.T, tools map[string]said) {
	file, job := kit(t)
	bare := job
	bare.Dead = 0
	policies, err := file.Named(12)
	if err != nil {
		t.Fatal(err)
	}
	policy := func(name string) simulate.Policy {
		return policies[slices.IndexFunc(policies, func(p simulate.Policy) bool { return p.Name == name })]
	}
	modes := published.KITModes()
	names := []string{"", "exclusive", "time-slicing", "mps", "static-mig"}
	keys := []string{"cpu", "exclusive", "slicing", "mps", "mig"}
	alone := runs(t, file.Pool, policy("exclusive"), job, 414)
	for i, m := range modes {
		const by = "simulate"
		if i == 0 {
			// All CPUs compute, and the GPUs' idle power is taken off.
			p := file.Pool.Groups[0].Power
			w := p.Host + float64(file.Pool.Groups[0].Inventory.Host.CPUs)*p.Thread
			energy := w * m.Minutes * 60 / 1000 / float64(m.Instances)
			tools["kit-watts-cpu"], tools["kit-kj-cpu"] = said{w, w, w, by}, said{energy, energy, energy, by}
			continue
		}
		all := runs(t, file.Pool, policy(names[i]), bare, m.Instances)
		tools["kit-watts-"+keys[i]], tools["kit-kj-"+keys[i]] = over(by, all, watts), over(by, all, kJ)
		if i >= 2 {
			tools["kit-minutes-"+keys[i]] = over(by, all, minutes)
			full := func(r simulate.Result) float64 { return r.Full.Work }
			tools["kit-htcondor-"+keys[i]] = over(by, runs(t, file.Pool, policy(names[i]), job, 414), full, alone...)
		}
	}
	// Figure 2: one of the GPUs.
	one := file.Pool
	one.Groups = slices.Clone(one.Groups)
	one.Groups[0].Inventory.GPUs = one.Groups[0].Inventory.GPUs[:1]
	mps, slicing := runs(t, one, policy("mps"), bare, 12), runs(t, one, policy("time-slicing"), bare, 12)
	tools["kit-figure2-mps"] = over("simulate", slicing, hours, mps...)
	tools["kit-figure2-flat"] = over("simulate", mps, minutes, runs(t, one, policy("exclusive"), bare, 1)...)
}

// devices are a job that fills a GPU, as CERN's FLOPS do, on MIG devices of an A100-40.
// What CERN's simulation and training keep busy is not published: they are taken to fill it too.
func devices(t *testing.T, tools map[string]said) {
	g, err := simulate.NewGroup("cern", 1, 1, "A100-40", 16, 1<<17)
	if err != nil {
		t.Fatal(err)
	}
	pool := simulate.Pool{Groups: []simulate.Group{g}, Matching: simulate.DefaultMatching(),
		Model: simulate.DefaultModel()}
	pool.Matching.Interval, pool.Matching.Start = 0, 0
	job := simulate.Job{GPUs: 1, CPUs: 1, VRAM: 2048, Memory: 1024, Work: simulate.Work{Seconds: 600, Kernel: 1, SM: 1}}
	took := map[string][]simulate.Result{}
	for i, p := range published.Partitions() {
		layout := []string{"7g.40gb", "3g.20gb", "2g.10gb", "1g.5gb"}[i]
		static, err := simulate.StaticMIG(pool, map[string]string{g.Inventory.GPUs[0].Name: layout})
		if err != nil {
			t.Fatal(err)
		}
		took[p] = runs(t, pool, static, job, 1)
	}
	alone := runs(t, pool, simulate.Exclusive(), job, 1)
	for _, r := range published.Results() {
		if !strings.HasPrefix(r.Key, "cern-") || r.Use == published.Open {
			continue
		}
		for _, p := range published.Partitions() {
			switch {
			case strings.HasSuffix(r.Key, "-"+p) && strings.HasSuffix(r.Source, "FLOPS"):
				tools[r.Key] = over("simulate", alone[:1], minutes, took[p]...)
			case strings.HasSuffix(r.Key, "-"+p), p == "7g" && strings.HasSuffix(r.Source, "loss by MIG"):
				tools[r.Key] = over("simulate", took[p], minutes, alone[0])
			}
		}
	}
}

// advised is KIT's job as gpuslot's records would have it: 414 runs alone on eight A100, with
// the activities that docs/examples/simulate/kit-jobs.toml has.
func advised(t *testing.T, tools map[string]said) {
	file, job := kit(t)
	modes := published.KITModes()
	for _, mode := range []string{"MPS", "MIG"} {
		text := "[request_vram]\nquantum = 256\n[sharing]\n" // with the default quantum 11 or 13 fit
		if mode == "MIG" {
			text += "isolation = true\n"
		}
		cfg, err := config.Parse("kit", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		inv := file.Pool.Groups[0].Inventory
		book := advise.NewAdviser(advise.Options{Config: cfg, Nodes: []gpu.Inventory{inv}})
		sms, dram := job.Kernel*job.SM, job.Kernel*job.Bandwidth*sharing.MostTraffic
		kind := history.A100("cms", "train.py", history.Constant(3100), sms, dram)
		kind.Hours, kind.Model, kind.MemoryMiB = modes[1].Minutes/60, inv.GPUs[0].Name, int64(inv.GPUs[0].Memory)
		for _, r := range kind.Jobs(history.Seeded(1), 414, history.Start) {
			cpus := float64(job.CPUs)
			r.Requested.CPUs = &cpus
			book.Add(r)
		}
		c := book.Advise().Classes[0]
		if !strings.EqualFold(string(c.Mode.Kind), mode) || c.Mode.Jobs != map[string]int{"MPS": 12, "MIG": 7}[mode] {
			t.Fatalf("%+v", c.Mode)
		}
		now, after := *c.Expect.PerGPUNow.Expected, c.Expect.PerGPUAfter
		gain := said{*after.Low / now, *after.Expected / now, *after.High / now, "advise"}
		tools["kit-advise1-"+mode], tools["kit-advise2-"+mode] = gain, gain
	}
}

// gromacs: what the smallest instance tells of a job that fits the larger ones. Its activity
// is that at which a case gives the smallest one's speed.
func gromacs(tools map[string]said) {
	r, _ := published.Find("njit-1g")
	slow := 1 / r.Low
	parts := map[string]float64{"1g": 14. / 108, "2g": 28. / 108, "3g": 42. / 108}
	units := map[string]float64{"1g": 1. / 8, "2g": 2. / 8, "3g": 4. / 8}
	speed := func(c sharing.Case, p string) float64 {
		low, high := 0.0, 1.0 // activities
		for range 60 {
			if middle := (low + high) / 2; c.OnDevice(middle, 0, parts["1g"], units["1g"], 1) < slow {
				low = middle
			} else {
				high = middle
			}
		}
		return 1 / c.OnDevice(low, 0, parts[p], units[p], 1)
	}
	for p := range parts {
		worst, expected, best := speed(sharing.Worst, p), speed(sharing.Expected, p), speed(sharing.Best, p)
		tools["njit-"+p] = said{worst, expected, best, "advise"}
	}
}

// TestBench: from what gpuslot bench would have measured of KIT's job alone and in time
// slices, its model says the other modes of Table 1.
func TestBench(t *testing.T) {
	file, job := kit(t)
	modes := published.KITModes()
	copies := modes[2].Instances / modes[1].Instances
	seconds := func(m published.KITMode) float64 { return m.Minutes * 60 }
	run := func(mode bench.Mode, copies int, s float64) bench.Run {
		return bench.Run{Mode: mode, Copies: copies, Repeat: 1, Seconds: s, Jobs: slices.Repeat([]bench.Job{{Seconds: s}}, copies)}
	}
	r := bench.Result{Schema: bench.Schema, Started: time.Unix(1, 0), Command: []string{"train"}, Runs: []bench.Run{
		run(bench.Exclusive, 1, seconds(modes[1])), run(bench.TimeSlice, copies, seconds(modes[2])),
	}}
	model, work, _, err := simulate.Calibrate(r, file.Pool.Model, job.Work)
	if err != nil {
		t.Fatal(err)
	}
	work.Dead = 0
	job.Work, file.Pool.Model = work, model
	policies, err := file.Named(12)
	if err != nil {
		t.Fatal(err)
	}
	for key, at := range map[string]int{"kit-minutes-mps": 2, "kit-minutes-mig": 3} {
		want, _ := published.Find(key)
		s := over("bench", runs(t, file.Pool, policies[at], job, map[int]int{2: 96, 3: 56}[at]), minutes)
		if t.Logf("%s: %+v", key, s); !want.Within(s.low, s.high) {
			t.Errorf("%s: %s is not within %+v", key, want.Printed(), s)
		}
	}
}

// TestOrder: for any dead time from 3 % of the run time to 125 %, the order of KIT's Table 2
// holds: exclusive, time slicing, MIG, MPS.
func TestOrder(t *testing.T) {
	file, job := kit(t)
	policies, err := file.Named(12)
	if err != nil {
		t.Fatal(err)
	}
	for _, dead := range []float64{0.03, 0.2, 0.5, 1, 1.25} {
		job.Dead = dead * job.Seconds
		var work []float64
		for _, i := range []int{0, 1, 3, 2} {
			work = append(work, runs(t, file.Pool, policies[i], job, 414)[0].Full.Work)
		}
		if !slices.IsSorted(work) {
			t.Errorf("dead time %g of the run time: %.2f", dead, work)
		}
	}
}
