package layouts

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/mig"
)

// TestOneDecisionForEachAnswer: rounds without another answer of the pool decide nothing, and what was decided stays.
func TestOneDecisionForEachAnswer(t *testing.T) {
	n := followingNode(t, "auto", atOnce)
	was, had := n.ask(wantsThree).Repartition, n.has()
	for range 2 {
		if d := cmp.Diff(was, n.round().Repartition); d != "" || n.has() != had {
			t.Errorf("there is %s, (-was +is):\n%s", n.has(), d)
		}
	}
}

// TestAnswerIsKept: while it is not known which devices jobs have, nothing is decided, and neither without hardware. The
// next round that can decides on the answer.
func TestAnswerIsKept(t *testing.T) {
	n := followingNode(t, "auto", atOnce)
	was, had := n.ask(wantsThree).Repartition, n.has()
	n.unknown = "the job in slot1_1 is not known"
	if d := cmp.Diff(was, n.ask(wantsThree).Repartition); d != "" || n.has() != had {
		t.Errorf("there is %s, (-was +is):\n%s", n.has(), d)
	}
	n.unknown = ""
	at := n.now()
	n.executor.Hardware = nil
	if d := cmp.Diff(was, n.Round(t.Context(), at).Repartition); d != "" {
		t.Errorf("without hardware (-was +is):\n%s", d)
	}
	n.executor.Hardware = n.gpu
	if n.round(); n.followed != 1 {
		t.Errorf("%d layouts followed the work, there is %s", n.followed, n.has())
	}
}

// TestInForce: each setting that a GPU has is there with what was decided last, or with nothing yet.
func TestInForce(t *testing.T) {
	auto, suggest := api.StatusRepartition{Setting: "auto", Act: "change"}, api.StatusRepartition{Setting: "suggest", Act: "suggest"}
	type all = []api.StatusRepartition
	for name, c := range map[string]struct {
		settings  []mig.Repartition
		old, want all
	}{
		"both":                {[]mig.Repartition{mig.Suggest, mig.Auto}, all{auto, suggest}, all{auto, suggest}},
		"the second":          {[]mig.Repartition{mig.Suggest}, all{auto, suggest}, all{suggest}},
		"nothing was decided": {[]mig.Repartition{mig.Suggest, mig.Auto}, nil, all{{Setting: "auto"}, {Setting: "suggest"}}},
		"the first is new":    {[]mig.Repartition{mig.Suggest, mig.Auto}, all{suggest}, all{{Setting: "auto"}, suggest}},
		"none":                {[]mig.Repartition{mig.Static}, all{auto, suggest}, nil},
	} {
		var p plan.Plan
		for _, how := range c.settings {
			p.MIG = append(p.MIG, plan.MIGGPU{Repartition: how})
		}
		if d := cmp.Diff(c.want, inForce(c.old, &p)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// TestDecisionIsNotedOnce: what is new goes into the history, for as long as it is decided, and again after that.
func TestDecisionIsNotedOnce(t *testing.T) {
	n := followingNode(t, "suggest", "")
	for i, d := range []mig.Decision{
		{Act: mig.Nothing, Why: "no work waits"}, {Act: mig.Propose, Why: "a."}, {Act: mig.Propose, Why: "a."},
		{Act: mig.Nothing, Why: "no work waits"}, {Act: mig.Propose, Why: "a."}, {Act: mig.Reserve, Why: "b"}, {Act: mig.Replan, Why: "c"},
	} {
		n.logDecision(mig.Suggest, d)
		if want := []int{0, 1, 1, 1, 2, 3, 4}[i]; len(n.noted) != want {
			t.Errorf("decision %d: noted %q, want %d", i, n.noted, want)
		}
	}
	if !slices.Contains(n.noted, "repartition = suggest: a.") || !slices.Contains(n.noted, "repartition = suggest: b.") {
		t.Errorf("noted %q", n.noted)
	}
}
