package mig_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// judge scores layouts of one chip by the published rules, in the plainest way.
type judge struct {
	chip    gpu.Chip
	all     []gpu.Layout
	maximal []gpu.Layout
	rooms   map[string][2]int
}

func newJudge(t testing.TB, c gpu.Chip) *judge {
	ls := enumerate(t, c)
	j := &judge{chip: c, rooms: map[string][2]int{}}
	for l := range ls.All() {
		j.all = append(j.all, l)
	}
	for l := range ls.Maximal() {
		j.maximal = append(j.maximal, l)
	}
	return j
}

// room is what a layout can still become: slices, maximal layouts.
func (j *judge) room(l gpu.Layout) [2]int {
	key := ""
	for _, p := range l {
		key += string([]byte{byte(p.Profile), byte(p.Start)})
	}
	if r, known := j.rooms[key]; known {
		return r
	}
	var r [2]int
	for _, m := range j.maximal {
		if len(l.Without(m)) == 0 {
			r = [2]int{max(r[0], mig.CostOf(j.chip, m).Slices), r[1] + 1}
		}
	}
	j.rooms[key] = r
	return r
}

// local is destroyed, created, stranded slices, flexibility;
// less is better but for the last.
func (j *judge) local(g gpu.MIGGPU, l gpu.Layout) [4]int {
	r := j.room(l)
	return [4]int{-len(g.Layout().Without(l)), -len(l.Without(g.Layout())), r[0] - j.chip.Slices(), r[1]}
}

func pinned(g gpu.MIGGPU) (l gpu.Layout) {
	for _, in := range g.Instances {
		if in.Pinned() {
			l = append(l, in.Place)
		}
	}
	return gpu.NewLayout(l...)
}

func number(l gpu.Layout, id gpu.ProfileID) (n int) {
	for _, p := range l {
		if p.Profile == id {
			n++
		}
	}
	return n
}

// drawGPU is a GPU in any state.
func drawGPU(t *rapid.T, j *judge, index int) gpu.MIGGPU {
	g := gpu.MIGGPU{UUID: gpu.UUID(fmt.Sprintf("GPU-%08d-0000-0000-0000-000000000000", index)), Index: index, Chip: j.chip}
	for i, p := range rapid.SampledFrom(j.all).Draw(t, "layout") {
		q, _ := j.chip.Profile(p.Profile)
		in := gpu.Instance{Place: p, Size: q.Size, ID: i + 1, Owner: gpu.Ours}
		switch rapid.IntRange(0, 5).Draw(t, "state") {
		case 0:
			in.Owner = gpu.Foreign
		case 1, 2:
			in.Holders = []gpu.Holder{{Slot: "slot1_" + fmt.Sprint(i)}}
		case 3:
			in.Holders = []gpu.Holder{{PID: 7, Command: "nvidia-cuda-mps", Ours: true}}
		}
		g.Instances = append(g.Instances, in)
	}
	return g
}

// drawDemand may ask for one profile in two groups.
func drawDemand(t *rapid.T, c gpu.Chip, most int) (ds []mig.Demand) {
	for range rapid.IntRange(0, 4).Draw(t, "groups") {
		ds = append(ds, mig.Demand{
			Profile: rapid.SampledFrom(c.Profiles).Draw(t, "profile").Name,
			Count:   rapid.IntRange(0, most).Draw(t, "count"),
			Weight:  int64(rapid.IntRange(0, 3).Draw(t, "weight")),
			Age:     time.Minute * time.Duration(rapid.IntRange(0, 2).Draw(t, "minutes")),
		})
	}
	return ds
}

// worth is weight and age of the best requests that so many instances serve.
func worth(ds []mig.Demand, name string, n int) (v [2]int) {
	var each [][2]int
	for _, d := range ds {
		for range d.Count {
			if d.Profile == name {
				each = append(each, [2]int{max(int(d.Weight), 1), int(d.Age.Seconds())})
			}
		}
	}
	slices.SortFunc(each, func(a, b [2]int) int { return -slices.Compare(a[:], b[:]) })
	for _, e := range each[:min(n, len(each))] {
		v[0], v[1] = v[0]+e[0], v[1]+e[1]
	}
	return v
}

// total scores a choice of layouts for a node.
func total(js []*judge, gpus []gpu.MIGGPU, ds []mig.Demand, chosen []gpu.Layout) []int {
	served, out := map[string]int{}, make([]int, 6)
	for i, g := range gpus {
		for _, p := range chosen[i].Without(pinned(g)) {
			q, _ := js[i].chip.Profile(p.Profile)
			served[q.Name]++
		}
		for k, v := range js[i].local(g, chosen[i]) {
			out[2+k] += v
		}
	}
	for name, n := range served {
		v := worth(ds, name, n)
		out[0], out[1] = out[0]+v[0], out[1]+v[1]
	}
	return out
}

// byKind are the numbers of the GPUs, those in equal state together.
func byKind(gpus []gpu.MIGGPU) (order []int) {
	for i := range gpus {
		for k := i; k < len(gpus); k++ {
			same := gpus[i].Chip.Model == gpus[k].Chip.Model && gpus[i].Layout().Equal(gpus[k].Layout()) && pinned(gpus[i]).Equal(pinned(gpus[k]))
			if same && !slices.Contains(order, k) {
				order = append(order, k)
			}
		}
	}
	return order
}

// bruteForce tries every layout on every GPU, the lowest first.
func bruteForce(js []*judge, gpus []gpu.MIGGPU, ds []mig.Demand) (best []gpu.Layout, score []int) {
	chosen, order := make([]gpu.Layout, len(gpus)), byKind(gpus)
	var try func(i int)
	try = func(i int) {
		if i == len(gpus) {
			if s := total(js, gpus, ds, chosen); best == nil || slices.Compare(s, score) > 0 {
				best, score = slices.Clone(chosen), s
			}
			return
		}
		g := order[i]
		for _, l := range js[g].all {
			if len(pinned(gpus[g]).Without(l)) == 0 {
				chosen[g] = l
				try(i + 1)
			}
		}
	}
	try(0)
	return best, score
}

func layoutsOf(p mig.Plan) (ls []gpu.Layout) {
	for _, g := range p.GPUs {
		ls = append(ls, g.Layout)
	}
	return ls
}

// TestPlanDemandOptimal: on one GPU of each model, the plan is the one that
// trying everything finds.
func TestPlanDemandOptimal(t *testing.T) {
	for _, model := range mig.Models() {
		t.Run(model, func(t *testing.T) {
			t.Parallel()
			j := newJudge(t, chip(t, model))
			var catalogue mig.Catalogue
			rapid.Check(t, func(t *rapid.T) { checkOptimal(t, &catalogue, []*judge{j}, 4) })
		})
	}
}

// TestPlanDemandNodeOptimal: the same for GPUs together, also of different
// models; among equally good plans, that in which GPUs in equal state, taken
// together, have the lowest layouts.
func TestPlanDemandNodeOptimal(t *testing.T) {
	a30, rtx := newJudge(t, chip(t, "A30-24")), newJudge(t, chosen(chip(t, "RTXPRO6000-96"), "plain"))
	plain, a100 := newJudge(t, chosen(a30.chip, "plain")), newJudge(t, smallA100(t))
	for name, js := range map[string][]*judge{
		"two A30": {a30, a30}, "three A30": {plain, plain, plain}, "mixed": {rtx, a30}, "two A100": {a100, a100},
	} {
		t.Run(name, func(t *testing.T) {
			var catalogue mig.Catalogue
			rapid.Check(t, func(t *rapid.T) { checkOptimal(t, &catalogue, js, 6) })
		})
	}
}

// smallA100 has few enough layouts to try all pairs.
func smallA100(t testing.TB) gpu.Chip {
	c := chosen(chip(t, "A100-40"), "classic")
	c.Profiles = slices.DeleteFunc(c.Profiles, func(p gpu.Profile) bool { return p.Slices == 1 })
	return c
}

func checkOptimal(t *rapid.T, catalogue *mig.Catalogue, js []*judge, most int) {
	var gpus []gpu.MIGGPU
	for i, j := range js {
		g := drawGPU(t, j, i)
		if i > 0 && js[i-1] == j && rapid.Bool().Draw(t, "like the last") {
			g.Instances = gpus[i-1].Instances
		}
		gpus = append(gpus, g)
	}
	ds := drawDemand(t, rapid.SampledFrom(js).Draw(t, "of").chip, most)
	plan, err := mig.PlanDemand(catalogue, gpus, ds)
	if err != nil || !plan.Proven {
		t.Fatalf("proven %t: %v", plan.Proven, err)
	}
	// Of plans with one score, either may come out.
	want, score := bruteForce(js, gpus, ds)
	if got := layoutsOf(plan); !reflect.DeepEqual(score, total(js, gpus, ds, got)) {
		t.Fatalf("score %v, planned %v (-brute force +plan):\n%s", score, total(js, gpus, ds, got), cmp.Diff(want, got, cmpopts.EquateEmpty()))
	}
	checkSteps(t, gpus, plan)
	checkServed(t, gpus, ds, plan)
}

// checkSteps does the steps: each must be legal when its turn comes, none may
// touch a pinned instance, and they end in the plan.
func checkSteps(t *rapid.T, gpus []gpu.MIGGPU, plan mig.Plan) {
	for i, g := range gpus {
		now, created := g.Layout(), false
		for _, s := range plan.Steps {
			if s.GPU != g.UUID {
				continue
			}
			if s.Verb == mig.Create {
				now, created = gpu.NewLayout(append(now, s.Place)...), true
				if err := mig.Legal(g.Chip, now); err != nil {
					t.Fatalf("%v: %v", s, err)
				}
				continue
			}
			k := slices.IndexFunc(g.Instances, func(in gpu.Instance) bool { return in.Place == s.Place && in.ID == s.Instance })
			if k < 0 || g.Instances[k].Pinned() || created {
				t.Fatalf("%v: pinned, unknown, or after a create", s)
			}
			now = now.Without(gpu.Layout{s.Place})
		}
		if d := cmp.Diff([]gpu.Place(plan.GPUs[i].Layout), []gpu.Place(now), cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("the steps do not end in the plan:\n%s", d)
		}
	}
}

// checkServed: the numbers are those of the layouts, and what is not served is
// explained: one more would be possible if what it waits for were gone.
func checkServed(t *rapid.T, gpus []gpu.MIGGPU, ds []mig.Demand, plan mig.Plan) {
	for _, s := range plan.Served {
		asked, free := 0, 0
		for _, d := range ds {
			if d.Profile == s.Profile {
				asked += d.Count
			}
		}
		for i, g := range gpus {
			if p, err := mig.ProfileNamed(g.Chip, s.Profile); err == nil {
				free += number(plan.GPUs[i].Layout.Without(pinned(g)), p.ID)
			}
		}
		if s.Wanted != asked || s.Served != min(asked, free) || (s.Why == "") != (s.Served == s.Wanted) {
			t.Fatalf("%+v, asked %d, free %d", s, asked, free)
		}
		if s.Waits != nil && len(s.Waits.For) == 0 {
			t.Fatalf("%+v waits for nothing", s)
		}
	}
}
