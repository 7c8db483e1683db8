package bench

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/gpu"
)

// at is a point's runs: seconds of each repeat, DRAM activity (negative: unknown).
func at(m Mode, copies int, dram float64, seconds ...float64) (out []Run) {
	for i, s := range seconds {
		r := run(m, copies, i+1, s)
		r.DRAMActivity = &dram
		if dram < 0 {
			r.DRAMActivity = nil
		}
		if m == MIG {
			r.Profile = "1g.5gb"
		}
		out = append(out, r)
	}
	return out
}

func advised(points ...[]Run) Advice {
	r := result()
	r.Runs, r.Skipped = nil, nil
	for _, p := range points {
		r.Runs = append(r.Runs, p...)
	}
	return Advise(r)
}

func TestAdvise(t *testing.T) {
	alone := at(Exclusive, 1, 0.1, 10, 10.1)
	tests := map[string]struct {
		points  [][]Run
		mode    Mode
		copies  int
		reason  string
		unknown string
	}{
		"little memory traffic": {
			[][]Run{alone, at(MPS, 4, 0.3, 11, 11.2), at(MPS, 8, 0.5, 12, 12.2)}, MPS, 8, "memory traffic is low, 50 % of the bandwidth against 10 % alone", "",
		},
		"more copies gain nothing": {
			[][]Run{alone, at(MPS, 4, 0.3, 12, 12.2), at(MPS, 8, 0.4, 23.5, 24)}, MPS, 4, "times the jobs per hour", "",
		},
		"contended, MIG not measured": {
			[][]Run{alone, at(MPS, 4, 0.7, 20, 21)}, MPS, 4, "memory traffic is high", "MIG, which divides the bandwidth, was not measured",
		},
		"contended, MIG as good": {
			[][]Run{alone, at(MPS, 4, 0.7, 20, 22), at(MIG, 4, 0.7, 21, 21.5)}, MIG, 4, "mig, 4 of 1g.5gb", "",
		},
		"not contended, MIG as good": {
			[][]Run{alone, at(MPS, 4, 0.3, 20, 22), at(MIG, 4, 0.3, 19.9, 21.5)}, MPS, 4, "", "",
		},
		"more copies get less done": {
			[][]Run{alone, at(MPS, 2, -1, 12, 12.1), at(MPS, 4, -1, 30, 31)}, MPS, 2, "4 copies get less done than 2", "MIG",
		},
		"fewer threads, less done": {
			[][]Run{alone, at(MPSCapped, 2, 0.1, 12, 12.1), at(MPSCapped, 4, 0.1, 30, 31)}, MPSCapped, 2, "4 copies get less done than 2", "",
		},
		"no gain": {
			[][]Run{alone, at(MPS, 2, 0.2, 20, 21)}, Exclusive, 1, "Sharing gains nothing beyond the spread", "",
		},
		"caps help": {
			[][]Run{alone, at(MPS, 4, 0.2, 20, 21), at(MPSCapped, 4, 0.2, 15, 15.5)}, MPSCapped, 4, "", "",
		},
		"only time slicing": {
			[][]Run{alone, at(TimeSlice, 4, 0.2, 20, 21)}, TimeSlice, 4, "timeslice, 4 copies: 1.96 times", "",
		},
		"only alone": {[][]Run{alone}, "", 0, "", "No way of sharing was measured"},
		"time slicing is as good": {
			[][]Run{alone, at(TimeSlice, 4, 0.2, 19, 20.5), at(MPS, 4, 0.2, 20, 21)}, MPS, 4, "", "",
		},
		"time slicing is better": {
			[][]Run{alone, at(TimeSlice, 4, 0.2, 12, 12.1), at(MPS, 4, 0.2, 17.7, 18)}, TimeSlice, 4, "mps, 4 copies: 2.25", "",
		},
		"never alone": {
			[][]Run{at(MPS, 4, 0.2, 20, 21)}, "", 0, "", "was not measured alone",
		},
		"failed alone": {
			[][]Run{{{Mode: Exclusive, Copies: 1, Repeat: 1, Jobs: []Job{{Failed: "exit status 1"}}}}, at(MPS, 4, 0.2, 20, 21)}, "", 0, "", "did not succeed alone",
		},
		"no GPM": {
			[][]Run{at(Exclusive, 1, -1, 10, 10), at(MPS, 2, -1, 11, 11)}, MPS, 2, "", "Memory traffic: this GPU or driver does not tell it",
		},
		"once": {
			[][]Run{at(Exclusive, 1, 0.1, 10), at(MPS, 2, 0.2, 11)}, MPS, 2, "(one repeat)", "The spread",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			a := advised(tt.points...)
			if a.Mode != tt.mode || a.Copies != tt.copies {
				t.Errorf("%s, %d copies; want %s, %d", a.Mode, a.Copies, tt.mode, tt.copies)
			}
			if all := strings.Join(a.Reasons, "\n"); !strings.Contains(all, tt.reason) {
				t.Errorf("no %q in\n%s", tt.reason, all)
			}
			all := strings.Join(a.Unknown, "\n")
			if !strings.Contains(all, tt.unknown) || tt.unknown == "" && all != "" {
				t.Errorf("want %q in\n%s", tt.unknown, all)
			}
		})
	}
}

func TestAdviseMemory(t *testing.T) {
	points := [][]Run{at(Exclusive, 1, 0.1, 10, 10), at(MPS, 2, 0.2, 11, 11)}
	if a := advised(points...); *a.VRAM != 1280 { // 1000 and a tenth, in steps of 256
		t.Errorf("request %v", *a.VRAM)
	}
	points[1][0].Jobs[1].PeakVRAM = of(gpu.MiB(30000))
	a := advised(points...)
	if *a.VRAM != 33024 || a.Copies != 1 || !strings.Contains(strings.Join(a.Reasons, " "), "1 such requests fit") {
		t.Errorf("request %v for %d copies: %q", *a.VRAM, a.Copies, a.Reasons)
	}
	for _, p := range points {
		for i := range p {
			for j := range p[i].Jobs {
				p[i].Jobs[j].PeakVRAM = nil
			}
		}
	}
	if a := advised(points...); *a.VRAM != 1280 || !strings.Contains(strings.Join(a.Reasons, " "), "its processes were not told") {
		t.Errorf("request %v: %q", *a.VRAM, a.Reasons)
	}
	points[0][0].PeakVRAM, points[0][1].PeakVRAM = nil, nil
	if a := advised(points...); a.VRAM != nil || !strings.Contains(strings.Join(a.Unknown, " "), "no request can be advised") {
		t.Errorf("request %v: %q", a.VRAM, a.Unknown)
	}
}

func TestJoin(t *testing.T) {
	whole, mig := result(), result()
	whole.Runs = append(at(Exclusive, 1, 0.1, 10, 10.1), at(MPS, 2, 0.1, 11)...)
	whole.Skipped = []Skip{{MIG, 0, "off"}, {TimeSlice, 4, "why not"}}
	mig.Runs, mig.Skipped = append(at(MIG, 2, 0.1, 9), at(MPS, 2, 0.1, 12)...), []Skip{{Exclusive, 0, "on"}}
	r, err := Join(whole, mig)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Runs) != 5 || r.Runs[4].Repeat != 2 || len(r.Skipped) != 1 || r.Skipped[0].Mode != TimeSlice {
		t.Errorf("%d runs, %+v", len(r.Runs), r.Skipped)
	}
	if len(whole.Runs) != 3 || len(whole.Skipped) != 2 {
		t.Error("joining changed its argument")
	}
	mig.Command = []string{"other"}
	if _, err := Join(whole, mig); err == nil {
		t.Error("results of different commands are joined")
	}
}

// TestTimeSliceAdvice: time slices are a mode, and what they need is in the text.
func TestTimeSliceAdvice(t *testing.T) {
	var b strings.Builder
	Advice{Mode: TimeSlice, Copies: 4, Limited: "mps, 4 copies, 1.90 times"}.print(&b)
	want := `Advice: time slices (mode = "time-slice"), 4 jobs at once; before driver 615 nothing limits such jobs
        the best mode with limits on older drivers: mps, 4 copies, 1.90 times
`
	if b.String() != want {
		t.Errorf("it prints\n%s", b.String())
	}
}

// TestWinners: each measure has its own winner, time slicing and one after the other among
// them; what the spread does not tell apart stands beside it.
func TestWinners(t *testing.T) {
	joules := func(j float64, runs []Run) []Run {
		for i := range runs {
			runs[i].Energy, runs[i].EnergyFrom = of(j*float64(runs[i].Copies)), EnergyCounter
		}
		return runs
	}
	r := result()
	r.Runs = slices.Concat(joules(60, at(Exclusive, 1, 0.1, 10, 10.1)), joules(29.8, at(TimeSlice, 4, 0.1, 11.9, 12.1)),
		joules(39.8, at(MPS, 4, 0.1, 17.6, 17.8)), joules(29.8, at(MPS, 2, 0.1, 15, 15.1)))
	got := Winners(r.Points())
	want := []Winner{
		{"throughput", "timeslice, 4 copies", "1200 jobs/h", "358 jobs/h", nil},
		{"energy", "timeslice, 4 copies", "30 J a job", "60 J a job", []string{"mps, 2 copies"}},
		{"p95 latency", "timeslice, 4 copies", "12.10 s of 4 jobs at once", "38.69 s of 4 jobs at once", nil},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if got := Winners(r.Points()[:1]); got != nil {
		t.Errorf("%+v of one point", got)
	}
}

// TestPrint: what is unknown is a dash, and what is simulated says so first.
func TestPrint(t *testing.T) {
	r := result()
	r.Runs[4].Jobs[0].Failed = "exit status 1"
	var b strings.Builder
	if err := Print(&b, r); err != nil {
		t.Fatal(err)
	}
	simulated := b.String()
	for _, no := range []string{"1.83", "times the jobs", "Best of"} {
		if !strings.HasPrefix(simulated, "SIMULATED GPU: these") || strings.Contains(simulated, no) {
			t.Errorf("a simulated GPU gains:\n%s", simulated)
		}
	}
	r.Simulated = false
	b.Reset()
	if err := Print(&b, r); err != nil {
		t.Fatal(err)
	}
	want := `NVIDIA A100-SXM4-40GB (GPU-11111111-2222-3333-4444-555555555555), 40960 MiB, driver 550.163.01
python3 train.py

MODE        COPIES  RUN TIME/s           P95/s  SLOWEST/s            JOBS/h  THROUGHPUT        J/JOB  W    SM/%  DRAM/%  VRAM/JOB/MiB  VRAM/GPU/MiB
exclusive   1       11.00 (10.00–12.00)  11.90  11.00 (10.00–12.00)  330     1.00 (0.83–1.20)  1100   100  25    12      1000          1500
mps         2       12.00 (11.00–13.00)  13.00  12.00 (11.00–13.00)  604     1.83 (1.54–2.18)  600    100  25    12      1000          2500
mig 1g.5gb  1       20.00                20.00  20.00                180     0.55              -      -    -     -       -             -

mps-capped, 1 copies: 1 of 1 repeats do not count, because a copy failed (exit status 1)
Not measured:
  timeslice: the compute mode is exclusive-process

Best of all modes:
  throughput  mps, 2 copies: 604 jobs/h (one after the other: 330 jobs/h)
  energy      mps, 2 copies: 600 J a job (one after the other: 1100 J a job)
  p95 latency mps, 2 copies: 13.00 s of 2 jobs at once (one after the other: 21.45 s of 2 jobs at once)
Advice: share by MPS (mode = "mps", threads = "uncapped"), 2 jobs at once
        request_vram = 1280
  - mps, 2 copies: 1.83 times the jobs per hour of one after the other (1.54 to 2.18 over the repeats); the slowest job takes 1.09 times as long.
  - mps, 2 copies: memory traffic is low, 12 % of the bandwidth against 12 % alone.
  - mps, 2 copies: a job takes 0.55 times the energy that it takes alone.
  - mig, 1 of 1g.5gb: 0.55 times the jobs per hour of one after the other (one repeat); the slowest job takes 1.82 times as long.
  - VRAM: the most that the processes of one copy held in any sample was 1000 MiB; the request adds a tenth and is a multiple of 256 MiB.
`
	if b.String() != want {
		t.Errorf("it prints\n%s", b.String())
	}
}
