package simulate

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// groupOf makes nodes of the first model that has MIG, or that has not.
func groupOf(t *testing.T, name string, nodes int, mig bool) Group {
	t.Helper()
	for _, key := range Models() {
		g, err := NewGroup(name, nodes, 2, key, 32, 1<<18)
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(g.Inventory.GPUs, func(one gpu.GPU) bool { return one.MIGCapable }) == mig {
			return g
		}
	}
	t.Fatalf("no model with MIG: %v", mig)
	return Group{}
}

// TestUsual: static MIG is usual where there is MIG, dynamic MIG where few
// enough nodes of all groups together have it.
func TestUsual(t *testing.T) {
	half := maxFollowing / 2
	for _, c := range []struct {
		name            string
		groups          []Group
		static, dynamic bool
	}{
		{"no MIG", []Group{groupOf(t, "a", 1, false)}, false, false},
		{"as many nodes as are followed", []Group{groupOf(t, "a", half, true), groupOf(t, "b", half, true), groupOf(t, "c", 9, false)}, true, true},
		{"one more", []Group{groupOf(t, "a", half, true), groupOf(t, "b", half+1, true)}, true, false},
		{"one more, and then one without MIG", []Group{groupOf(t, "a", maxFollowing+1, true), groupOf(t, "b", 1, false)}, true, false},
	} {
		usual, err := File{Pool: Pool{Groups: c.groups, Matching: DefaultMatching()}}.Usual(4)
		if err != nil {
			t.Fatal(c.name, err)
		}
		has := func(name string) bool {
			return slices.ContainsFunc(usual, func(p Policy) bool { return p.Name == name })
		}
		if has(nameStatic) != c.static || has(nameDynamic) != c.dynamic {
			t.Errorf("%s: static %v, dynamic %v", c.name, has(nameStatic), has(nameDynamic))
		}
	}
}

// TestSameJobs: a policy with less VRAM in a slot is compared on the jobs that all can run,
// and what it leaves out stands beside. A long job counts as more work than a short one.
func TestSameJobs(t *testing.T) {
	p := Pool{Groups: []Group{groupOf(t, "a", 1, true)}, Matching: DefaultMatching(), Model: DefaultModel()}
	p.Matching.Interval, p.Matching.Start = 0, 0
	static, err := StaticMIG(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	small := Job{GPUs: 1, CPUs: 1, VRAM: 2048, Memory: 100, Work: Work{Seconds: 100, Kernel: 0.1, SM: 0.1, Bandwidth: 0.1}}
	large, long := small, small
	large.VRAM, long.Seconds = 12000, 1000
	var jobs []Job
	for range 40 {
		jobs = append(jobs, small, large, small, long)
	}
	results, err := Compare(t.Context(), p, []Policy{Exclusive(), static}, func() Jobs { return List(jobs...) }, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{0, 40} {
		if r := results[i]; r.Refused != want || r.Jobs != 120 || r.Ended != 120 {
			t.Errorf("%s: %d of %d ended, %d left out, not %d", r.Policy, r.Ended, r.Jobs, r.Refused, want)
		}
	}
	first, second := results[0], results[1]
	if g := second.Gain; *first.Gain != (Interval{1, 1, 1}) || g.Low > g.Expected || g.High < g.Expected || g.Expected < 1 {
		t.Errorf("%+v %+v", first.Gain, second.Gain)
	}
	// On two GPUs that are never empty the work of two hours is done in an hour.
	if w := first.Full.Work; !near(w, 2, 0.01) {
		t.Errorf("exclusive: %g hours of work in an hour", w)
	}
	alone, err := Compare(t.Context(), p, []Policy{static}, func() Jobs { return List(jobs...) }, nil)
	if err != nil || alone[0].Refused != 40 || alone[0].Jobs != 160 || alone[0].Ended != 120 {
		t.Errorf("%v %+v", err, alone[0])
	}
}

// TestBestStatic: the layout follows the jobs. One large job in many is left out, and a layout
// that the file names stays.
func TestBestStatic(t *testing.T) {
	g, err := NewGroup("a", 1, 2, "A100-40", 64, 1<<18)
	if err != nil {
		t.Fatal(err)
	}
	f := File{Pool: Pool{Groups: []Group{g}, Matching: DefaultMatching(), Model: DefaultModel()}}
	name := g.Inventory.GPUs[0].Name
	jobs := func(n int, vram gpu.MiB) (out []Job) {
		for range n {
			out = append(out, Job{GPUs: 1, CPUs: 1, VRAM: vram, Memory: 100, Work: Work{Seconds: 600, Kernel: 0.2, SM: 0.1}})
		}
		return out
	}
	for what, test := range map[string]struct {
		jobs   []Job
		named  string
		layout string
	}{
		"small":               {jobs(100, 3000), "", "1g.5gb*7"},
		"small and one large": {slices.Concat(jobs(100, 3000), jobs(1, 30000)), "", "1g.5gb*7"},
		"half a GPU":          {jobs(100, 18000), "", "3g.20gb*2"},
		"named":               {jobs(100, 3000), "7g.40gb", "7g.40gb"},
	} {
		f.Layouts = map[string]string{}
		if test.named != "" {
			f.Layouts[name] = test.named
		}
		got, err := f.BestStatic(t.Context(), func() Jobs { return List(test.jobs...) })
		if err != nil || got[name] != test.layout {
			t.Errorf("%s: %q, %v; want %s", what, got[name], err, test.layout)
		}
	}
	// Some of each: the layout by demand has both sizes.
	mixed := byDemand(mustChip(t), slices.Concat(jobs(60, 3000), jobs(20, 9000), jobs(20, 18000)))
	for _, want := range []string{"1g.5gb", "2g.10gb", "3g.20gb"} {
		if !strings.Contains(mixed, want) {
			t.Errorf("%s has no %s", mixed, want)
		}
	}
}

func mustChip(t *testing.T) gpu.Chip {
	t.Helper()
	chip, err := mig.Model("A100-40", 0)
	if err != nil {
		t.Fatal(err)
	}
	return chip
}
