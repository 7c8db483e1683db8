package simulate

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/sharing"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// drawPool makes a pool of one or two small groups.
func drawPool(t *rapid.T) Pool {
	p := Pool{Matching: DefaultMatching(), Model: Model{
		Slicing: rapid.Float64Range(0, 0.5).Draw(t, "slicing"), MPS: rapid.Float64Range(0, 0.5).Draw(t, "mps"), MIG: rapid.Float64Range(0, 0.5).Draw(t, "mig"),
		ThreadsPerCore: rapid.IntRange(0, 2).Draw(t, "threads"), Case: rapid.SampledFrom([]sharing.Case{sharing.Expected, sharing.Worst}).Draw(t, "case"),
	}}
	p.Matching.Interval = rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(t, "interval")
	p.Matching.Worklife = rapid.SampledFrom([]time.Duration{0, 20 * time.Minute}).Draw(t, "worklife")
	p.Matching.Rank = rapid.SampledFrom([]Rank{First, Spread}).Draw(t, "rank")
	p.Matching.Order = rapid.SampledFrom([]Order{ByArrival, ByOwner}).Draw(t, "order")
	for i := range rapid.IntRange(1, 2).Draw(t, "groups") {
		model := rapid.SampledFrom([]string{"V100S", "A100-40", "A30"}).Draw(t, "model")
		g, err := NewGroup(fmt.Sprint("g", i), rapid.IntRange(1, 3).Draw(t, "nodes"), rapid.IntRange(1, 3).Draw(t, "gpus"), model, rapid.IntRange(8, 64).Draw(t, "cpus"), 262144)
		if err != nil {
			t.Fatal(err)
		}
		p.Groups = append(p.Groups, g)
	}
	return p
}

func drawJobs(t *rapid.T) []Job {
	var jobs []Job
	at := time.Duration(0)
	for i := range rapid.IntRange(1, 40).Draw(t, "jobs") {
		at += time.Duration(rapid.IntRange(0, 600).Draw(t, "gap")) * time.Second
		jobs = append(jobs, Job{
			Name: fmt.Sprint(i), Owner: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "owner"), Arrival: at,
			GPUs: rapid.SampledFrom([]int{1, 1, 1, 1, 2}).Draw(t, "gpus"), CPUs: rapid.IntRange(1, 4).Draw(t, "cpus"),
			VRAM: gpu.MiB(rapid.SampledFrom([]int{0, 2000, 4500, 9000, 18000, 30000}).Draw(t, "vram")), Memory: 1000,
			Work: Work{Seconds: rapid.Float64Range(1, 5000).Draw(t, "seconds"), Dead: rapid.Float64Range(0, 100).Draw(t, "dead"),
				Kernel: rapid.Float64Range(0, 1).Draw(t, "kernel"), SM: rapid.Float64Range(0, 1).Draw(t, "sm"), Bandwidth: rapid.Float64Range(0, 1).Draw(t, "bandwidth")},
		})
	}
	return jobs
}

func drawPolicy(t *rapid.T, p Pool) Policy {
	all, err := File{Pool: p}.Named(rapid.SampledFrom([]int{0, 2, 8}).Draw(t, "shares"))
	if err != nil {
		t.Fatal(err)
	}
	return rapid.SampledFrom(all).Draw(t, "policy")
}

// TestConservation watches every start and end from outside, with plans made again:
// nothing is given out twice, no job is lost or run twice, time never goes back.
func TestConservation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, jobs := drawPool(t), drawJobs(t)
		policy := drawPolicy(t, p)
		if policy.Name == nameDynamic { // it does not look at CPUs
			for i := range p.Groups {
				p.Groups[i].Inventory.Host.CPUs = 128
			}
			if rapid.Bool().Draw(t, "often") { // looks while instances are being made
				policy.Config += "[repartition]\ndwell = \"100s\"\n"
			}
			for i := range jobs {
				jobs[i].CPUs = 1
			}
		}
		w := newWatch(t, p, policy, jobs)
		r, err := Run(context.Background(), p, policy, List(jobs...), Options{Trace: w.event})
		if err != nil {
			t.Fatal(err)
		}
		if r.Jobs != len(jobs) || r.Ended+r.Refused != len(jobs) || r.Started != r.Ended || len(w.running) != 0 {
			t.Fatalf("%d jobs came of %d, %d refused, %d started, %d ended, %d still run", r.Jobs, len(jobs), r.Refused, r.Started, r.Ended, len(w.running))
		}
		idle := 0.0
		for _, g := range p.Groups {
			idle += float64(g.Count) * (g.Power.Host + g.Power.Idle*float64(len(g.Inventory.GPUs)))
		}
		if least := idle * r.Hours / 1000; r.KWh < least*(1-1e-9) {
			t.Fatalf("%g kWh; idle nodes take %g", r.KWh, least)
		}
		for name, part := range map[string]float64{"GPUs": r.GPUBusy, "SMs": r.SM, "VRAM": r.VRAM} {
			if part < -1e-9 || part > 1+1e-9 {
				t.Fatalf("%s: %g", name, part)
			}
		}
		again, err := Run(context.Background(), p, policy, List(jobs...), Options{})
		if a, b := encode(t, r), encode(t, again); err != nil || a != b {
			t.Fatalf("%v\n%s\n%s", err, a, b)
		}
	})
}

func encode(t *rapid.T, r Result) string {
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// watch books what is given out.
type watch struct {
	t       *rapid.T
	pool    Pool
	plans   map[string]plan.Plan
	jobs    []Job
	begun   map[int]time.Duration
	running map[int]Place
	done    map[int]bool
	last    time.Duration
	slicing bool
}

func newWatch(t *rapid.T, p Pool, policy Policy, jobs []Job) *watch {
	w := &watch{t: t, pool: p, plans: map[string]plan.Plan{}, jobs: jobs, begun: map[int]time.Duration{}, running: map[int]Place{}, done: map[int]bool{}, slicing: policy.Slicing}
	for _, g := range p.Groups {
		text := policy.Config
		if text == "" {
			text = g.Config
		}
		cfg, err := config.Parse("test", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if w.plans[g.Name], err = plan.Build(cfg, g.Inventory); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func (w *watch) event(e Event) {
	j := w.jobs[e.Job]
	if e.At < w.last || e.Name != j.Name || w.done[e.Job] {
		w.t.Fatalf("%+v after %s", e, w.last)
	}
	w.last = e.At
	switch e.Kind {
	case Refuse:
		w.done[e.Job] = true
	case Start:
		if _, twice := w.begun[e.Job]; twice || e.At < j.Arrival {
			w.t.Fatalf("job %d, which came at %s, starts at %s", e.Job, j.Arrival, e.At)
		}
		w.begun[e.Job], w.running[e.Job] = e.At, e.Place
		w.check(e.Place)
	case End:
		began, ran := w.begun[e.Job]
		least := j.Dead + j.Seconds
		if took := (e.At - began).Seconds(); !ran || took < least*(1-1e-6)-1e-6 {
			w.t.Fatalf("job %d took %g s; alone it takes %g", e.Job, took, least)
		}
		delete(w.running, e.Job)
		w.done[e.Job] = true
	}
}

// check sums up what the jobs of a node have.
func (w *watch) check(at Place) {
	p := w.plans[at.Group]
	cpus, wholes := 0, 0
	vram, count := map[int]gpu.MiB{}, map[string]int{}
	devices := map[int]map[string]bool{}
	for i, place := range w.running {
		if place.Group != at.Group || place.Node != at.Node {
			continue
		}
		j := w.jobs[i]
		cpus += j.CPUs
		if place.GPU < 0 {
			wholes += j.GPUs
			continue
		}
		if place.Device != "" {
			if devices[place.GPU] == nil {
				devices[place.GPU] = map[string]bool{}
			}
			if devices[place.GPU][place.Device] {
				w.t.Fatalf("two jobs on %+v", place)
			}
			devices[place.GPU][place.Device] = true
			continue
		}
		budget := p.RequestVRAM.Budget(j.VRAM)
		vram[place.GPU] += budget
		count[fmt.Sprint(place.GPU)]++
	}
	if cpus > p.Host.CPUs {
		w.t.Fatalf("%d CPUs of %d", cpus, p.Host.CPUs)
	}
	have := 0
	for k, g := range p.GPUs {
		if g.Mode == config.ModeWhole {
			have++
		}
		if g.Shared() && !g.MIGDevice() && (vram[k] > g.Pool || count[fmt.Sprint(k)] > g.Shares) {
			w.t.Fatalf("GPU %d: %s of %s, %d of %d shares", k, vram[k], g.Pool, count[fmt.Sprint(k)], g.Shares)
		}
	}
	if wholes > have {
		w.t.Fatalf("%d whole GPUs of %d", wholes, have)
	}
	for _, m := range p.MIG {
		w.legal(at, m, devices[m.Index])
	}
}

// legal: mig allows the devices in use together.
func (w *watch) legal(at Place, m plan.MIGGPU, used map[string]bool) {
	g := w.pool.Groups[0]
	for _, o := range w.pool.Groups {
		if o.Name == at.Group {
			g = o
		}
	}
	one, _ := g.Inventory.GPU(m.UUID)
	chip, err := mig.ModelOf(one, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	var names []string
	for name := range used {
		names = append(names, name)
	}
	if len(names) == 0 {
		return
	}
	want, err := mig.ParseWant(chip, strings.Join(names, ","))
	if err != nil {
		w.t.Fatal(err)
	}
	if err := mig.Legal(chip, gpu.NewLayout(want.Placed...)); err != nil {
		w.t.Fatalf("%s: %v", names, err)
	}
}

// TestMoreHardware: of equal jobs that are all there, no more hardware makes the end come later.
func TestMoreHardware(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		job := Job{GPUs: 1, CPUs: 1, VRAM: 2000, Memory: 100, Work: Work{Seconds: rapid.Float64Range(10, 1000).Draw(t, "seconds"),
			Kernel: rapid.Float64Range(0, 1).Draw(t, "kernel"), SM: rapid.Float64Range(0, 1).Draw(t, "sm"), Bandwidth: rapid.Float64Range(0, 1).Draw(t, "bandwidth")}}
		var jobs []Job
		for range rapid.IntRange(1, 60).Draw(t, "jobs") {
			jobs = append(jobs, job)
		}
		shares := rapid.IntRange(1, 8).Draw(t, "shares")
		hours := func(gpus int, speed float64) float64 {
			g, err := NewGroup("g", 1, gpus, "A100-40", 256, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			g.Speed = speed
			p := Pool{Groups: []Group{g}, Matching: DefaultMatching(), Model: DefaultModel()}
			p.Matching.Interval, p.Matching.Rank = 0, Spread
			r, err := Run(context.Background(), p, MPS(shares), List(jobs...), Options{})
			if err != nil || r.Ended != len(jobs) {
				t.Fatal(r.Ended, err)
			}
			return r.Hours
		}
		gpus := rapid.IntRange(1, 4).Draw(t, "gpus")
		base := hours(gpus, 1)
		if faster := hours(gpus, 2); faster > base*(1+1e-6) {
			t.Fatalf("twice as fast: %g h after %g h", faster, base)
		}
		if more := hours(2*gpus, 1); more > base*(1+1e-6) {
			t.Fatalf("twice as many: %g h after %g h", more, base)
		}
	})
}

// TestTree: what it finds is what going through all of them finds.
func TestTree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func() amount {
			n := rapid.Int32Range(0, 4)
			return amount{n.Draw(t, "gpus"), n.Draw(t, "vram"), n.Draw(t, "cpus"), n.Draw(t, "memory")}
		}
		all := make([]amount, rapid.IntRange(1, 20).Draw(t, "slots"))
		tr := newTree(len(all))
		for range 40 {
			i := rapid.IntRange(0, len(all)-1).Draw(t, "slot")
			all[i] = draw()
			tr.set(i, all[i])
			want, need := -1, draw()
			need.gpus++ // leaves beyond the slots hold nothing
			for k := len(all) - 1; k >= 0; k-- {
				if all[k].holds(need) {
					want = k
				}
			}
			if got := tr.find(1, need, false); got != want {
				t.Fatalf("first is %d, not %d", got, want)
			}
			if got := tr.find(1, need, true); got < 0 != (want < 0) || got >= 0 && !all[got].holds(need) {
				t.Fatalf("freest is %d", got)
			}
		}
	})
}

// TestAgenda: it is always the earliest, and of equal ones the first.
func TestAgenda(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 30).Draw(t, "slots")
		a, at := newAgenda(n), map[int32]float64{}
		for range 100 {
			i := int32(rapid.IntRange(0, n-1).Draw(t, "slot"))
			if rapid.Bool().Draw(t, "drop") {
				a.drop(i)
				delete(at, i)
			} else {
				at[i] = float64(rapid.IntRange(0, 5).Draw(t, "at"))
				a.set(i, at[i])
			}
			want := int32(-1)
			for k, v := range at {
				if want < 0 || v < at[want] || v == at[want] && k < want {
					want = k
				}
			}
			got, _, ok := a.next()
			if ok != (want >= 0) || ok && got != want {
				t.Fatalf("next is %d (%v), not %d", got, ok, want)
			}
		}
	})
}

// TestHistogram: quantiles are right within 1 %.
func TestHistogram(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(0.01, 1e7), 1, 200).Draw(t, "values")
		var h histogram
		for _, v := range values {
			h.add(v)
		}
		for _, q := range []float64{0.5, 0.95} {
			below := 0
			got := h.quantile(q)
			for _, v := range values {
				if v <= got*1.011 {
					below++
				}
			}
			above := 0
			for _, v := range values {
				if v >= got/1.011 {
					above++
				}
			}
			if float64(below) < q*float64(len(values)) || float64(above) < (1-q)*float64(len(values)) {
				t.Fatalf("quantile %g of %v is %g", q, values, got)
			}
		}
	})
}
