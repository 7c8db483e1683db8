package mig_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// TestWhyNotMore: a plan says which GPU could serve one more first, and what is in the way there.
func TestWhyNotMore(t *testing.T) {
	for name, k := range map[string]struct {
		// layouts of the GPUs, and which of their instances are in use.
		layouts, used [2]string
		profile       string
		count         int
		why           string
		wait          *mig.Wait
	}{
		"the first is full": {[2]string{"none", "7g.40gb@0"}, [2]string{"", "7g.40gb@0"}, "1g.5gb", 8,
			"waits for what is in its way", &mig.Wait{GPU: gpuNamed(1), Place: "1g.5gb@6", For: []string{"7g.40gb@0"}}},
		"the last is full": {[2]string{"7g.40gb@0", "none"}, [2]string{"7g.40gb@0", ""}, "1g.5gb", 8,
			"waits for what is in its way", &mig.Wait{GPU: gpuNamed(0), Place: "1g.5gb@6", For: []string{"7g.40gb@0"}}},
		"fewest on the last": {[2]string{"1g.5gb@0,1g.5gb@1", "2g.10gb@0"}, [2]string{"1g.5gb@0,1g.5gb@1", "2g.10gb@0"}, "4g.20gb", 1,
			"waits for", &mig.Wait{GPU: gpuNamed(1), Place: "4g.20gb@0", For: []string{"2g.10gb@0"}}},
		"fewest on the first": {[2]string{"2g.10gb@0", "1g.5gb@0,1g.5gb@1"}, [2]string{"2g.10gb@0", "1g.5gb@0,1g.5gb@1"}, "4g.20gb", 1,
			"waits for", &mig.Wait{GPU: gpuNamed(0), Place: "4g.20gb@0", For: []string{"2g.10gb@0"}}},
		"as many on both": {[2]string{"2g.10gb@0", "1g.5gb@0"}, [2]string{"2g.10gb@0", "1g.5gb@0"}, "4g.20gb", 1,
			"waits for", &mig.Wait{GPU: gpuNamed(0), Place: "4g.20gb@0", For: []string{"2g.10gb@0"}}},
		"an idle one, too": {[2]string{"1g.5gb@0,1g.5gb@1", "7g.40gb@0"}, [2]string{"1g.5gb@1", ""}, "4g.20gb", 2,
			"idle, to be kept free for it: 1g.5gb@0",
			&mig.Wait{GPU: gpuNamed(0), Place: "4g.20gb@0", For: []string{"1g.5gb@1"}, Reserve: []string{"1g.5gb@0"}}},
		"fewest idle ones": {[2]string{"1g.5gb@0,1g.5gb@5,1g.5gb@6", "7g.40gb@0"}, [2]string{"1g.5gb@0,1g.5gb@5", "7g.40gb@0"}, "3g.20gb", 1,
			"waits for", &mig.Wait{GPU: gpuNamed(0), Place: "3g.20gb@0", For: []string{"1g.5gb@0"}}},
		"the first place of two": {[2]string{"1g.5gb@0,1g.5gb@4", "7g.40gb@0"}, [2]string{"1g.5gb@0,1g.5gb@4", "7g.40gb@0"}, "3g.20gb", 1,
			"waits for", &mig.Wait{GPU: gpuNamed(0), Place: "3g.20gb@0", For: []string{"1g.5gb@0"}}},
		"no room for more": {[2]string{"none", "none"}, [2]string{}, "7g.40gb", 3, "the GPUs have as many as they can", nil},
	} {
		var node []gpu.MIGGPU
		for i := range k.layouts {
			g := busyGPU(t, "A100-40", k.layouts[i], k.used[i])
			g.UUID, g.Index = gpuNamed(i), i
			node = append(node, g)
		}
		plan, err := mig.PlanDemand(&mig.Catalogue{}, node, []mig.Demand{{Profile: k.profile, Count: k.count}})
		if err != nil {
			t.Fatal(err)
		}
		got := plan.Served[0]
		if w := got.Waits; w != nil {
			for i, s := range w.For {
				w.For[i], _, _ = strings.Cut(s, " is used by ")
			}
		}
		if d := cmp.Diff(k.wait, got.Waits); d != "" || !strings.Contains(got.Why, k.why) {
			t.Errorf("%s: %s (-want +got):\n%s", name, got.Why, d)
		}
	}
	worth := []mig.Demand{{Profile: "7g.40gb", Count: 1}, {Profile: "1g.5gb", Count: 1, Weight: 100}}
	plan, err := mig.PlanDemand(&mig.Catalogue{}, []gpu.MIGGPU{busyGPU(t, "A100-40", "none", "")}, worth)
	if why := plan.Served[0].Why; err != nil || why != "other instances of the plan are worth more, or disturb less, in its room" {
		t.Errorf("%q, %v", why, err)
	}
}

func gpuNamed(i int) gpu.UUID {
	return gpu.UUID(fmt.Sprintf("GPU-%08d-0000-0000-0000-000000000000", i))
}

// TestDemandRefused: what cannot be valued is an error, and not a plan for nothing.
func TestDemandRefused(t *testing.T) {
	const most, oldest = 1_000_000_000, 100_000 * time.Hour
	for name, k := range map[string]struct {
		demand []mig.Demand
		says   string
	}{
		"no job":          {[]mig.Demand{{Profile: "1g.5gb"}}, ""},
		"the most":        {[]mig.Demand{{Profile: "1g.5gb", Count: 1, Weight: most, Age: oldest}}, ""},
		"fewer than none": {[]mig.Demand{{Profile: "1g.5gb", Count: -1}}, "count -1"},
		"negative weight": {[]mig.Demand{{Profile: "1g.5gb", Count: 1, Weight: -1}}, "weight -1"},
		"too much weight": {[]mig.Demand{{Profile: "1g.5gb", Count: 1, Weight: most + 1}}, "weight 1000000001"},
		"negative age":    {[]mig.Demand{{Profile: "1g.5gb", Count: 1, Age: -1}}, "age -1ns"},
		"too old":         {[]mig.Demand{{Profile: "1g.5gb", Count: 1, Age: oldest + 1}}, "the age at most 100000h"},
		"no such profile": {[]mig.Demand{{Profile: "1g.99gb", Count: 1}}, "1g.99gb"},
		"two names":       {[]mig.Demand{{Profile: "1g.5gb", Count: 1}, {Profile: "MIG 1g.5gb", Count: 1}}, "names one profile twice"},
	} {
		plan, err := mig.PlanDemand(&mig.Catalogue{}, []gpu.MIGGPU{busyGPU(t, "A100-40", "none", "")}, k.demand)
		if (err == nil) != (k.says == "") || err != nil && !strings.Contains(err.Error(), k.says) {
			t.Errorf("%s: %v, want %q", name, err, k.says)
		}
		if err != nil && len(plan.GPUs) > 0 {
			t.Errorf("%s: a plan beside the error", name)
		}
	}
}
