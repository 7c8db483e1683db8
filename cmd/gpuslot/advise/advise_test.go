package advise

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/record"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/history"
)

func adviceOf(o Options, jobs ...[]record.Job) Advice {
	o.Config.Warnings = nil
	b := NewAdviser(o)
	for _, j := range slices.Concat(jobs...) {
		b.Add(j)
	}
	return b.Advise()
}

func defaults() Options { return Options{Config: config.Default()} }

// TestModes: what is clear gets its mode, the rest is said not to be known.
func TestModes(t *testing.T) {
	small, v100 := history.Constant(2800), func(k history.Kind) history.Kind { k.Model, k.MemoryMiB = "Tesla V100S-PCIE-32GB", 32768; return k }
	multi := history.A100("alice", "ddp", small, .5, .2)
	multi.GPUs = 4
	isolated, err := config.Parse("x", []byte("[sharing]\nisolation = true\n"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		history.Kind
		n          int
		config     config.Config
		want       Kind
		contention string
	}{
		"small, idle and without traffic": {history.A100("alice", "train", small, .1, .05), 200, config.Default(), MPS, low},
		"contended":                       {history.A100("alice", "stream", small, .4, .4), 200, config.Default(), MIG, contended},
		"contended, without MIG":          {v100(history.A100("alice", "stream", small, .4, .28)), 200, config.Default(), MPS, contended},
		"saturated":                       {history.A100("alice", "copy", small, .4, .9), 200, config.Default(), Whole, saturated},
		"full":                            {history.A100("alice", "gemm", small, .95, .3), 200, config.Default(), Whole, contended},
		"large":                           {history.A100("alice", "lattice", history.Constant(30000), .3, .1), 200, config.Default(), Whole, low},
		"several GPUs":                    {multi, 200, config.Default(), Whole, low},
		"isolation":                       {history.A100("alice", "train", small, .1, .05), 200, isolated, MIG, low},
		"isolation, without MIG":          {v100(history.A100("alice", "train", small, .1, .05)), 200, isolated, Whole, low},
		"few jobs":                        {history.A100("alice", "train", small, .1, .05), 30, config.Default(), Unknown, low},
		"no peak":                         {history.A100("alice", "train", nil, .1, .05), 200, config.Default(), Unknown, low},
		"no activity":                     {history.A100("alice", "train", small, -1, -1), 200, config.Default(), Unknown, unknown},
		"traffic not known":               {history.A100("alice", "train", small, .45, -1), 200, config.Default(), Unknown, unknown},
		"traffic not known, hardly busy":  {v100(history.A100("alice", "train", small, .06, -1)), 200, config.Default(), MPS, unknown},
		"between full and not":            {history.A100("alice", "train", small, .7, .1), 60, config.Default(), Unknown, low},
		"no model":                        {func() history.Kind { k := history.A100("alice", "train", small, .1, .05); k.Model = ""; return k }(), 200, config.Default(), Unknown, unknown},
		"before Volta": {func() history.Kind {
			k := history.A100("alice", "train", small, .1, .05)
			k.Model = "Tesla P100-PCIE-16GB"
			k.MemoryMiB = 16280
			return k
		}(), 200, config.Default(), Whole, low},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(8) {
				a := adviceOf(Options{Config: c.config}, c.Jobs(history.Seeded(seed), c.n, history.Start))
				if len(a.Classes) != 1 {
					t.Fatalf("%d classes", len(a.Classes))
				}
				m := a.Classes[0].Mode
				if m.Kind != c.want || m.Contention != c.contention || len(m.Why) == 0 {
					t.Errorf("seed %d: %+v", seed, m)
				}
			}
		})
	}
}

// TestFaultsApart: where the site requires isolation and there is no MIG, the advice names what keeps faults
// apart. Records of such jobs count as those of shared ones.
func TestFaultsApart(t *testing.T) {
	isolated, err := config.Parse("x", []byte("[sharing]\nisolation = true\n"))
	if err != nil {
		t.Fatal(err)
	}
	k := history.A100("alice", "train", history.Constant(2800), .1, .05)
	k.Model, k.MemoryMiB = "Tesla V100S-PCIE-32GB", 32768
	a := adviceOf(Options{Config: isolated}, k.Jobs(history.Seeded(1), 200, history.Start))
	if m := a.Classes[0].Mode; m.Kind != Whole || !strings.Contains(strings.Join(m.Why, " "), `mode = "time-slice"`) {
		t.Errorf("%+v", m)
	}
	if !shared(record.Job{Mode: "time-slice"}) {
		t.Error("a job in time slices had the GPU to itself")
	}
}

// TestSettings: the lines that come out are what agent/config reads and agent/plan
// plans, and lead to what the reasons say.
func TestSettings(t *testing.T) {
	var jobs [][]record.Job
	for i, k := range []history.Kind{
		history.A100("alice", "train", history.Constant(2800), .08, .05), history.A100("bob", "infer", history.Lognormal(1500, .2), .04, .02),
		history.A100("carol", "lattice", history.Constant(35000), .9, .5),
	} {
		jobs = append(jobs, k.Jobs(history.Seeded(uint64(i)), 300, history.Start))
	}
	h := history.A100("dora", "stream", history.Constant(9000), .3, .4)
	h.Model, h.MemoryMiB = "NVIDIA H100 80GB HBM3", 81559
	a := adviceOf(defaults(), append(jobs, h.Jobs(history.Seeded(9), 300, history.Start))...)
	byModel := map[string][]string{}
	for _, s := range a.Settings {
		byModel[s.Model] = s.Lines
	}
	want := map[string][]string{
		"NVIDIA A100-SXM4-40GB": {`[model."NVIDIA A100-SXM4-40GB"]`, `mode = "mps"`, "shares = 15", "whole = 1"},
		"NVIDIA H100 80GB HBM3": {`[model."NVIDIA H100 80GB HBM3"]`, `mode = "mig"`, `mig_layout = "3g.40gb@0, 3g.40gb@4"`},
	}
	if d := cmp.Diff(want, byModel); d != "" {
		t.Errorf("(-want +got):\n%s\n%+v", d, a.Settings)
	}
	for _, s := range a.Settings {
		m := &model{name: s.Model, memory: map[bool]gpu.MiB{true: 40960, false: 81559}[strings.Contains(s.Model, "A100")]}
		m.settle()
		cfg, err := config.Parse("x", []byte(strings.Join(s.Lines, "\n")))
		if err != nil {
			t.Fatal(err)
		}
		p, err := plan.Build(cfg, m.inventory(4))
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range p.GPUs[:2] {
			if string(g.Mode) != strings.Trim(strings.TrimPrefix(s.Lines[1], "mode = "), `"`) {
				t.Errorf("%s became %s", s.Lines, g.Mode)
			}
		}
	}
}

// TestExpected: of jobs that leave the GPU idle nine tenths of the time seven on a
// GPU bring what they should, with less energy, and the bounds hold the truth.
func TestExpected(t *testing.T) {
	c := adviceOf(defaults(), history.A100("alice", "train", history.Constant(4800), .1, .05).Jobs(history.Seeded(1), 400, history.Start)).Classes[0]
	if *c.Fit.ByVRAM != 7 || *c.Fit.BySM != 9 && *c.Fit.BySM != 10 || *c.Fit.ByMemoryTraffic < 11 || c.Fit.Shares != 8 || c.Mode.Jobs != 7 {
		t.Errorf("%+v", c.Fit)
	}
	// At best seven times; at worst each kernel waits for six others at the multiprocessors
	// (0.1) and at the memory interface (0.05/0.8): 7/(1+6*0.1625).
	of := func(v *float64) float64 { return *v / *c.Expect.PerGPUNow.Expected }
	after := c.Expect.PerGPUAfter
	if e := of(after.Expected); e < 6.1 || e > 6.5 || of(after.High) < 6.9 || of(after.High) > 7.1 || of(after.Low) < 3.4 || of(after.Low) > 3.7 {
		t.Errorf("%g (%g to %g)", e, of(after.Low), of(after.High))
	}
	// 55 W idle and 345 W for a tenth of the time: 89.5 W; of seven some 43 W each.
	energy := *c.Expect.KWhAfter.Expected / *c.Expect.KWhNow.Expected
	if energy < .45 || energy > .50 || *c.Expect.KWhAfter.Low > *c.Expect.KWhAfter.Expected || *c.Expect.KWhAfter.High < *c.Expect.KWhAfter.Expected {
		t.Errorf("%v: %+v", energy, c.Expect)
	}
	if c.Verdict != NoRequest || !slices.Equal(c.Submit, []string{"request_gpus = 1", "request_vram = 5120"}) {
		t.Errorf("%v %v", c.Verdict, c.Submit)
	}
	unused := *c.Unused.Expected / c.Reserved
	if unused < .88 || unused > .92 || c.Unknown != 0 {
		t.Errorf("%+v", c.Hours)
	}
}

// TestComparison: the change is found where jobs begin to share, and the true
// factors lie within the bounds.
func TestComparison(t *testing.T) {
	k := history.A100("alice", "train", history.Constant(2800), .1, .05)
	before := k.Jobs(history.Seeded(1), 300, history.Start)
	change := history.Start.Add(40 * 24 * time.Hour)
	after := k
	after.Hours, after.FullWatts, after.IdleWatts = 3, 200, 14
	jobs := history.SharedBy(after.Jobs(history.Seeded(2), 900, change), 8, 8192)
	a := adviceOf(defaults(), before, jobs)
	c := a.Classes[0]
	if len(a.Classes) != 1 || a.Changed == nil || a.Changed.Sub(change).Abs() > time.Hour {
		t.Fatalf("%d classes, changed %v", len(a.Classes), a.Changed)
	}
	got := c.Comparison
	within := func(r Range, want float64) bool { return *r.Low <= want && want <= *r.High }
	if got == nil || !got.Enough || got.Before.Jobs != 300 || got.After.Jobs != 900 || !within(got.PerGPUDay, 8/1.5) || !within(got.Minutes, 1.5) {
		t.Errorf("%+v", got)
	}
	if c.Verdict != TooLarge || c.Request.MiB != 3072 || !slices.Equal(c.Asked, []int64{0, 8192}) {
		t.Errorf("%v %+v %v", c.Verdict, c.Request, c.Asked)
	}
	// Nine or ten at a time by the multiprocessors, each half as long again as alone.
	if got := *c.Expect.PerGPUAfter.Expected / *c.Comparison.Before.PerGPUDay.Expected; got < float64(c.Mode.Jobs)/1.6 || got > float64(c.Mode.Jobs)/1.4 {
		t.Errorf("%v times as many, %+v", got, c.Mode)
	}
	if said := a.Judged(); len(said) != 1 || said[0].About != "Too large" || !strings.Contains(said[0].Text, "asks for 8192 where 3072 are enough") {
		t.Errorf("%v", said)
	}
	if len(a.Groups) != 1 || a.Groups[0].Group != "group_a" || a.Groups[0].Jobs != 1200 {
		t.Errorf("%+v", a.Groups)
	}
	// The same by date, where the mode tells nothing.
	o := defaults()
	o.Changed = change
	for i := range jobs {
		jobs[i].Mode = "observe"
	}
	if got := adviceOf(o, before, jobs).Classes[0].Comparison; got == nil || got.After.Jobs != 900 || !within(got.PerGPUDay, 8/1.5) {
		t.Errorf("by date: %+v", got)
	}
	if a := adviceOf(defaults(), before); a.Comparison != nil || a.Changed != nil || a.Classes[0].Comparison != nil {
		t.Error("a change is seen where there is none")
	}
}

// TestMeasuredBelow: where jobs that share run longer than the model's lower bound has it, what
// was measured is expected.
func TestMeasuredBelow(t *testing.T) {
	k := history.A100("alice", "train", history.Constant(4800), .1, .05)
	before := k.Jobs(history.Seeded(1), 300, history.Start)
	k.Hours = 8 // four times as long as alone
	after := history.SharedBy(k.Jobs(history.Seeded(2), 300, history.Start.Add(40*24*time.Hour)), 7, 5120)
	c := adviceOf(defaults(), before, after).Classes[0]
	e, alone := c.Expect.PerGPUAfter, *c.Comparison.Before.PerGPUDay.Expected
	if got := *e.Expected / alone; c.Mode.Jobs != 7 || got < 1.65 || got > 1.85 || *e.Low > *e.Expected || *e.High < 6.5*alone {
		t.Errorf("%d on a GPU: %.2f times, %+v", c.Mode.Jobs, got, e)
	}
}

// TestTooSmall: held jobs are seen, and count as more than any request.
func TestTooSmall(t *testing.T) {
	jobs := history.SharedBy(history.A100("alice", "train", history.Bimodal(2000, 6000, .3), .1, .05).Jobs(history.Seeded(1), 200, history.Start), 8, 3072)
	held := 0
	for i := range jobs {
		if *jobs[i].PeakMiB > 3072 {
			*jobs[i].PeakMiB, jobs[i].HoldCode = 3100, heldOverBudget
			held++
		}
	}
	a := adviceOf(defaults(), jobs)
	if said := a.Judged(); len(said) != 1 || said[0].About != "Too small" {
		t.Errorf("%v", said)
	}
	c := a.Classes[0]
	if c.Verdict != TooSmall || c.Request.MiB != 0 || c.Request.Limited != held || !strings.Contains(strings.Join(c.Mode.Why, " "), "how much is not known") {
		t.Errorf("%v %+v %v", c.Verdict, c.Request, c.Mode)
	}
}

// TestGrown: second tries belong to the class of the first, and tell its need.
func TestGrown(t *testing.T) {
	cfg, err := config.Parse("x", []byte("[growth]\nretries = 2\n"))
	if err != nil {
		t.Fatal(err)
	}
	all := history.A100("alice", "train", history.Bimodal(2000, 5000, .08), .1, .05).Jobs(history.Seeded(1), 400, history.Start)
	first, second := history.SharedBy(slices.Clone(all), 8, 3072), []record.Job{}
	for i, j := range first {
		if *j.PeakMiB > 3072 {
			first[i].HoldCode = heldOverBudget
			second = append(second, history.SharedBy([]record.Job{all[i]}, 8, 6144)...)
			second[len(second)-1].End = j.End.Add(time.Hour)
		}
	}
	a := adviceOf(Options{Config: cfg}, first, second)
	c := a.Classes[0]
	if len(a.Classes) != 1 || c.Grown != len(second) || c.Request.Limited != 0 || c.Request.MiB > 3072 || c.Request.Tries != 2 || c.Request.Held == nil {
		t.Errorf("%d classes, %+v", len(a.Classes), c)
	}
	without := defaults()
	if n := len(adviceOf(without, first, second).Classes); n != 2 {
		t.Errorf("without growth %d classes: requests side by side are different classes", n)
	}
}

// TestFamilies: what only tells runs apart is left out, names stay.
func TestFamilies(t *testing.T) {
	for in, want := range map[string]string{
		"train.py": "train.py", "python3": "python3", "resnet50": "resnet50", "run_17.sh": "run_#.sh", "run17.sh": "run#.sh", "job-2026-11-03": "job-#-#-#",
		"sweep-9f86d081884c7d65": "sweep-#", "mydag.dag+1234": "mydag.dag+#", "deadbeef": "deadbeef", "model123": "model#", "": "", "a\nb": "a?b", "ü5": "ü5",
	} {
		if got := Family(in); got != want {
			t.Errorf("Family(%q) = %q, want %q", in, got, want)
		}
	}
}

// TestAnyOrder: the advice depends on which records there are, not on their order
// or on how often each comes.
func TestAnyOrder(t *testing.T) {
	var jobs []record.Job
	for i, k := range []history.Kind{history.A100("alice", "train", history.Lognormal(2800, .3), .1, .05), history.A100("bob", "x", history.Bimodal(2000, 9000, .1), .4, .4)} {
		jobs = append(jobs, k.Jobs(history.Seeded(uint64(i)), 120, history.Start)...)
		jobs = append(jobs, history.SharedBy(k.Jobs(history.Seeded(uint64(i)+5), 120, history.Start.Add(1000*time.Hour)), 4, 6144)...)
	}
	want := adviceOf(defaults(), jobs)
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		mixed := slices.Clone(jobs)
		r.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
		twice := rapid.IntRange(0, 50).Draw(t, "twice")
		got := adviceOf(defaults(), mixed, mixed[:twice])
		if got.Twice != twice {
			t.Fatalf("%d came twice, want %d", got.Twice, twice)
		}
		got.Twice = 0
		got.Notes = slices.DeleteFunc(got.Notes, func(s string) bool { return strings.Contains(s, "more than once") })
		a, _ := json.Marshal(want)
		b, _ := json.Marshal(got)
		if d := cmp.Diff(string(a), string(b)); d != "" {
			t.Fatal(d)
		}
	})
}

// TestNoPromiseIsBroken, for any history: what is recommended fits the plan, is a
// multiple of the quantum, and numbers lie within their bounds.
func TestNoPromiseIsBroken(t *testing.T) {
	cfg := config.Default()
	rapid.Check(t, func(t *rapid.T) {
		k := history.A100("u"+rapid.StringMatching(`[a-c]`).Draw(t, "user"), "p", history.Lognormal(rapid.Float64Range(10, 60000).Draw(t, "median"), rapid.Float64Range(0, 2).Draw(t, "sigma")),
			rapid.Float64Range(-.1, 1).Draw(t, "sm"), rapid.Float64Range(-.1, 1).Draw(t, "dram"))
		a := adviceOf(Options{Config: cfg}, k.Jobs(history.Seeded(rapid.Uint64().Draw(t, "seed")), rapid.IntRange(0, 200).Draw(t, "jobs"), history.Start))
		for _, c := range a.Classes {
			r := c.Request
			if r.MiB%int64(cfg.RequestVRAM.Quantum) != 0 || r.MiB > 0 && (r.MiB < int64(cfg.RequestVRAM.Minimum) || r.MiB > c.Fit.PoolMiB || r.Seen > r.Risk) {
				t.Fatalf("%+v", r)
			}
			if c.Mode.Kind == MPS && (c.Mode.Jobs < 2 || int64(c.Mode.Jobs)*r.MiB > c.Fit.PoolMiB) {
				t.Fatalf("%+v %+v", c.Mode, r)
			}
			for _, v := range []Range{c.Expect.PerGPUNow, c.Expect.PerGPUAfter, c.Expect.KWhNow, c.Expect.KWhAfter, c.SM, c.MemoryTraffic} {
				if v.Low != nil && v.Expected != nil && *v.Low > *v.Expected || v.High != nil && v.Expected != nil && *v.High < *v.Expected {
					t.Fatalf("%v %v %v in %+v", *v.Low, *v.Expected, *v.High, c.Expect)
				}
			}
		}
		if _, err := json.Marshal(a); err != nil {
			t.Fatal(err)
		}
	})
}

// TestFactors: of many changes with a known factor, the bounds miss it no more
// often than they may.
func TestFactors(t *testing.T) {
	const changes = 200
	misses := 0
	r := history.Seeded(5)
	for range changes {
		k := history.A100("alice", "train", history.Constant(2800), .1, .05)
		before := k.Jobs(r, 40, history.Start)
		k.Hours = 3
		after := history.SharedBy(k.Jobs(r, 60, history.Start.Add(2000*time.Hour)), 8, 3072)
		f := adviceOf(defaults(), before, after).Classes[0].Comparison.Minutes
		if *f.Low > 1.5 || *f.High < 1.5 {
			misses++
		}
	}
	// 5 % of 200 are 10; more than 21 would be a chance of one in a thousand.
	if misses > 21 || misses == 0 {
		t.Errorf("%d of %d", misses, changes)
	}
}

// TestLinesLoad, for any mixture of classes: what is advised for gpuslot.toml is
// read and planned.
func TestLinesLoad(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var jobs [][]record.Job
		for i := range rapid.IntRange(1, 5).Draw(t, "classes") {
			k := history.A100(string(rune('a'+i)), "p", history.Constant(rapid.Float64Range(100, 40000).Draw(t, "peak")),
				rapid.Float64Range(0, 1).Draw(t, "sm"), rapid.SampledFrom([]float64{-1, .05, .3, .5, .9}).Draw(t, "dram"))
			k.GPUs = rapid.SampledFrom([]float64{1, 1, 2, 4, 8}).Draw(t, "gpus")
			if rapid.Bool().Draw(t, "V100") {
				k.Model, k.MemoryMiB = "Tesla V100S-PCIE-32GB", 32768
			}
			jobs = append(jobs, k.Jobs(history.Seeded(uint64(i)), rapid.IntRange(1, 150).Draw(t, "jobs"), history.Start))
		}
		a := adviceOf(defaults(), jobs...)
		for _, s := range a.Settings {
			if strings.Contains(strings.Join(s.Why, " "), "cannot be planned") {
				t.Fatal(s.Why)
			}
		}
		cfg, err := config.Parse("x", []byte(strings.Join(a.ConfigLines(), "\n")))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range []*model{{name: "NVIDIA A100-SXM4-40GB", memory: 40960}, {name: "Tesla V100S-PCIE-32GB", memory: 32768}} {
			m.settle()
			if _, err := plan.Build(cfg, m.inventory(4)); err != nil {
				t.Fatalf("%v in\n%s", err, strings.Join(a.ConfigLines(), "\n"))
			}
		}
	})
}

// TestOnlyTheMost: of a GPU before Hopper only the most that its jobs can have
// used is known. Little of it is enough for MPS; with much of it the advice says
// what would tell more.
func TestOnlyTheMost(t *testing.T) {
	for most, want := range map[float64]Kind{.1: MPS, .9: Unknown} {
		jobs := history.A100("alice", "train", history.Constant(2800), most, -1).Jobs(history.Seeded(1), 200, history.Start)
		for i := range jobs {
			jobs[i].SM.Min, jobs[i].SM.Estimate = nil, nil
		}
		c := adviceOf(defaults(), jobs).Classes[0]
		if c.Mode.Kind != want || want == Unknown && !strings.Contains(c.Mode.Why[0], "dcgm") || *c.Fit.BySM > int(1/most) {
			t.Errorf("at most %v: %+v %+v", most, c.Mode, c.Fit)
		}
	}
}

// TestElastic: jobs that want more GPUs at a time than their hours keep busy get
// elastic ones beside small jobs.
func TestElastic(t *testing.T) {
	ddp := history.A100("erik", "ddp", history.Constant(20000), .8, .3)
	ddp.GPUs = 4
	a := adviceOf(defaults(), history.A100("alice", "train", history.Constant(4800), .1, .05).Jobs(history.Seeded(1), 300, history.Start), ddp.Jobs(history.Seeded(2), 100, history.Start))
	want := []string{`[model."NVIDIA A100-SXM4-40GB"]`, `mode = "elastic"`, "shares = 7"}
	if d := cmp.Diff(want, a.Settings[0].Lines); d != "" {
		t.Errorf("(-want +got):\n%s%v", d, a.Settings[0].Why)
	}
}

// TestTrafficOfSharedJobs: of those the interface is measured for a part of their
// time alone, which says nothing.
func TestTrafficOfSharedJobs(t *testing.T) {
	jobs := history.A100("alice", "train", history.Constant(2800), .1, .05).Jobs(history.Seeded(1), 200, history.Start)
	if c := adviceOf(defaults(), history.SharedBy(jobs, 8, 3072)).Classes[0]; c.MemoryTraffic.Expected != nil || c.Mode.Contention != unknown {
		t.Errorf("%+v %+v", c.MemoryTraffic, c.Mode)
	}
}

// TestNamedNode: a model of which the records know only MIG devices is known from
// the site's inventory.
func TestNamedNode(t *testing.T) {
	jobs := history.A100("alice", "train", history.Constant(2800), .1, .05).Jobs(history.Seeded(1), 200, history.Start)
	for i := range jobs {
		jobs[i].Mode, jobs[i].MemoryMiB, jobs[i].Share, jobs[i].BudgetMiB = "mig", 4864, 1.0/7, 4864
	}
	if c := adviceOf(defaults(), jobs).Classes[0]; c.Fit != nil || !strings.Contains(c.Mode.Why[0], "model and VRAM") {
		t.Errorf("%+v", c)
	}
	m := &model{name: "NVIDIA A100-SXM4-40GB", memory: 40960}
	m.settle()
	o := defaults()
	o.Nodes = []gpu.Inventory{m.inventory(4)}
	if c := adviceOf(o, jobs).Classes[0]; c.Fit == nil || c.Fit.MIG == nil || c.Fit.MIG.Profile != "1g.5gb" || c.Mode.Kind != MPS {
		t.Errorf("%+v %+v", c.Fit, c.Mode)
	}
}

// TestObserved: where a node is only observed so far, the lines are not all there
// is to change.
func TestObserved(t *testing.T) {
	jobs := history.A100("alice", "train", history.Constant(2800), .1, .05).Jobs(history.Seeded(1), 200, history.Start)
	jobs[0].Program = ""
	if a := adviceOf(defaults(), jobs); strings.Contains(strings.Join(a.Notes, " "), "STARTD_JOB_ATTRS") {
		t.Error("one record without a program is no reason to ask for it")
	}
	for i := range jobs {
		jobs[i].Program = ""
	}
	if a := adviceOf(defaults(), jobs); !strings.Contains(strings.Join(a.Notes, " "), "STARTD_JOB_ATTRS") {
		t.Errorf("%v", a.Notes)
	}
	for text, want := range map[string]bool{"": false, "[sharing]\nmode = \"observe\"\n": true, "[host.\"wn*\"]\nmode = \"observe\"\n": true, "[host.\"other\"]\nmode = \"observe\"\n": false} {
		cfg, err := config.Parse("x", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		a := adviceOf(Options{Config: cfg}, jobs)
		if got := strings.Contains(strings.Join(a.Notes, " "), "take that out"); got != want || len(a.Settings[0].Lines) == 0 {
			t.Errorf("%q: %v, %v", text, got, a.Settings)
		}
	}
}
