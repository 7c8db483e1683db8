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

// TestMove: each GPU changes sides by itself, once there is no job of the other, and HTCondor has heard of it.
func TestMove(t *testing.T) {
	idle, shared, whole, held := GPU{}, GPU{Shared: true}, GPU{Whole: true}, GPU{Held: true}
	const long, short = 2, 1 // seconds since HTCondor has heard
	for name, c := range map[string]struct {
		is     Side
		gpu    GPU
		target int // with 1 it shall serve whole jobs
		open   int
		heard  int
		want   Side
	}{
		"stays shared":                 {Shared, idle, 0, 0, long, Shared},
		"begins to leave":              {Shared, shared, 1, 0, short, Leaving},
		"has left":                     {Leaving, idle, 1, 0, long, Whole},
		"has just begun to leave":      {Leaving, idle, 1, 0, short, Leaving},
		"leaves, with a shared job":    {Leaving, shared, 1, 0, long, Leaving},
		"leaves, with a slot":          {Leaving, held, 1, 0, long, Leaving},
		"stays after all":              {Leaving, idle, 0, 0, long, Shared},
		"stays after all, with a job":  {Leaving, shared, 0, 0, short, Shared},
		"leaves, and a whole job came": {Leaving, whole, 0, 0, long, Leaving},
		"stays whole":                  {Whole, idle, 1, 1, long, Whole},
		"goes back":                    {Whole, idle, 0, 0, long, Shared},
		"is still open":                {Whole, idle, 0, 1, long, Whole},
		"was just closed":              {Whole, idle, 0, 0, short, Whole},
		"has a whole job":              {Whole, whole, 0, 0, long, Whole},
		"has a slot":                   {Whole, held, 0, 0, long, Whole},
	} {
		s := State{Sides: []Side{c.is}, Moved: []time.Time{at(0)}, Lowered: at(0), Target: c.target, Open: c.open}
		s.move(Now{At: at(9), Heard: at(c.heard), GPUs: []GPU{c.gpu}})
		if s.Sides[0] != c.want || s.Moved[0].Equal(at(9)) != (c.is != c.want) {
			t.Errorf("%s: side %d, want %d, moved at %s", name, s.Sides[0], c.want, s.Moved[0])
		}
	}
}

// TestSince: the monitor hears since when its answer is so, whichever part of it changed last.
func TestSince(t *testing.T) {
	g, _, _, _ := newGroup(2)
	long := config.Elastic{MinWhole: 1, Patience: time.Second, Stay: time.Hour, Offer: time.Hour}
	for _, c := range []struct {
		name    string
		before  func()
		demand  Demand
		changes bool
	}{
		{"a side", func() {}, wholeJob(1, time.Time{}), true},
		{"nothing", func() {}, wholeJob(1, time.Time{}), false},
		{"how many are open", func() {
			g.state.Sides[0] = Whole
			g.SetUp(func(gpu.UUID) bool { return true })
		}, wholeJob(1, time.Time{}), true},
		{"nothing more", func() {}, wholeJob(1, time.Time{}), false},
		{"the least", func() { g.state.Sides[1], g.state.Target, g.state.Open, g.ready[uuid(1)] = Whole, 2, 2, true }, wholeJob(2, time.Time{}), true},
	} {
		c.before()
		g.changed = time.Time{}
		g.Round(t.Context(), long, c.demand, never)
		if now := g.Open().Since; now.IsZero() == c.changes {
			t.Errorf("%s: since %v, %+v", c.name, now, g.state)
		}
	}
}
