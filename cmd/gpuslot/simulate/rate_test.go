package simulate

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/sharing"
)

// TestModel holds run times to the formulae of docs/simulate.md, worked out by hand.
func TestModel(t *testing.T) {
	half := Work{Seconds: 100, Kernel: 0.5, SM: 0.5, Bandwidth: 0.25}
	full := hardware{speed: 1, sms: 1, bandwidth: 1}
	sliced := full
	sliced.slicing = true
	seventh := hardware{speed: 1, sms: 0.125, bandwidth: 0.125, device: true}
	for name, test := range map[string]struct {
		model Model
		hw    hardware
		work  Work
		jobs  int
		limit float64
		x     float64
		want  float64
	}{
		"alone":                           {Model{Slicing: 0.1, MPS: 0.1, MIG: 0.1}, full, half, 1, 1, 1, 100},
		"alone, in time slices":           {Model{Slicing: 0.1, MPS: 0.1, MIG: 0.1}, sliced, half, 1, 1, 1, 100},
		"twice as fast kernels":           {Model{}, hardware{speed: 2, sms: 1, bandwidth: 1}, half, 1, 1, 1, 75},
		"dead time comes on top":          {Model{}, full, Work{Seconds: 100, Dead: 20, Kernel: 0.5}, 1, 1, 1, 120},
		"two in time slices still fit":    {Model{}, sliced, half, 2, 1, 1, 100},
		"four in time slices":             {Model{}, sliced, half, 4, 1, 1, 200},
		"four in slices, 10 % lost":       {Model{Slicing: 0.1}, sliced, half, 4, 1, 1, 220},
		"four with MPS fit the SMs":       {Model{}, full, half, 4, 1, 1, 100},
		"eight with MPS fill them twice":  {Model{}, full, half, 8, 1, 1, 200},
		"two with MPS, 10 % lost":         {Model{MPS: 0.1}, full, half, 2, 1, 1, 105},
		"capped to a quarter of the SMs":  {Model{}, full, half, 2, 0.25, 1, 150},
		"on an eighth":                    {Model{}, seventh, half, 1, 0.125, 1, 250},
		"on an eighth, 10 % lost":         {Model{MIG: 0.1}, seventh, half, 1, 0.125, 1, 270},
		"bandwidth holds up":              {Model{}, full, Work{Seconds: 100, Kernel: 1, SM: 0.1, Bandwidth: 0.5}, 4, 1, 1, 200},
		"the host's part twice as long":   {Model{}, full, half, 1, 1, 2, 150},
		"small jobs on an eighth lose 0 ": {Model{}, seventh, Work{Seconds: 100, Kernel: 0.5, SM: 0.1, Bandwidth: 0.1}, 1, 0.125, 1, 100},
	} {
		var parts []sharing.Part
		for range test.jobs {
			parts = append(parts, test.model.partOf(test.work, &test.hw, test.jobs, test.limit, test.x))
		}
		got := parts[0].Host + sharing.Best.Contention(parts, test.hw.slicing)*parts[0].Kernel
		if math.Abs(got-test.want) > 1e-6 {
			t.Errorf("%s: %g s, not %g", name, got, test.want)
		}
	}
}

// small is a node of two V100S, matched every minute.
func small(t *testing.T) Pool {
	t.Helper()
	g, err := NewGroup("g", 1, 2, "V100S", 32, 1<<18)
	if err != nil {
		t.Fatal(err)
	}
	return Pool{Groups: []Group{g}, Matching: DefaultMatching(), Model: DefaultModel()}
}

// TestTimeSlices: jobs on a GPU with mode = "time-slice" run in turns, by whatever policy.
func TestTimeSlices(t *testing.T) {
	g, err := NewGroup("g", 1, 1, "H100-80", 32, 1<<18)
	if err != nil {
		t.Fatal(err)
	}
	g.Inventory.Driver = "615.71.09"
	for mode, want := range map[string]bool{"time-slice": true, "mps": false} {
		w := &world{}
		if _, err := w.nodeOf(0, g, Policy{Config: fmt.Sprintf("[sharing]\nmode = %q\n", mode)}); err != nil {
			t.Fatal(err)
		}
		if len(w.shapes) != 1 || w.shapes[0].hw.slicing != want {
			t.Errorf("%s: %+v", mode, w.shapes)
		}
	}
}

func events(t *testing.T, p Pool, policy Policy, jobs ...Job) (all []Event) {
	t.Helper()
	if _, err := Run(context.Background(), p, policy, List(jobs...), Options{Trace: func(e Event) { all = append(all, e) }}); err != nil {
		t.Fatal(err)
	}
	return all
}

func at(es []Event, k EventKind, job int) time.Duration {
	for _, e := range es {
		if e.Kind == k && e.Job == job {
			return e.At
		}
	}
	return -1
}

// TestClaims: the next job of an owner and size takes over the claim at the end of the
// one ahead; another one waits for the negotiation.
func TestClaims(t *testing.T) {
	p := small(t)
	job := Job{Owner: "a", GPUs: 1, CPUs: 1, VRAM: 2000, Work: Work{Seconds: 88}}
	other := job
	other.Owner = "b"
	// Two GPUs: 0 and 1 begin at once, 2 and 3 wait.
	es := events(t, p, Exclusive(), job, job, job, other)
	if s := at(es, Start, 2); s != 90*time.Second {
		t.Errorf("the same owner's next job begins at %s, not at the end of the one ahead", s)
	}
	// b gets a's second GPU in the cycle after its end.
	if s := at(es, Start, 3); s != 120*time.Second {
		t.Errorf("the other owner's job begins at %s, not in the next cycle", s)
	}
	p.Matching.Worklife = 0
	if s := at(events(t, p, Exclusive(), job, job, job, other), Start, 2); s != 120*time.Second {
		t.Errorf("without claims that are used again it begins at %s", s)
	}
}

// TestOrder: by arrival one owner's many jobs come first, by owner they take turns.
func TestOrder(t *testing.T) {
	p := small(t)
	p.Matching.Worklife = 0
	job := Job{Owner: "a", GPUs: 1, CPUs: 1, VRAM: 2000, Work: Work{Seconds: 88}}
	other := job
	other.Owner, other.Arrival = "b", time.Second
	for order, want := range map[Order]time.Duration{ByArrival: 240 * time.Second, ByOwner: 120 * time.Second} {
		p.Matching.Order = order
		// At 0 a's first two; b's comes a second later and waits with a's other two.
		if s := at(events(t, p, Exclusive(), job, job, job, job, other), Start, 4); s != want {
			t.Errorf("%s: b's job begins at %s, not %s", order, s, want)
		}
	}
}

// TestRank: first fills a GPU, spread takes turns.
func TestRank(t *testing.T) {
	p := small(t)
	job := Job{Owner: "a", GPUs: 1, CPUs: 1, VRAM: 2000, Work: Work{Seconds: 88}}
	for rank, want := range map[Rank]int{First: 0, Spread: 1} {
		p.Matching.Rank = rank
		for _, e := range events(t, p, MPS(0), job, job) {
			if e.Kind == Start && e.Job == 1 && e.Place.GPU != want {
				t.Errorf("%s: the second job is on GPU %d", rank, e.Place.GPU)
			}
		}
	}
}

// TestRefused: what no slot can hold is told at once; several GPUs go to whole ones alone.
func TestRefused(t *testing.T) {
	p := small(t)
	job := Job{GPUs: 1, CPUs: 1, VRAM: 2000, Work: Work{Seconds: 10}}
	large, two, three, cpus := job, job, job, job
	large.VRAM, two.GPUs, three.GPUs, cpus.CPUs = 40000, 2, 3, 100
	for name, test := range map[string]struct {
		policy  Policy
		refused []int
	}{"exclusive": {Exclusive(), []int{1, 3, 4}}, "mps": {MPS(0), []int{1, 2, 3, 4}},
		"observed": {Policy{Config: "[sharing]\nmode = \"observe\"\n"}, []int{1, 3, 4}}} {
		var got []int
		for _, e := range events(t, p, test.policy, job, large, two, three, cpus) {
			if e.Kind == Refuse {
				got = append(got, e.Job)
			}
		}
		if !slices.Equal(got, test.refused) {
			t.Errorf("%s: %v are refused, not %v", name, got, test.refused)
		}
	}
}

// TestRoomAgain: room that came while none of its size waited is found by the next one.
func TestRoomAgain(t *testing.T) {
	p := small(t)
	p.Matching.Interval, p.Matching.Worklife, p.Matching.Start = 0, 0, 0
	job := Job{Owner: "a", GPUs: 1, CPUs: 1, VRAM: 2000, Work: Work{Seconds: 100}}
	late := job
	late.Arrival = 110 * time.Second
	// Two run, the third one waits until 100 s, when both GPUs become free.
	if s := at(events(t, p, Exclusive(), job, job, job, late), Start, 3); s != late.Arrival {
		t.Errorf("it begins at %s, though a GPU is free since 100 s", s)
	}
}

// TestOver: jobs that use more than they have are counted, once each.
func TestOver(t *testing.T) {
	p := small(t)
	fits := Job{GPUs: 1, CPUs: 1, VRAM: 2000, Peak: 2048, Work: Work{Seconds: 10}} // the quantum is 512
	over := fits
	over.Peak++
	for policy, want := range map[*Policy]int{{Name: "mps"}: 2, {Name: "exclusive", Config: Exclusive().Config}: 0} {
		r, err := Run(context.Background(), p, *policy, List(over, fits, over), Options{})
		if err != nil || r.Over != want {
			t.Errorf("%s: %d are over, not %d (%v)", policy.Name, r.Over, want, err)
		}
	}
}

// TestPrint: what is not known is a dash, and what went wrong has a sentence.
func TestPrint(t *testing.T) {
	var out strings.Builder
	all := []Result{
		{Policy: "exclusive", Jobs: 10, Ended: 10, Started: 10, PerHour: 12.34, Full: &Full{PerHour: 10}, Wait: WaitTimes{Mean: 90, P50: 5400, P95: 1e6}, MeanRun: 0.5, KJPerJob: 2000,
			Gain: &Interval{1, 1, 1}, Energy: &Interval{1, 1, 1}},
		{Policy: "mps", Partial: true, Jobs: 10, Refused: 2, Over: 1, Ended: 4, Started: 5, Full: &Full{PerHour: 25, Stranded: 0.25, Unasked: 0.25}, KJPerJob: 500,
			Gain: &Interval{2, 2.5, 3}, Energy: &Interval{0.25, 0.25, 0.251}},
		{Policy: "none", Jobs: 3},
	}
	Print(&out, all)
	const want = `POLICY     DONE            LEFT OUT  JOBS/H  FULL LOAD  GAIN              WAIT    P50       P95     RUN      AT ONCE  GPUS  SMS  VRAM  UNUSED  kJ/JOB  ENERGY
exclusive  10 of 10        0         12.3    10.0       1.00              90.0 s  90.0 min  11.6 d  0.500 s  0        0 %   0 %  0 %   0 %     2000    1.00
mps        4 of 10 so far  2         0       25.0       2.50 (2.00–3.00)  0 s     0 s       0 s     0 s      0        0 %   0 %  0 %   50 %    500     0.25
none       0 of 3          0         0       -          -                 -       -         -       -        0        0 %   0 %  0 %   -       -       -
mps: 2 jobs fit no slot; they were left out of all policies
mps: 1 jobs used more VRAM than they had; they would be held, or run again with more
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}
