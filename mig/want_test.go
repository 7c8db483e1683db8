package mig_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// busy is a GPU with a layout whose instances named are in use.
func busyGPU(t testing.TB, model, layout, used string) gpu.MIGGPU {
	t.Helper()
	c := chip(t, model)
	w, err := mig.ParseWant(c, layout)
	if err != nil {
		t.Fatal(err)
	}
	g := gpu.MIGGPU{UUID: "GPU-00000000-0000-0000-0000-000000000000", Chip: c}
	for i, p := range w.Placed {
		in := gpu.Instance{Place: p, ID: i + 1, Owner: gpu.Ours}
		if slices.Contains(strings.Split(used, ","), c.FormatPlace(p)) {
			in.Holders = []gpu.Holder{{Slot: "slot1_2", PID: 4711, Command: "python3"}}
		}
		g.Instances = append(g.Instances, in)
	}
	return g
}

func wants(t testing.TB, c gpu.Chip, texts ...string) (ws []mig.Want) {
	t.Helper()
	for _, s := range texts {
		w, err := mig.ParseWant(c, s)
		if err != nil {
			t.Fatal(err)
		}
		ws = append(ws, w)
	}
	return ws
}

// TestPlanWant: the cases of a re-partition beside jobs, and where instances go
// on an empty GPU: 1g at 6 and downwards, 3g at 4, so that the most stays possible.
func TestPlanWant(t *testing.T) {
	for name, k := range map[string]struct {
		now, used string
		want      []string
		after     string
		choice    int
		why       string
	}{
		"empty":            {"none", "", []string{"1g.5gb"}, "1g.5gb@6", 0, ""},
		"3g goes up":       {"none", "", []string{"3g.20gb"}, "3g.20gb@4", 0, ""},
		"two":              {"none", "", []string{"3g.20gb,1g.5gb"}, "1g.5gb@0,3g.20gb@4", 0, ""},
		"beside jobs":      {"1g.5gb@0,1g.5gb@1,1g.5gb@2,1g.5gb@3,1g.5gb@4,1g.5gb@5,1g.5gb@6", "1g.5gb@2,1g.5gb@3", []string{"3g.20gb,2g.10gb,1g.5gb*2"}, "2g.10gb@0,1g.5gb@2,1g.5gb@3,3g.20gb@4", 0, ""},
		"keeps idle":       {"2g.10gb@2", "", []string{"2g.10gb"}, "2g.10gb@2", 0, ""},
		"drops idle":       {"2g.10gb@2,1g.5gb@6", "", []string{"2g.10gb"}, "2g.10gb@2", 0, ""},
		"keeps busy":       {"2g.10gb@2,1g.5gb@6", "1g.5gb@6", []string{"2g.10gb"}, "2g.10gb@2,1g.5gb@6", 0, ""},
		"none":             {"2g.10gb@2,1g.5gb@6", "", []string{"none"}, "none", 0, ""},
		"first choice":     {"none", "", []string{"1g.5gb", "3g.20gb"}, "1g.5gb@6", 0, ""},
		"second choice":    {"1g.5gb@1", "1g.5gb@1", []string{"4g.20gb,3g.20gb", "3g.20gb,1g.5gb*4"}, "1g.5gb@0,1g.5gb@1,1g.5gb@2,1g.5gb@3,3g.20gb@4", 1, ""},
		"blocked":          {"1g.5gb@5", "1g.5gb@5", []string{"3g.20gb*2"}, "3g.20gb@0,1g.5gb@5", 0, "3g.20gb@4 on GPU-00000000-0000-0000-0000-000000000000 waits for what is in its way: 1g.5gb@5 is used by slot1_2 (pid 4711 python3)"},
		"blocked, reserve": {"1g.5gb@5,1g.5gb@6", "1g.5gb@5", []string{"3g.20gb*2"}, "3g.20gb@0,1g.5gb@5", 0, "3g.20gb@4 on GPU-00000000-0000-0000-0000-000000000000 waits for what is in its way: 1g.5gb@5 is used by slot1_2 (pid 4711 python3); idle, to be kept free for it: 1g.5gb@6"},
		"placed":           {"1g.5gb@0", "", []string{"1g.5gb@3"}, "1g.5gb@3", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := busyGPU(t, "A100-40", k.now, k.used)
			p, err := mig.PlanWant(&mig.Catalogue{}, g, wants(t, g.Chip, k.want...)...)
			if err != nil {
				t.Fatal(err)
			}
			why := ""
			for _, s := range p.Served {
				why += s.Why
			}
			var pinned []string
			for _, name := range strings.FieldsFunc(k.used, func(r rune) bool { return r == ',' }) {
				pinned = append(pinned, name+" is used by slot1_2 (pid 4711 python3)")
			}
			got, want := []any{p.GPUs[0].After, p.Choice, why, p.GPUs[0].Pinned}, []any{k.after, k.choice, k.why, pinned}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

// TestPlanWantImpossible: what no GPU of the model can have is an error with
// its arithmetic.
func TestPlanWantImpossible(t *testing.T) {
	g := busyGPU(t, "A100-40", "none", "")
	for text, why := range map[string]string{
		"1g.5gb*8":                   "no such layout: A100-40GB has at most 7 of 1g.5gb, not 8",
		"4g.20gb,4g.20gb":            "no such layout: A100-40GB has at most 1 of 4g.20gb, not 2",
		"4g.20gb,3g.20gb,1g.5gb":     "no such layout: 4g.20gb,3g.20gb,1g.5gb takes 8 compute slices; A100-40GB has 7",
		"1g.10gb*4,1g.5gb*3":         "no such layout: 1g.10gb*4,1g.5gb*3 takes 11 units of memory; A100-40GB has 8",
		"3g.20gb@0,3g.20gb@4,1g.5gb": "no such layout: 3g.20gb@0,3g.20gb@4,1g.5gb takes 9 units of memory; A100-40GB has 8",
		"3g.20gb@0,4g.20gb":          "no such layout: 3g.20gb@0,4g.20gb cannot stand together on A100-40GB",
		"3g.20gb@0,4g.20gb@0":        "no such layout: 3g.20gb@0 and 4g.20gb@0 overlap",
		"7g.40gb,1g.5gb+me":          "no such layout: 7g.40gb,1g.5gb+me takes 8 compute slices; A100-40GB has 7",
	} {
		_, err := mig.PlanWant(&mig.Catalogue{}, g, wants(t, g.Chip, text)...)
		if err == nil || !strings.HasPrefix(err.Error(), "no such layout: ") || err.Error() != why {
			t.Errorf("%s: %v\nwant %s", text, err, why)
		}
	}
	if _, err := mig.PlanWant(&mig.Catalogue{}, g); err == nil {
		t.Error("a plan for no layout at all")
	}
}

// TestPlanWantOptimal: the plan for a wanted layout is the one that trying
// everything finds, on every model.
func TestPlanWantOptimal(t *testing.T) {
	for _, model := range mig.Models() {
		t.Run(model, func(t *testing.T) {
			t.Parallel()
			j := newJudge(t, chip(t, model))
			var catalogue mig.Catalogue
			rapid.Check(t, func(t *rapid.T) {
				g := drawGPU(t, j, 0)
				w := drawWant(t, j)
				plan, err := mig.PlanWant(&catalogue, g, w)
				if err != nil {
					t.Fatal(err)
				}
				var best gpu.Layout
				var score []int
				for _, l := range j.all {
					if s, ok := j.wanted(g, w, l); ok && (score == nil || slices.Compare(s, score) > 0) {
						best, score = l, s
					}
				}
				if !best.Equal(plan.GPUs[0].Layout) {
					t.Fatalf("%s wanted: planned %s, best %s", mig.FormatWant(j.chip, w), plan.GPUs[0].After, j.chip.Format(best))
				}
				checkSteps(t, []gpu.MIGGPU{g}, plan)
			})
		})
	}
}

// drawWant asks for any legal layout, some of it without saying where.
func drawWant(t *rapid.T, j *judge) (w mig.Want) {
	counts := map[gpu.ProfileID]int{}
	for _, p := range rapid.SampledFrom(j.all).Draw(t, "wanted") {
		if rapid.IntRange(0, 3).Draw(t, "placed") == 0 {
			w.Placed = append(w.Placed, p)
		} else {
			counts[p.Profile]++
		}
	}
	for _, p := range j.chip.Profiles {
		if n := counts[p.ID]; n > 0 {
			w.Counts = append(w.Counts, mig.Count{Profile: p.ID, N: n})
		}
	}
	return w
}

// wanted scores a layout that keeps what is pinned and adds nothing unasked for.
func (j *judge) wanted(g gpu.MIGGPU, w mig.Want, l gpu.Layout) ([]int, bool) {
	if len(pinned(g).Without(l)) > 0 {
		return nil, false
	}
	slicesServed, served := 0, 0
	for _, p := range j.chip.Profiles {
		asked := 0
		for _, k := range w.Counts {
			if k.Profile == p.ID {
				asked = k.N
			}
		}
		free, placed := number(l.Without(w.Placed), p.ID), number(l, p.ID)-number(l.Without(w.Placed), p.ID)
		if free > max(asked, number(pinned(g).Without(w.Placed), p.ID)) {
			return nil, false
		}
		n := min(free, asked) + placed
		slicesServed, served = slicesServed+n*p.Slices, served+n
	}
	local := j.local(g, l)
	return append([]int{slicesServed, served}, local[:]...), true
}

func TestCost(t *testing.T) {
	for _, k := range []struct {
		model, layout   string
		sms, lost, unit int
		warnings        int
	}{ // SM budgets per layout as listed publicly
		{"A100-40", "7g.40gb@0", 98, 10, 8, 1},
		{"A100-40", "1g.5gb*7", 98, 10, 7, 0},
		{"A100-40", "3g.20gb*2", 84, 24, 8, 0},
		{"A100-40", "1g.10gb*4", 56, 52, 8, 0},
		{"H100-80", "7g.80gb@0", 132, 0, 8, 0},
		{"H100-80", "1g.10gb*7", 112, 20, 7, 0},
		{"H100-80", "4g.40gb,3g.40gb", 124, 8, 8, 0},
		{"H100-80", "1g.20gb*4", 104, 28, 8, 0},
		{"A30-24", "4g.24gb", 56, 0, 4, 0},
		{"A30-24", "none", 0, 56, 0, 1},
	} {
		g := busyGPU(t, k.model, "none", "")
		p, err := mig.PlanWant(&mig.Catalogue{}, g, wants(t, g.Chip, k.layout)...)
		if err != nil {
			t.Fatal(err)
		}
		c := p.GPUs[0].Cost
		lost, known := c.LostMultiprocessors()
		if c.Multiprocessors != k.sms || lost != k.lost || !known || c.Units != k.unit || len(p.GPUs[0].Warnings) != k.warnings {
			t.Errorf("%s %s: %+v %v, want %+v", k.model, k.layout, c, p.GPUs[0].Warnings, k)
		}
	}
	c := chip(t, "GB300-278")
	w := wants(t, c, "1g.35gb@0")
	if _, known := mig.CostOf(c, w[0].Placed).LostMultiprocessors(); known {
		t.Error("SMs of a chip whose SMs are not published are known")
	}
	c.Multiprocessors = 0
	if _, known := mig.CostOf(c, nil).LostMultiprocessors(); known {
		t.Error("SMs that a chip without a number of them loses are known")
	}
}

// TestCostOfMemory: the memory of a layout is known where that of each profile is.
func TestCostOfMemory(t *testing.T) {
	c := chip(t, "A100-40")
	w := wants(t, c, "3g.20gb@0")
	p, _ := c.Profile(w[0].Placed[0].Profile)
	if k := mig.CostOf(c, w[0].Placed); k.Memory != p.Memory || k.Memory == 0 {
		t.Errorf("%s, want %s", k.Memory, p.Memory)
	}
}

func TestModelOf(t *testing.T) {
	for name, k := range map[string]struct {
		memory gpu.MiB
		want   string
	}{
		"NVIDIA A100-SXM4-40GB": {40960, "A100-40GB"}, "NVIDIA A100 80GB PCIe": {81920, "A100-80GB"},
		"NVIDIA H100 80GB HBM3": {81559, "H100-80GB"}, "NVIDIA H100 NVL": {95830, "H100-94GB"},
		"NVIDIA GH200 480GB": {97871, "GH200-96GB"}, "NVIDIA H200": {143771, "H200-141GB"},
		"NVIDIA A30": {24576, "A30-24GB"}, "NVIDIA RTX PRO 6000 Blackwell Server Edition": {97887, "RTXPRO6000-96GB"},
		"Tesla V100S-PCIE-32GB": {32768, ""}, "NVIDIA RTX PRO 5000 Blackwell": {48935, ""},
	} {
		c, err := mig.ModelOf(gpu.GPU{Name: name, Memory: k.memory}, 0)
		if c.Model != k.want || (err == nil) != (k.want != "") {
			t.Errorf("%s: %q: %v", name, c.Model, err)
		}
	}
	for memory, is := range map[gpu.MiB]bool{22319: false, 22320: true, 25313: true, 25314: false} { // 7 % below 24 GB, 3 % above 24 GiB
		c, err := mig.ModelOf(gpu.GPU{Name: "NVIDIA A30", Memory: memory}, 0)
		if (err == nil) != is || is && c.Multiprocessors != 56 {
			t.Errorf("an A30 with %s: %d SMs, %v", memory, c.Multiprocessors, err)
		}
	}
	c, err := mig.ModelOf(gpu.GPU{Name: "NVIDIA H100 PCIe", Memory: 81559, Multiprocessors: 114}, 0)
	if err != nil || c.Multiprocessors != 114 || c.Profiles[0].Multiprocessors != 0 {
		t.Errorf("H100 PCIe: %+v: %v", c, err)
	}
}
