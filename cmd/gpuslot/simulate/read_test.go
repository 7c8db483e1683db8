package simulate

import (
	"context"
	"errors"
	"io"
	"maps"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/bench"
	"github.com/gpuslot/gpuslot/gpu"
)

// history is as condor_history -json of 25.14 prints it, the newest first.
const history = `[
{
  "AcctGroup": "cms.ana",
  "ClusterId": 12,
  "CompletionDate": 1700007300,
  "JobCurrentStartDate": 1700003700,
  "Owner": "alice",
  "ProcId": 1,
  "QDate": 1700003600,
  "RemoteWallClockTime": 3600.0,
  "RequestCpus": 2,
  "RequestGPUs": 1,
  "RequestMemory": "\/Expr(ifthenelse(MemoryUsage isnt undefined,MemoryUsage,1))\/",
  "RequestVRAM": 4000,
  "GPUTimeUsage": 900.0,
  "VRAMUsage": 2900
}
,
{ "ClusterId": 11, "ProcId": 0, "Owner": "bob", "QDate": 1700000000, "RequestGPUs": 1, "JobStartDate": 1700000100, "CompletionDate": 1700000700, "VRAMUsage": 1000 }
,
{ "ClusterId": 10, "ProcId": 0, "Owner": "bob", "QDate": 1699990000, "RequestCpus": 1 }
,
{ "ClusterId": 9, "ProcId": 0, "Owner": "bob", "QDate": 1699980000, "RequestGPUs": 1, "CompletionDate": 0 }
]
`

func TestReadHistory(t *testing.T) {
	reading := Reading{Work: Work{Kernel: 0.5, SM: 0.3, Bandwidth: 0.2}, Margin: 1.2, Dead: 60}
	want := []Job{
		{Name: "11.0", Owner: "bob", GPUs: 1, VRAM: 1200, CPUs: 1, Peak: 1000, Work: Work{Seconds: 540, Dead: 60, Kernel: 0.5, SM: 0.3, Bandwidth: 0.2}},
		{Name: "12.1", Owner: "alice", Group: "cms.ana", Arrival: 3600 * time.Second, GPUs: 1, VRAM: 4000, CPUs: 2, Peak: 2900, Work: Work{Seconds: 3540, Dead: 60, Kernel: 0.5, SM: 900. / 3540 / 0.5, Bandwidth: 0.2}},
	}
	lines := strings.ReplaceAll(strings.Trim(strings.ReplaceAll(history, "\n", " "), "[] "), "} ,", "}\n")
	for name, text := range map[string]string{"-json": history, "-jsonl": lines} {
		got, err := ReadJobs(reading, strings.NewReader(text))
		if err != nil {
			t.Fatal(name, err)
		}
		if d := cmp.Diff(want, got.Jobs); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		if d := cmp.Diff(map[string]int{noGPU: 1, neverRan: 1}, got.Skipped); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

func TestReadRecords(t *testing.T) {
	const text = `{"slot":"slot1_1","job":"7.0","owner":"alice","gpu":"GPU-11111111-2222-3333-4444-555555555555","begin":"2026-01-01T00:10:00Z","end":"2026-01-01T00:20:00Z","requested":{"vram_mib":4000,"cpus":2},"vram_peak_mib":2500,"sm_seconds":{"estimate":60},"idle_seconds":300,"dram_seconds":30}
torn {
{"slot":"slot1_2","job":"6.0","owner":"bob","gpu":"GPU-11111111-2222-3333-4444-555555555555","begin":"2026-01-01T00:00:00Z","end":"2026-01-01T00:01:00Z","vram_peak_mib":1000,"partial":true,"idle_seconds":60}
`
	got, err := ReadJobs(Reading{Work: DefaultWork(), Margin: 1.5}, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	want := []Job{
		{Name: "6.0", Owner: "bob", GPUs: 1, CPUs: 1, VRAM: 1500, Peak: 1000, Work: Work{Seconds: 60, Kernel: 0.5, SM: 1. / 3, Bandwidth: 1. / 3}},
		{Name: "7.0", Owner: "alice", Arrival: 10 * time.Minute, GPUs: 1, CPUs: 2, VRAM: 4000, Peak: 2500, Work: Work{Seconds: 600, Kernel: 0.5, SM: 0.2, Bandwidth: 0.1}},
	}
	if d := cmp.Diff(want, got.Jobs); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if d := cmp.Diff(map[string]int{noJob: 1}, got.Skipped); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestRefusals: what is wrong with a file says where.
func TestRefusals(t *testing.T) {
	none := func(string) ([]byte, error) { return nil, os.ErrNotExist }
	pools := map[string]string{
		"[nodes.a]\ngpus = 8\nmodel = \"V200\"\n":                                             `p:1: nodes a: no GPU model "V200"; there are T4, `,
		"[nodes.a]\ngpus = 8\nmodel = \"V100S\"\ncout = 8\n":                                  "p:4: there is no key nodes.a.cout here",
		"[nodes.a]\ngpus = 8\nmodel = \"V100S\"\nsharing = { mode = \"mps\", shares = 99 }\n": "p:4: nodes a: gpuslot.toml:",
		"[nodes.a]\ngpus = 0\nmodel = \"V100S\"\n":                                            "p:1: nodes a: 0 GPUs in a node",
		"[nodes.a]\ngpus = 8\nmodel = \"V100S\"\nconfig = \"x.toml\"\n":                       "p:4: file does not exist",
		"[nodes.a]\ngpus = 8\n[nodes.a\n":                                                     "p:4: ",
		"# x\n[[nodes]]\ngpus = 8\n":                                                          "p:2: [[nodes]] is a list here; write [nodes.NAME], and a NAME of its own for each",
		"":                                                                                    "p: the pool has no nodes",
		"[nodes.a]\ngpus = 8\nmodel = \"V100S\"\n[matching]\nrank = \"best\"\n":               `p:4: rank "best"`,
		"[nodes.a]\ngpus = 8\nmodel = \"V100S\"\n[matching]\ninterval = \"soon\"\n":           `soon is no time; write one such as "90s"`,
		"[nodes.a]\ngpus = 8\nmodel = \"V100S\"\n[model]\nmps_loss = -1\n":                    "p:4: a loss of the model is -1",
		"[nodes.a]\ngpus = 8\nmodel = \"V100S\"\n[policy.mps]\ntime_slicing = true\n":         "p:4: policy mps: there is one of this name already",
		"[nodes.a]\ninventory = \"i.json\"\ngpus = 8\n":                                       "p:2: nodes a have an inventory, which says gpus",
		"[nodes.a]\ncount = 0\ngpus = 8\nmodel = \"V100S\"\n":                                 "p:1: nodes a: there are 0",
	}
	for raw, want := range pools {
		if _, err := ParsePool("p", raw, none); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", raw, err, want)
		}
	}
	jobs := map[string]string{
		"":                           "j: there is no class of jobs",
		"[class.a]\nrun_time = 60\n": "j:1: class a: 0 jobs a day and 0 in all",
		"[class.a]\nper_day = 5\nrun_time = 60\n":                                    "j:1: class a: 5 jobs a day without end",
		"days = 1\n[class.a]\nper_day = 5\nhours = [1]\n":                            "j:2: class a: hours has 1 weights",
		"days = 1\n[class.a]\nper_day = 5\nrun_time = { median = 60, spread = 2 }\n": "a spread needs the most",
		"days = 1\n[class.a]\nper_day = 5\nrun_time = { medium = 60 }\n":             `there is no "medium"`,
		"days = 1\n[class.a]\nper_day = 5\nkernel = 1.5\n":                           "j:2: class a: its kernel part is 1.5",
	}
	for raw, want := range jobs {
		if _, err := ParseSynthetic("j", raw, DefaultWork()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", raw, err, want)
		}
	}
	for raw, want := range map[string]string{"": "the file is empty", "time,job": "neither records of gpuslot nor", "[{]": "ad 1: ", "[{}": "does not end", "{\"ClusterId\":1}\n{": "line 2: "} {
		if _, err := ReadJobs(Reading{}, strings.NewReader(raw)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", raw, err, want)
		}
	}
}

// TestSynthetic: as many jobs come as were asked for, by day as the hours weigh, and
// the same ones again.
func TestSynthetic(t *testing.T) {
	const text = `
seed = 3
days = 40
[class.day]
per_day = 100
owners = 2
hours = [0,0,0,0,0,0, 1,1,1,1,1,1, 0,0,0,0,0,0, 0,0,0,0,0,0]
run_time = { median = "10m", spread = 2, most = "5h" }
request_vram = [1000, 2000]
[class.once]
jobs = 7
at = "1d"
run_time = 5
`
	s, err := ParseSynthetic("j", text, DefaultWork())
	if err != nil {
		t.Fatal(err)
	}
	read := func() (all []Job) {
		for in := s.Jobs(); ; {
			j, err := in.Next()
			if errors.Is(err, io.EOF) {
				return all
			}
			if err := j.Check(); err != nil {
				t.Fatal(err)
			}
			all = append(all, j)
		}
	}
	all := read()
	if d := cmp.Diff(all, read()); d != "" {
		t.Error(d)
	}
	owners, medians, once := map[string]int{}, 0, 0
	for i, j := range all {
		if i > 0 && j.Arrival < all[i-1].Arrival {
			t.Fatalf("job %d comes before the one ahead", i)
		}
		owners[j.Owner]++
		if j.Owner == "once" {
			once++
			continue
		}
		if hour := int(j.Arrival.Hours()) % 24; hour < 6 || hour > 11 {
			t.Fatalf("a job comes at %d h", hour)
		}
		if j.Seconds < 600 {
			medians++
		}
	}
	n := len(all) - once
	if once != 7 || !near(float64(n), 4000, 0.05) || !near(float64(medians), float64(n)/2, 0.1) || len(owners) != 3 || !near(float64(owners["day1"]), float64(n)/2, 0.1) {
		t.Errorf("%d at once, %d by day, %d below the median, owners %v", once, n, medians, owners)
	}
	if !near(s.Expected(), float64(len(all)), 0.05) {
		t.Errorf("%g expected, %d came", s.Expected(), len(all))
	}
}

// TestInterrupted: what is known so far comes with the context's error.
func TestInterrupted(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	jobs := make([]Job, 20000)
	for i := range jobs {
		jobs[i] = Job{GPUs: 1, CPUs: 1, VRAM: 2000, Arrival: time.Duration(i) * time.Second, Work: Work{Seconds: 100}}
	}
	g, err := NewGroup("g", 1, 8, "V100S", 64, 1<<18)
	if err != nil {
		t.Fatal(err)
	}
	pool := Pool{Groups: []Group{g}, Matching: DefaultMatching(), Model: DefaultModel()}
	watch := func(_ int, p Progress) {
		if p.Ended > 0 {
			stop()
		}
	}
	results, err := Compare(ctx, pool, []Policy{MPS(0)}, func() Jobs { return List(jobs...) }, watch)
	if r := results[0]; !errors.Is(err, context.Canceled) || !r.Partial || r.Ended == 0 || r.Ended == len(jobs) || r.PerHour == 0 {
		t.Errorf("%v: %+v", err, r)
	}
}

// TestCalibrate: what the model says of known losses is read back from it.
func TestCalibrate(t *testing.T) {
	known, job := Model{Slicing: 0.1, MPS: 0.2}, Work{Seconds: 100, Kernel: 0.4, SM: 0.3, Bandwidth: 0.1}
	sliced, shared := hardware{speed: 1, sms: 1, bandwidth: 1, slicing: true}, hardware{speed: 1, sms: 1, bandwidth: 1}
	c := calibration{work: job}
	took := map[bench.Mode]float64{bench.TimeSlice: c.took(known, sliced, 4), bench.MPS: c.took(known, shared, 4)}
	r := bench.Result{Schema: bench.Schema, Started: time.Unix(1, 0), Command: []string{"x"}}
	of := func(v float64) *float64 { return &v }
	r.Runs = append(r.Runs, bench.Run{Mode: bench.Exclusive, Copies: 1, Repeat: 1, Seconds: 100, Jobs: []bench.Job{{Seconds: 100}}, KernelTime: of(0.4), SMActivity: of(0.12), DRAMActivity: of(0.04)})
	for mode, s := range took {
		r.Runs = append(r.Runs, bench.Run{Mode: mode, Copies: 4, Repeat: 1, Seconds: s, Jobs: []bench.Job{{Seconds: s}, {Seconds: s}, {Seconds: s}, {Seconds: s}}})
	}
	m, w, _, err := Calibrate(r, DefaultModel(), DefaultWork())
	if err != nil {
		t.Fatal(err)
	}
	if !near(w.Kernel, job.Kernel, 1e-6) || !near(w.SM, job.SM, 1e-6) || !near(w.Bandwidth, job.Bandwidth, 1e-6) || !near(m.Slicing, known.Slicing, 1e-4) || !near(m.MPS, known.MPS, 1e-4) || m.MIG != 0 {
		t.Errorf("%+v %+v", m, w)
	}
	// On a 1g.5gb, 14 of 108 SMs and an eighth of the bandwidth, which it needs not all of.
	r.Machine.GPU = gpu.GPU{Name: "NVIDIA A100-SXM4-40GB", Memory: 40960}
	eighth := Work{Seconds: 60 + 40*(0.3/(14./108))*1.25}
	r.Runs = append(r.Runs, bench.Run{Mode: bench.MIG, Copies: 2, Repeat: 1, Profile: "1g.5gb", Seconds: eighth.Seconds, Jobs: []bench.Job{{Seconds: eighth.Seconds}, {Seconds: eighth.Seconds}}})
	if m, _, _, err := Calibrate(r, DefaultModel(), DefaultWork()); err != nil || !near(m.MIG, 0.25, 1e-3) {
		t.Errorf("%+v %v", m, err)
	}
	// Without a counter of kernels, time slices tell their part.
	r.Runs[0].KernelTime, r.Runs[0].SMActivity, r.Runs[0].DRAMActivity = nil, nil, nil
	if _, w, notes, err := Calibrate(r, DefaultModel(), DefaultWork()); err != nil || !near(w.Kernel, took[bench.TimeSlice]/400, 1e-6) || len(notes) != 1 {
		t.Errorf("%+v %v %v", w, notes, err)
	}
}

// FuzzPool: what is accepted can be simulated.
func FuzzPool(f *testing.F) {
	for _, name := range []string{"kit.toml", "pool.toml"} {
		b, err := os.ReadFile("../../../docs/examples/simulate/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b))
	}
	f.Add("[nodes.a]\ngpus = 2\nmodel = \"A30\"\ncount = 2\n[policy.x]\nsharing = { whole = 1 }\n")
	f.Fuzz(func(t *testing.T, raw string) {
		file, err := ParsePool("p", raw, func(string) ([]byte, error) { return nil, os.ErrNotExist })
		if err != nil {
			return
		}
		nodes := 0
		for _, g := range file.Pool.Groups {
			nodes += g.Count
		}
		if nodes > 100 {
			return
		}
		job := Job{GPUs: 1, CPUs: 1, VRAM: 1000, Work: file.Work}
		job.Seconds = 10
		for _, p := range append(file.Policies, Exclusive(), Mixed()) {
			r, err := Run(context.Background(), file.Pool, p, List(job, job), Options{})
			if err == nil && r.Ended+r.Refused != 2 {
				t.Fatalf("%s: %+v", p.Name, r)
			}
		}
	})
}

// FuzzSynthetic: what is accepted makes jobs in order that pass Check.
func FuzzSynthetic(f *testing.F) {
	for _, name := range []string{"kit-jobs.toml", "jobs.toml"} {
		b, err := os.ReadFile("../../../docs/examples/simulate/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b))
	}
	f.Fuzz(func(t *testing.T, raw string) {
		s, err := ParseSynthetic("j", raw, DefaultWork())
		if err != nil {
			return
		}
		in, last := s.Jobs(), time.Duration(0)
		for range 200 {
			j, err := in.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err := errors.Join(err, j.Check()); err != nil || j.Arrival < last {
				t.Fatalf("%v: %+v after %s", err, j, last)
			}
			last = j.Arrival
		}
	})
}

// FuzzJobs: what is read passes Check, is in order, and nothing is lost.
func FuzzJobs(f *testing.F) {
	f.Add(history)
	f.Add(`{"slot":"slot1_1","gpu":"GPU-11111111-2222-3333-4444-555555555555","begin":"2026-01-01T00:10:00Z","end":"2026-01-01T00:20:00Z"}`)
	f.Add(`{"ClusterId":1,"RequestGPUs":1e300,"QDate":5,"RemoteWallClockTime":1e300}`)
	f.Fuzz(func(t *testing.T, raw string) {
		got, err := ReadJobs(Reading{Work: DefaultWork(), Margin: 1.2, Dead: 5}, strings.NewReader(raw))
		if err != nil {
			return
		}
		last := time.Duration(0)
		for _, j := range got.Jobs {
			if err := j.Check(); err != nil || j.Arrival < last || math.IsNaN(j.Seconds) {
				t.Fatalf("%v: %+v after %s", err, j, last)
			}
			last = j.Arrival
		}
		for n := range maps.Values(got.Skipped) {
			if n < 1 {
				t.Fatal(got.Skipped)
			}
		}
	})
}

// TestModels: those that can be divided are chips that mig knows.
func TestModels(t *testing.T) {
	for _, key := range Models() {
		g, err := NewGroup("g", 1, 2, key, 32, 1<<18)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Inventory.Check(); err != nil {
			t.Error(key, err)
		}
		p := Pool{Groups: []Group{g}, Matching: DefaultMatching()}
		all, err := File{Pool: p}.Named(0)
		if err != nil {
			t.Fatal(key, err)
		}
		for _, policy := range all {
			r, err := Run(context.Background(), p, policy, List(Job{GPUs: 1, CPUs: 1, VRAM: gpu.MiB(2000), Work: Work{Seconds: 1}}), Options{})
			if err != nil || r.Ended != 1 {
				t.Errorf("%s, %s: %v %+v", key, policy.Name, err, r)
			}
		}
	}
}
