package bench

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpuslot/gpuslot/gpu"
)

func of[T any](v T) *T { return &v }

// result is one with everything in it. The figures are made up for the test.
func result() Result {
	return Result{
		Schema: Schema, Simulated: true, Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Machine: Machine{
			Host: gpu.Host{Name: "node", CPUs: 16, Memory: 64000}, Driver: "550.163.01", CUDA: "12.4",
			GPU: gpu.GPU{UUID: "GPU-11111111-2222-3333-4444-555555555555", Name: "NVIDIA A100-SXM4-40GB", PCI: "0000:01:00.0", Memory: 40960,
				Capability: gpu.ComputeCapability{Major: 8}, Multiprocessors: 108, ComputeMode: gpu.ComputeModeDefault, MIGCapable: true},
		},
		Command: []string{"python3", "train.py"}, Label: "training",
		Runs: []Run{
			run(Exclusive, 1, 1, 10), run(Exclusive, 1, 2, 12),
			run(MPS, 2, 1, 11), run(MPS, 2, 2, 13),
			{Mode: MPSCapped, Copies: 1, Repeat: 1, ThreadPercentage: of(100.0), Seconds: 10, Jobs: []Job{{Seconds: 10, Failed: "exit status 1"}}},
			{Mode: MIG, Copies: 1, Repeat: 1, Profile: "1g.5gb", Seconds: 20, Jobs: []Job{{Seconds: 20}}},
		},
		Skipped: []Skip{{Mode: TimeSlice, Reason: "the compute mode is exclusive-process"}},
	}
}

// run is one whose jobs all take its time, at 100 W.
func run(m Mode, copies, repeat int, seconds float64) Run {
	r := Run{Mode: m, Copies: copies, Repeat: repeat, Seconds: seconds, Energy: of(100 * seconds), EnergyFrom: EnergyCounter,
		SMActivity: of(0.25), DRAMActivity: of(0.125), KernelTime: of(0.5), IdleVRAM: of(gpu.MiB(500)), PeakVRAM: of(gpu.MiB(500 + 1000*copies))}
	for range copies {
		r.Jobs = append(r.Jobs, Job{Seconds: seconds, PeakVRAM: of(gpu.MiB(1000))})
	}
	return r
}

func TestWriteThenRead(t *testing.T) {
	dir, want := t.TempDir(), result()
	for range 2 { // the second replaces the first
		if err := want.Write(dir); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{dir, filepath.Join(dir, FileName)} {
		got, err := Read(path)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("%d files are left, not one", len(left))
	}
}

func TestCheckRefuses(t *testing.T) {
	tests := map[string]struct {
		spoil func(*Result)
		want  string
	}{
		"schema":          {func(r *Result) { r.Schema = "gpuslot-bench/0" }, "schema"},
		"no start":        {func(r *Result) { r.Started = time.Time{} }, "started"},
		"no command":      {func(r *Result) { r.Command = nil }, "command"},
		"bad GPU":         {func(r *Result) { r.Machine.GPU.Memory = 0 }, "memory"},
		"mode":            {func(r *Result) { r.Runs[0].Mode = "best" }, `run 1: its mode is "best"`},
		"no copies":       {func(r *Result) { r.Runs[0].Copies, r.Runs[0].Jobs = 0, nil }, "0 copies"},
		"missing job":     {func(r *Result) { r.Runs[2].Jobs = r.Runs[2].Jobs[:1] }, "run 3: it has 1 jobs for 2 copies"},
		"twice":           {func(r *Result) { r.Runs[1].Repeat = 1 }, "run 2 repeats"},
		"cap without cap": {func(r *Result) { r.Runs[0].ThreadPercentage = of(50.0) }, "mps-capped"},
		"no profile":      {func(r *Result) { r.Runs[5].Profile = "" }, "mode mig"},
		"no time":         {func(r *Result) { r.Runs[0].Seconds = 0 }, "no time"},
		"NaN":             {func(r *Result) { r.Runs[0].Seconds = math.NaN() }, "seconds is out of range"},
		"infinite energy": {func(r *Result) { r.Runs[0].Energy = of(math.Inf(1)) }, "energy_joules"},
		"energy, whence":  {func(r *Result) { r.Runs[0].EnergyFrom = "" }, "energy and its source"},
		"activity":        {func(r *Result) { r.Runs[0].DRAMActivity = of(1.5) }, "dram_activity"},
		"memory":          {func(r *Result) { r.Runs[0].PeakVRAM = of(gpu.MiB(-1)) }, "peak_vram_mib"},
		"job too long":    {func(r *Result) { r.Runs[0].Jobs[0].Seconds = 12 }, "a job took 12 s of 10 s"},
		"no reason":       {func(r *Result) { r.Skipped[0].Reason = " " }, "without a reason"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := result()
			tt.spoil(&r)
			if err := r.Check(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v does not say %q", err, tt.want)
			}
			if err := r.Write(t.TempDir()); err == nil {
				t.Error("it is written all the same")
			}
		})
	}
}

func TestPoints(t *testing.T) {
	points := result().Points()
	alone, ok := Alone(points)
	if !ok || alone.Repeats != 2 || alone.JobSeconds != (Spread{10, 11, 12, 2}) {
		t.Fatalf("alone is %+v", alone)
	}
	two := points[1]
	if two.Mode != MPS || two.Copies != 2 || two.JobSeconds.N != 4 || two.Slowest != (Spread{11, 12, 13, 2}) {
		t.Errorf("two are %+v", two)
	}
	if *two.Joules != (Spread{550, 600, 650, 2}) || *two.Watts != (Spread{100, 100, 100, 2}) || *two.JobVRAM != 1000 || *two.GPUVRAM != 2500 {
		t.Errorf("two used %+v %+v %v %v", two.Joules, two.Watts, *two.JobVRAM, *two.GPUVRAM)
	}
	// Two in 11 and 13 s against one in 10 and 12 s.
	gain, ok := Ratio(two.PerHour, alone.PerHour)
	near := func(a, b float64) bool { return math.Abs(a-b) < 0.01 }
	if !ok || !near(gain.Min, 2./13*10) || !near(gain.Max, 2./11*12) || gain.N != 2 {
		t.Errorf("the gain is %+v", gain)
	}
	capped := points[2]
	if capped.Repeats != 0 || capped.Failed != 1 || capped.Failure != "exit status 1" || capped.Joules != nil {
		t.Errorf("a run that failed counts: %+v", capped)
	}
}

// TestPartlyMeasured: energy of one repeat only is not that of the point.
func TestPartlyMeasured(t *testing.T) {
	r := result()
	r.Runs[1].Energy, r.Runs[1].EnergyFrom = nil, ""
	if p := r.Points()[0]; p.Joules != nil || p.Watts != nil || p.SMActivity == nil {
		t.Errorf("%+v", p)
	}
}

func TestQuantileLiesBetween(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.SliceOfN(rapid.Float64Range(0, 1e6), 1, 20).Draw(t, "v")
		s, _ := SpreadOf(v)
		if s.Min > s.Median || s.Median > s.Max || s.N != len(v) {
			t.Fatalf("%+v", s)
		}
	})
}

// FuzzDecode: what is accepted is printed and read again as the same, and its
// points are finite.
func FuzzDecode(f *testing.F) {
	b, err := result().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"schema":"gpuslot-bench/1","runs":[]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Decode(bytes.NewReader(b))
		if err != nil {
			return
		}
		once, err := r.Encode()
		if err != nil {
			t.Fatalf("accepted and not printable: %v", err)
		}
		again, err := Decode(bytes.NewReader(once))
		if err != nil {
			t.Fatalf("printed and not readable: %v", err)
		}
		twice, _ := again.Encode()
		if !bytes.Equal(once, twice) {
			t.Fatal("it changes from print to print")
		}
		for _, p := range r.Points() {
			if p.Repeats > 0 && !(p.PerHour.Min > 0) {
				t.Fatalf("throughput %v", p.PerHour)
			}
		}
	})
}
