package layouts

import (
	"context"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/modes"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
	"github.com/gpuslot/gpuslot/test/instances"
)

// unsteady is a GPU whose state cannot be read while err is set, and which cannot be divided while incapable is.
type unsteady struct {
	*instances.GPU
	err       error
	incapable bool
}

func (h *unsteady) State(ctx context.Context, u gpu.UUID) (gpu.MIGState, error) {
	s, err := h.GPU.State(ctx, u)
	if s.Capable = s.Capable && !h.incapable; h.err != nil {
		err = h.err
	}
	return s, err
}

// TestProblemsOfAGPU: each is reported and changes nothing, and when it is gone the layout is made.
func TestProblemsOfAGPU(t *testing.T) {
	for name, c := range map[string]struct {
		set, mend func(*testing.T, *node, *unsteady)
		want      string
	}{
		"no state": {func(_ *testing.T, _ *node, h *unsteady) { h.err = errNo }, func(_ *testing.T, _ *node, h *unsteady) { h.err = nil }, "no"},
		"no MIG": {func(_ *testing.T, _ *node, h *unsteady) { h.incapable = true },
			func(_ *testing.T, _ *node, h *unsteady) { h.incapable = false }, gpu.ErrNoMIG.Error()},
		"a job has just begun": {func(_ *testing.T, n *node, _ *unsteady) { n.jobs = begun{n} },
			func(_ *testing.T, n *node, _ *unsteady) { n.jobs = n }, "slot1_7 has a job there"},
		"no way back": {func(t *testing.T, n *node, _ *unsteady) { spoil(t, modes.File(n.paths), "{") },
			func(t *testing.T, n *node, _ *unsteady) { spoil(t, modes.File(n.paths), "") }, "read what to undo"},
		"a profile that the chip lacks": {func(_ *testing.T, n *node, _ *unsteady) { n.gpu.S.Chip, _ = mig.Model("A30-24GB", 550) },
			func(_ *testing.T, n *node, _ *unsteady) { n.gpu.S.Chip, _ = mig.Model("A100-40GB", 550) }, "MIG layout of " + string(testGPU)},
	} {
		n := newNode(t, `"3g.20gb@4, 1g.5gb@0"`, "")
		h := &unsteady{GPU: n.gpu}
		n.executor.Hardware = h
		n.divide(`"7g.40gb"`, "")
		at := n.now()
		c.set(t, n, h)
		happens := 0
		n.gpu.Happens = func(string) { happens++ }
		out := n.Round(t.Context(), at)
		if !strings.Contains(problems(out), c.want) || out.Changed || out.Made[testGPU] || happens > 0 {
			t.Errorf("%s: %q, %d changes, %+v", name, problems(out), happens, out)
		}
		c.mend(t, n, h)
		if n.round(); n.has() != "7g.40gb@0" {
			t.Errorf("%s: afterwards there is %s, %q", name, n.has(), n.out.Problems)
		}
		if !strings.Contains(n.log.String(), "MIG layout changed") {
			t.Errorf("%s: logged %s", name, &n.log)
		}
	}
}

// begun is a job table in which a job comes to a device just before it is reserved.
type begun struct{ *node }

func (begun) Reserve([]gpu.UUID) string { return "slot1_7" }

// spoil writes a file, or removes it.
func spoil(t *testing.T, file, text string) {
	t.Helper()
	err := os.Remove(file)
	if text != "" {
		err = os.WriteFile(file, []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestForeignInstancesInTheWay: a layout without room beside what others made is a problem, which no wait solves.
func TestForeignInstancesInTheWay(t *testing.T) {
	n := newNode(t, `"3g.20gb@4"`, "")
	n.divide(`"7g.40gb"`, "")
	at := n.now()
	small, _ := mig.ProfileNamed(n.gpu.S.Chip, "1g.5gb")
	if err := n.gpu.Create(t.Context(), testGPU, gpu.Place{Profile: small.ID, Start: 2}, 1); err != nil {
		t.Fatal(err)
	}
	if out := n.Round(t.Context(), at); !strings.Contains(problems(out), "cannot be made beside instances that gpuslot did not make") || len(n.Leaving()) > 0 {
		t.Errorf("%q, %v leaves", problems(out), n.Leaving())
	}
}

// TestKeepsWhileUnknown: what is to be taken back stays while it is not known which devices jobs have, and while the
// GPU does not answer. No round says that it changed anything.
func TestKeepsWhileUnknown(t *testing.T) {
	n := newNode(t, `"3g.20gb@4, 1g.5gb@0"`, "")
	h := &unsteady{GPU: n.gpu, err: errNo}
	n.executor.Hardware = h
	n.divide("", "")
	if out := n.round(); problems(out) != "no" || out.Changed || n.has() != "1g.5gb@0 3g.20gb@4" {
		t.Errorf("there is %s, %+v", n.has(), out)
	}
	h.err, n.unknown = nil, "the job in slot1_1 is not known"
	if out := n.round(); !strings.Contains(problems(out), "stay for now: the job in slot1_1") || out.Changed || n.has() != "1g.5gb@0 3g.20gb@4" {
		t.Errorf("there is %s, %+v", n.has(), out)
	}
	n.unknown, n.running = "", []jobs.Job{{GPU: n.gpu.Devices()[0].UUID}}
	if out := n.round(); len(out.Problems) != 1 || !out.Changed {
		t.Errorf("one of two goes: %+v", out)
	}
	if out := n.round(); len(out.Problems) != 1 || out.Changed {
		t.Errorf("nothing more goes: %+v", out)
	}
	n.running = nil
	if out := n.round(); !out.Changed || len(out.Problems) > 0 || n.has() != "" {
		t.Errorf("the last one goes: there is %s, %+v", n.has(), out)
	}
	if out := n.round(); out.Changed {
		t.Errorf("all are gone: %+v", out)
	}
}

// stubborn is a GPU that destroys no instance.
type stubborn struct{ *instances.GPU }

func (stubborn) Destroy(context.Context, gpu.UUID, gpu.Place) error { return errNo }

// TestCannotTakeBack: devices that cannot go are a problem, and go when they can.
func TestCannotTakeBack(t *testing.T) {
	n := newNode(t, `"3g.20gb@4"`, "")
	n.executor.Hardware = stubborn{n.gpu}
	n.divide("", "")
	if out := n.round(); !strings.Contains(problems(out), "take back the MIG devices of "+string(testGPU)) || n.has() != "3g.20gb@4" {
		t.Errorf("there is %s, %q", n.has(), out.Problems)
	}
	n.executor.Hardware = n.gpu
	if out := n.round(); len(out.Problems) > 0 || n.has() != "" {
		t.Errorf("there is %s, %q", n.has(), out.Problems)
	}
}

// wasInMIGMode notes that the GPU was in MIG mode before it was divided.
func (n *node) wasInMIGMode() {
	n.t.Helper()
	j, err := modes.Read(modes.File(n.paths))
	if err != nil {
		n.t.Fatal(err)
	}
	j.MIGModes[testGPU] = true
	if err := j.Write(modes.File(n.paths)); err != nil {
		n.t.Fatal(err)
	}
}

// TestFoundInMIGMode: a GPU that was in MIG mode before it was divided stays in it, unless it was taken out since.
func TestFoundInMIGMode(t *testing.T) {
	for _, enabled := range []bool{true, false} {
		n := newNode(t, `"3g.20gb@4"`, "")
		n.wasInMIGMode()
		if !enabled {
			n.gpu.S.Enabled, n.gpu.S.Instances = false, nil
		}
		n.divide("", "")
		if n.round(); n.gpu.S.Enabled != enabled || n.has() != "" {
			t.Errorf("MIG mode %t, was %t, there is %s, %q", n.gpu.S.Enabled, enabled, n.has(), n.out.Problems)
		}
	}
}

// TestLeavesWhatIsNotPlanned: what the plan divides stays, whatever else it does. What it does not divide goes, though
// it divides another GPU.
func TestLeavesWhatIsNotPlanned(t *testing.T) {
	for _, planned := range []gpu.UUID{testGPU, "GPU-00000001-0000-4000-8000-000000000000"} {
		n := newNode(t, `"3g.20gb@4"`, "")
		n.divide("", "")
		at := n.now()
		at.Plan.MIG = []plan.MIGGPU{{UUID: planned}}
		if n.Round(t.Context(), at); (n.has() != "") != (planned == testGPU) {
			t.Errorf("%s is planned: there is %q", planned, n.has())
		}
	}
}

// TestLeavesBesideAnother: a GPU that stays, or that the node does not have any more, keeps no other from its turn.
func TestLeavesBesideAnother(t *testing.T) {
	const first = gpu.UUID("GPU-00000000-0000-4000-0000-000000000000") // by its name
	n := newNode(t, `"3g.20gb@4"`, "")
	if err := noteMode(n.paths, first, false); err != nil {
		t.Fatal(err)
	}
	n.divide("", "")
	at := n.now()
	at.Inventory.GPUs = append(at.Inventory.GPUs, gpu.GPU{UUID: first})
	n.unknown = "the job in slot1_1 is not known"
	if out := n.Round(t.Context(), at); len(out.Problems) != 2 || n.has() == "" {
		t.Errorf("there is %s, %q", n.has(), out.Problems)
	}
	n.unknown = ""
	if n.round(); n.has() != "" {
		t.Errorf("there is %s, %q", n.has(), n.out.Problems)
	}
}

// TestDividedAgain: of a GPU whose devices went, no layout follows the work before one is made again.
func TestDividedAgain(t *testing.T) {
	n := followingNode(t, "auto", atOnce)
	n.wasInMIGMode()
	text := n.text
	n.divide("", "")
	n.round()
	n.text = text
	for _, want := range []int{0, 1} {
		at := n.now()
		if s, _, err := n.sight(t.Context(), &at, mig.Auto); err != nil || len(s.GPUs) != want {
			t.Errorf("%d GPUs, want %d; %v", len(s.GPUs), want, err)
		}
		n.round()
		n.round()
	}
}

// TestModeIsNotedOnce: the mode in which a GPU was found is that from before the first layout.
func TestModeIsNotedOnce(t *testing.T) {
	n := newNode(t, `"3g.20gb@4"`, "")
	if err := noteMode(n.paths, testGPU, true); err != nil {
		t.Fatal(err)
	}
	if j, err := modes.Read(modes.File(n.paths)); err != nil || j.MIGModes[testGPU] {
		t.Errorf("%+v, %v", j, err)
	}
}

// TestRecovers: what an earlier agent left half done is ended in the first round that can, and only in that.
func TestRecovers(t *testing.T) {
	n := newNode(t, `"3g.20gb@4"`, "")
	at := n.now()
	h := &unsteady{GPU: n.gpu}
	n.executor.Hardware = h
	n.gpu.Happens = func(string) { h.err = errNo } // it cannot be read any more: the change stays open
	n.divide(`"7g.40gb"`, "")
	n.Round(t.Context(), n.now())
	n.gpu.Happens = func(string) {}
	next := New(Options{Executor: mig.Executor{Hardware: &unsteady{GPU: n.gpu, err: errNo}, Boot: "test"}, Paths: n.paths, Jobs: n, Daemons: n,
		Metrics: n, Events: n, Log: n.Layouts.log, Beat: func() {}})
	var told []error
	problem := func(err error) {
		if err != nil {
			told = append(told, err)
		}
	}
	if next.recover(t.Context(), &at, problem) || len(told) != 1 || next.recovered[testGPU] {
		t.Errorf("while it does not answer: %q, recovered %t", told, next.recovered[testGPU])
	}
	next.executor.Hardware, told = n.gpu, nil
	if !next.recover(t.Context(), &at, problem) || len(told) > 1 {
		t.Errorf("%q", told)
	}
	next.recovered[testGPU] = false
	if next.recover(t.Context(), &at, problem) || !next.recovered[testGPU] {
		t.Error("it is ended a second time")
	}
	at.Inventory.GPUs[0].MIGCapable, next.recovered[testGPU] = false, false
	next.executor.Hardware = &unsteady{GPU: n.gpu, err: errNo}
	if told = nil; next.recover(t.Context(), &at, problem) || len(told) > 0 {
		t.Errorf("a GPU without MIG: %q", told)
	}
}

// picky is a GPU that makes no instance of a profile.
type picky struct {
	*instances.GPU
	not gpu.ProfileID
}

func (h picky) Create(ctx context.Context, u gpu.UUID, p gpu.Place, size int) error {
	if p.Profile == h.not {
		return errNo
	}
	return h.GPU.Create(ctx, u, p, size)
}

// TestFailedChangeWaits: a layout that cannot be made is tried again after a pause, which doubles, and another one at
// once. Meanwhile the problem stays, and the devices that are there take jobs.
func TestFailedChangeWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, `"3g.20gb@4"`, "")
		large, _ := mig.ProfileNamed(n.gpu.S.Chip, "7g.40gb")
		n.executor.Hardware = picky{n.gpu, large.ID}
		steps := 0
		n.gpu.Happens = func(string) { steps++ }
		n.divide(`"7g.40gb"`, "")
		for i, c := range []struct {
			after time.Duration
			steps int
		}{{0, 2}, {29 * time.Second, 0}, {time.Second, 2}, {59 * time.Second, 0}, {time.Second, 2}} {
			time.Sleep(c.after)
			steps = 0
			if out := n.round(); steps != c.steps || !strings.Contains(problems(out), "the layout is the former one again") || out.Made[testGPU] {
				t.Errorf("round %d: %d steps, want %d; %q", i, steps, c.steps, out.Problems)
			}
			if tried := c.steps > 0; (len(n.Leaving()) > 0) != tried {
				t.Errorf("round %d: %v leave", i, n.Leaving())
			}
		}
		n.divide(`"3g.20gb@4, 1g.5gb@0"`, "")
		n.round()
		if n.round(); n.has() != "1g.5gb@0 3g.20gb@4" || len(n.failed) > 0 || len(n.out.Problems) > 0 {
			t.Errorf("there is %s, %q", n.has(), n.out.Problems)
		}
	})
}

// TestRecoversLate: a GPU that the first inventory lacks has its change ended when it is back.
func TestRecoversLate(t *testing.T) {
	n := newNode(t, `"3g.20gb@4"`, "")
	at := n.now()
	n.begin(t, mig.Change{Former: *n.journal(t).Applied, Wanted: mig.Wanted{Enabled: true}})
	clear(n.recovered)
	gone := at
	gone.Inventory.GPUs = nil
	for _, c := range []struct {
		at    Node
		ended bool
	}{{gone, false}, {at, true}} {
		n.recover(t.Context(), &c.at, func(err error) {
			if err != nil {
				t.Error(err)
			}
		})
		if (n.journal(t).Change == nil) != c.ended {
			t.Errorf("with %d GPUs: %+v", len(c.at.Inventory.GPUs), n.journal(t))
		}
	}
}

// TestForgetsWithoutFile: the file of what is remembered is there only while something is.
func TestForgetsWithoutFile(t *testing.T) {
	n := newNode(t, `"3g.20gb@4"`, "")
	file := File(n.paths)
	n.saved.Said = map[mig.Repartition]string{mig.Auto: "why"}
	there := func() bool { _, err := os.Stat(file); return err == nil }
	if err := n.write(); err != nil || !there() {
		t.Errorf("%v, there %t", err, there())
	}
	next := New(Options{Paths: n.paths})
	if err := next.Read(); err != nil || next.saved.Said[mig.Auto] != "why" {
		t.Errorf("%v, %+v", err, next.saved)
	}
	n.saved.Said = nil
	if err := n.write(); err != nil || there() {
		t.Errorf("%v, there %t", err, there())
	}
	if err := next.Read(); err != nil {
		t.Errorf("without a file: %v", err)
	}
	spoil2 := os.WriteFile(file, []byte("{"), 0o600)
	if err := next.Read(); spoil2 != nil || err == nil || there() {
		t.Errorf("%v, %v, there %t", spoil2, err, there())
	}
}

// TestDirectoryOfTheExecutor: its journals are where the agent keeps its state.
func TestDirectoryOfTheExecutor(t *testing.T) {
	if n := newNode(t, `"3g.20gb@4"`, ""); n.executor.Dir != n.paths.State || n.executor.Log != n.Layouts.log {
		t.Errorf("%q, not %q", n.executor.Dir, n.paths.State)
	}
}
