package elastic

import (
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
)

// TestRulesOf: without max_whole all GPUs may serve whole jobs, and never more than there are.
func TestRulesOf(t *testing.T) {
	for _, c := range []struct{ minimum, maximum, n, least, most int }{
		{0, 0, 4, 0, 4}, {0, 1, 4, 0, 1}, {0, 2, 4, 0, 2}, {0, 8, 4, 0, 4}, {3, 2, 4, 2, 2}, {1, 0, 4, 1, 4}, {8, 0, 4, 4, 4},
	} {
		site := config.Elastic{MinWhole: c.minimum, MaxWhole: c.maximum, Patience: 1, Stay: 2, Offer: 3}
		if got := RulesOf(site, c.n); got != (Rules{Min: c.least, Max: c.most, Patience: 1, Stay: 2, Offer: 3}) {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}

// TestAnotherPlanDuringARound: what was seen of the GPUs of the plan before counts for nothing.
func TestAnotherPlanDuringARound(t *testing.T) {
	g, _, _, _ := newGroup(2)
	before := g.changed
	another := func(gpu.UUID) bool {
		g.Follow(planOf(1), plan.Plan{}, time.Now())
		return false
	}
	all := config.Elastic{MinWhole: 2, Patience: time.Second, Stay: time.Second, Offer: time.Minute}
	if g.Round(t.Context(), all, Demand{}, another) || len(g.state.Sides) != 1 || g.state.Target != 0 || g.changed != before {
		t.Errorf("%+v", g.state)
	}
	g.Round(t.Context(), all, Demand{}, never)
	if g.state.Target != 1 {
		t.Errorf("the next round: %+v", g.state)
	}
}
