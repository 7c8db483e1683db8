package release

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/admission"
	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
)

// fake is a node with everything that a Service asks, and what it was asked to do.
type fake struct {
	running []jobs.Job
	unknown string
	did     []string
	// fails is the step that fails, unwell why GPUs are not well.
	fails  string
	unwell string
	able   bool
	found  api.Verification
	node   Node
}

func (f *fake) step(what string) error {
	f.did = append(f.did, what)
	if what == f.fails {
		return errors.New(what + " failed")
	}
	return nil
}

func (f *fake) Running() []jobs.Job           { return f.running }
func (f *fake) Unknown() string               { return f.unknown }
func (f *fake) StopAll(context.Context) error { return f.step("stop") }
func (f *fake) Release(context.Context) error { return f.step("limits") }
func (f *fake) Able() bool                    { return f.able }

func (f *fake) Return(context.Context, gpu.Inventory, func(gpu.UUID) bool) error {
	return f.step("modes")
}

func (f *fake) Inventory(context.Context) (gpu.Inventory, []error, error) {
	return gpu.Inventory{Driver: "580.65.06"}, nil, f.step("read")
}

func (f *fake) GPU(_ context.Context, u gpu.UUID) api.Verification {
	f.found.UUID = string(u)
	return f.found
}

func newFake(t *testing.T) (*fake, Service) {
	cfg := config.Default()
	cfg.Paths.State, cfg.Paths.Run = t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Dir(cfg.Paths.CondorConfig()), 0o755); err != nil {
		t.Fatal(err)
	}
	f := &fake{node: Node{Config: cfg, Ready: true, Plan: &plan.Plan{GPUs: []plan.GPU{
		{UUID: "GPU-a", Mode: config.ModeMPS}, {UUID: "GPU-b", Index: 1, Mode: config.ModeWhole},
	}}}}
	return f, Service{Options{
		Jobs: f, Daemons: f, Limits: f, Modes: f, Hardware: f, Verifier: f, Log: slog.New(slog.DiscardHandler),
		Sweep: func() { f.did = append(f.did, "sweep") }, Node: func() Node { return f.node },
		Unwell: func(*plan.GPU, time.Time) string { return f.unwell },
	}}
}

// TestLetGo: control daemons stop first. Only their failure keeps the driver in use.
func TestLetGo(t *testing.T) {
	for fails, want := range map[string]struct {
		did  string
		err  bool
		kept bool
	}{
		"":       {"stop limits read modes read", false, true},
		"stop":   {"stop", true, false},
		"limits": {"stop limits read modes read", false, true},
		"modes":  {"stop limits read modes", false, false},
	} {
		f, s := newFake(t)
		f.fails = fails
		err := s.LetGo(t.Context(), false)
		if did := strings.Join(f.did, " "); did != want.did || (err != nil) != want.err {
			t.Errorf("%q fails: did %q, %v", fails, did, err)
		}
		if _, err := os.Stat(Inventory(f.node.Config.Paths)); (err == nil) != want.kept {
			t.Errorf("%q fails: inventory kept: %v", fails, err)
		}
	}
}

// TestRevert: the generated files go only where the node is given back.
func TestRevert(t *testing.T) {
	for _, revert := range []bool{false, true} {
		f, s := newFake(t)
		if err := os.WriteFile(f.node.Config.Paths.CondorConfig(), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.LetGo(t.Context(), revert); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(f.node.Config.Paths.CondorConfig()); (err == nil) == revert {
			t.Errorf("revert %v: %v", revert, err)
		}
	}
}

// TestHolding: ended jobs are dropped first, and a verification is no job.
func TestHolding(t *testing.T) {
	f, s := newFake(t)
	f.running = []jobs.Job{
		{Starter: starter.Starter{Slot: "slot1_2"}, GPU: "GPU-a", Owner: "bob"},
		{Starter: starter.Starter{Slot: admission.VerifySlot}, GPU: "GPU-a"},
	}
	f.unknown = "slot1_3"
	slots, unknown := s.Holding()
	if len(slots) != 1 || !strings.HasPrefix(slots[0], "slot1_2 (") || unknown != "slot1_3" || f.did[0] != "sweep" {
		t.Errorf("%q, %q, did %q", slots, unknown, f.did)
	}
}

// TestIdle: the startds are asked until nothing is unknown.
func TestIdle(t *testing.T) {
	f, _ := newFake(t)
	f.unknown = "slot1_1"
	asked := 0
	err := Idle(t.Context(), f, func(context.Context) bool { asked++; return false })
	if err == nil || !strings.Contains(err.Error(), "slot1_1") || asked != jobs.MostAsked {
		t.Errorf("%v after %d questions", err, asked)
	}
	if err := Idle(t.Context(), f, func(context.Context) bool { f.unknown = ""; return true }); err != nil {
		t.Error(err)
	}
	f.running = []jobs.Job{{Starter: starter.Starter{Slot: "slot1_1"}, GPU: "GPU-a"}}
	if err := Idle(t.Context(), f, nil); err == nil || !strings.Contains(err.Error(), "jobs run in slot1_1") {
		t.Error(err)
	}
}

// TestVerify: each shared GPU that is not well, or does not keep its limits, stays closed.
func TestVerify(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(f *fake)
		want string
	}{
		"no client":     {func(f *fake) { f.able = false }, ""},
		"it keeps them": {func(f *fake) { f.found.OK = true }, ""},
		"it does not":   {func(f *fake) { f.found.Text = "too much" }, "failed (too much)"},
		"skipped":       {func(f *fake) { f.found.Skipped = "busy" }, "could not be verified"},
		"not well":      {func(f *fake) { f.unwell = "no daemon" }, "was not well when the node resumed (no daemon)"},
	} {
		f, s := newFake(t)
		f.able = true
		c.set(f)
		failed, err := s.Verify(t.Context())
		if err != nil || len(failed) > 1 || (len(failed) == 1) != (c.want != "") {
			t.Errorf("%s: %+v, %v", name, failed, err)
			continue
		}
		if c.want != "" && (failed[0].GPU != "GPU-a" || !strings.Contains(failed[0].Reason, c.want)) {
			t.Errorf("%s: %+v", name, failed)
		}
	}
	f, s := newFake(t)
	f.unwell = "no daemon"
	if got := s.Unwell(); got != "GPU 0: no daemon" {
		t.Error(got)
	}
	if f.node.Ready = false; s.Unready() == "" {
		t.Error("it is ready before its first round")
	}
	if f.node.Closed = "no driver"; s.Unready() != "no driver" {
		t.Error(s.Unready())
	}
	if slices.Contains(f.did, "stop") {
		t.Error("asking stopped control daemons")
	}
}

// TestSetUp: a node is set up while the plan, the journal of modes, or what keeps it closed is there.
func TestSetUp(t *testing.T) {
	f, _ := newFake(t)
	p := f.node.Config.Paths
	if SetUp(p) {
		t.Error("a bare node is set up")
	}
	for _, file := range []string{p.PlanFile(), filepath.Join(p.State, "undo.json"), filepath.Join(p.State, "condor-closed.conf")} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if !SetUp(p) {
			t.Errorf("with %s the node is not set up", file)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
}
