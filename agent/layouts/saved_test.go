package layouts

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
	"github.com/gpuslot/gpuslot/test/instances"
)

// TestSteer: a chosen layout goes before those of the configuration, on GPUs whose layout follows the work.
func TestSteer(t *testing.T) {
	s := saved{Chosen: map[gpu.UUID]string{testGPU: "3g.20gb@4"}}
	for name, c := range map[string]struct {
		gpu  plan.MIGGPU
		want []string
	}{
		"chosen":        {plan.MIGGPU{UUID: testGPU, Repartition: mig.Auto, Placed: []string{"7g.40gb@0"}}, []string{"3g.20gb@4", "7g.40gb@0"}},
		"not chosen":    {plan.MIGGPU{UUID: "GPU-1", Repartition: mig.Auto, Placed: []string{"7g.40gb@0"}}, []string{"7g.40gb@0"}},
		"not to follow": {plan.MIGGPU{UUID: testGPU, Repartition: mig.Suggest, Placed: []string{"7g.40gb@0"}}, []string{"7g.40gb@0"}},
	} {
		if got := s.steer(c.gpu).Placed; !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestChoose: the GPUs that a plan changes have its layouts, the others stay as they are.
func TestChoose(t *testing.T) {
	var s saved
	for range 2 {
		changed := s.choose(mig.Plan{GPUs: []mig.GPUPlan{
			{GPU: "GPU-1", After: "a", Created: []string{"x"}}, {GPU: "GPU-2", After: "b", Kept: []string{"x"}}, {GPU: "GPU-3", After: "c", Destroyed: []string{"x"}},
		}})
		if !slices.Equal(changed, []gpu.UUID{"GPU-1", "GPU-3"}) || !maps.Equal(s.Chosen, map[gpu.UUID]string{"GPU-1": "a", "GPU-3": "c"}) {
			t.Errorf("%q changed, chosen are %q", changed, s.Chosen)
		}
	}
}

// TestForget: what is remembered of a setting goes with the last GPU that has it.
func TestForget(t *testing.T) {
	for how, want := range map[mig.Repartition]struct{ past, chosen, kept int }{
		mig.Auto: {1, 1, 1}, mig.Suggest: {1, 0, 0}, mig.Static: {0, 0, 0},
	} {
		l := New(Options{})
		l.saved = saved{
			Past:   map[mig.Repartition]mig.Past{mig.Auto: {}, mig.Suggest: {}},
			Said:   map[mig.Repartition]string{mig.Auto: "a", mig.Suggest: "b"},
			Chosen: map[gpu.UUID]string{testGPU: "3g.20gb@4", "GPU-gone": "7g.40gb@0"},
		}
		l.kept = map[gpu.UUID]string{testGPU: "why"}
		l.forget(&plan.Plan{MIG: []plan.MIGGPU{{UUID: testGPU, Repartition: how}}})
		if s := l.saved; len(s.Past) != want.past || len(s.Said) != want.past || len(s.Chosen) != want.chosen || len(l.kept) != want.kept {
			t.Errorf("%s: %+v, kept %q", how, s, l.kept)
		}
	}
}

// refusing is a GPU that makes no instance of a profile.
type refusing struct {
	*instances.GPU
	profile gpu.ProfileID
}

func (r refusing) Create(ctx context.Context, u gpu.UUID, p gpu.Place, size int) error {
	if p.Profile == r.profile {
		return errNo
	}
	return r.GPU.Create(ctx, u, p, size)
}

// TestLayoutThatDoesNotFollow: a layout that cannot be made is not waited for: the one that is there is the chosen one,
// and the next answers are decided on from there.
func TestLayoutThatDoesNotFollow(t *testing.T) {
	n := followingNode(t, "auto", atOnce)
	had := n.has()
	three, err := mig.ProfileNamed(n.gpu.S.Chip, "3g.20gb")
	if err != nil {
		t.Fatal(err)
	}
	n.executor.Hardware = refusing{n.gpu, three.ID}
	n.ask(wantsThree)
	if n.ask(wantsThree); n.has() != had || n.followed != 0 || !strings.Contains(n.log.String(), "MIG layout did not follow") {
		t.Errorf("there is %s, %d layouts followed, logged %s", n.has(), n.followed, &n.log)
	}
	if !strings.Contains(problems(n.out), "MIG layout of "+string(testGPU)+": ") {
		t.Errorf("%q", n.out.Problems)
	}
	if is := n.gpu.S.Chip.Format(n.gpu.S.Layout()); n.saved.Chosen[testGPU] != is {
		t.Errorf("%s is chosen, %s is there", n.saved.Chosen[testGPU], is)
	}
	n.executor.Hardware = n.gpu
	for range 4 {
		n.ask(wantsThree)
	}
	if n.followed != 1 || !strings.HasSuffix(n.has(), "3g.20gb@4") {
		t.Errorf("afterwards there is %s, %d layouts followed", n.has(), n.followed)
	}
}

// TestEachSteeredGPU: one that has its layout keeps no other from being looked at.
func TestEachSteeredGPU(t *testing.T) {
	n := newNode(t, `"3g.20gb@4"`, "")
	n.saved.Chosen = map[gpu.UUID]string{testGPU: "3g.20gb@4", "GPU-1": "7g.40gb@0"}
	if err := n.land(t.Context(), []gpu.UUID{testGPU, "GPU-1"}); err != nil || n.followed != 1 || n.saved.Chosen["GPU-1"] != "3g.20gb@4" {
		t.Errorf("%v, %d followed, chosen are %q", err, n.followed, n.saved.Chosen)
	}
	n.executor.Hardware = &unsteady{GPU: n.gpu, err: errNo}
	if err := n.land(t.Context(), []gpu.UUID{testGPU}); err == nil {
		t.Error("a GPU that does not answer is no error")
	}
}
