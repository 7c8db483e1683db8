package agent

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// newTestAgent reads and applies once.
func newTestAgent(t *testing.T, gpus int, text string) *testAgent {
	t.Helper()
	ta := bareTestAgent(t, gpus, text)
	ta.restart()
	return ta
}

// bareTestAgent has not started yet.
func bareTestAgent(t testing.TB, gpus int, text string) *testAgent {
	t.Helper()
	// Short, because a run directory may have 42 bytes.
	dir, err := os.MkdirTemp("", "g")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	ta := &testAgent{t: t, dir: dir, proc: newFakeProc(t), hw: &fakeHardware{inv: inventoryOf(gpus)},
		daemons: newFakeDaemons(), access: newFakeAccess(), startd: &fakeStartd{version: condor.Version{Major: 25, Minor: 14, Patch: 1}}, can: driver550()}
	ta.writeConfig(text)
	return ta
}

// restart makes a new agent over the same world, as after a crash.
func (ta *testAgent) restart() {
	ta.t.Helper()
	o := ta.options()
	cfg, err := config.Load(o.ConfigFile)
	if err != nil {
		ta.t.Fatal(err)
	}
	a, err := newAgent(o, cfg)
	if err != nil {
		ta.t.Fatal(err)
	}
	if err := a.recall(ta.t.Context(), cfg.Paths); err != nil {
		ta.t.Fatal(err)
	}
	a.sampling.Patience = 5 * time.Minute // a busy machine makes nothing unknown
	ta.Agent = a
	a.apply(ta.t.Context(), true)
}

func (ta *testAgent) apply(reload bool) *view {
	ta.Agent.apply(ta.t.Context(), reload)
	return ta.view.Load()
}

func (ta *testAgent) read(path string) string {
	ta.t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		ta.t.Fatal(err)
	}
	return string(b)
}

// files are the modification times of everything the agent writes.
func (ta *testAgent) files() map[string]time.Time {
	ta.t.Helper()
	out := map[string]time.Time{}
	err := filepath.WalkDir(ta.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		out[path] = info.ModTime()
		return err
	})
	if err != nil {
		ta.t.Fatal(err)
	}
	return out
}

func (ta *testAgent) reason(n int) string {
	ta.t.Helper()
	for _, g := range ta.answers.acceptances() {
		if g.UUID == string(uuid(n)) {
			return g.Reason
		}
	}
	return "not in the plan"
}

// TestApplyOrder: compute mode, control daemon, HTCondor's files.
func TestApplyOrder(t *testing.T) {
	ta := bareTestAgent(t, 1, "")
	var events []string
	note := func(what string) {
		// What is on disk at the moment of the event tells the rest of the order.
		for _, f := range []string{"r/plan.json", "r/condor/inventory.ad", "r/condor/execution-point.conf"} {
			if _, err := os.Stat(filepath.Join(ta.dir, f)); err == nil {
				what += " after " + f
			}
		}
		if _, err := os.Stat(filepath.Join(ta.dir, "s/undo.json")); err == nil {
			what += " after undo.json"
		}
		what += " mode " + string(ta.hw.inv.GPUs[0].ComputeMode)
		events = append(events, what)
	}
	ta.daemons.happens = note
	ta.restart()
	want := []string{"start " + string(uuid(0)) + " after undo.json mode exclusive-process"}
	if !slices.Equal(events, want) {
		t.Errorf("events = %q, want %q", events, want)
	}
	for _, f := range []string{"r/plan.json", "r/condor/inventory.ad", "r/condor/execution-point.conf"} {
		ta.read(filepath.Join(ta.dir, f))
	}
	inventory, conf := ta.files()[filepath.Join(ta.dir, "r/condor/inventory.ad")], ta.files()[filepath.Join(ta.dir, "r/condor/execution-point.conf")]
	if conf.Before(inventory) {
		t.Error("the configuration was written before the inventory that it names")
	}
	if why := ta.reason(0); why != "" {
		t.Errorf("the GPU is closed: %s", why)
	}
}

func TestApplyTwiceWritesNothing(t *testing.T) {
	ta := newTestAgent(t, 8, "")
	before, sets, modes := ta.files(), ta.daemons.sets, len(ta.hw.modes)
	for range 3 {
		ta.apply(false)
	}
	ta.apply(true)
	after := ta.files()
	for path, at := range after {
		if !before[path].Equal(at) {
			t.Errorf("%s was written again", path)
		}
	}
	if len(before) != len(after) || ta.daemons.sets != sets || len(ta.hw.modes) != modes {
		t.Errorf("files %d to %d, sets %d to %d, modes %d to %d", len(before), len(after), sets, ta.daemons.sets, modes, len(ta.hw.modes))
	}
}

// TestPlanThatIsNotWritten: a plan that JSON cannot say is an error, and the file of the last one stays.
func TestPlanThatIsNotWritten(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	paths := ta.view.Load().config.Paths
	before := ta.read(paths.PlanFile())
	broken := plan.Plan{GPUs: []plan.GPU{{Threads: plan.Threads{Percent: math.NaN()}}}}
	if err := writePlan(paths, broken); err == nil || ta.read(paths.PlanFile()) != before {
		t.Errorf("the file says %s, error %v", ta.read(paths.PlanFile()), err)
	}
}

func TestBrokenReloadKeepsThePlan(t *testing.T) {
	for name, text := range map[string]string{
		"unknown key":     "[sharing]\nsharez = 4\n",
		"rubbish":         "\x00\x01\x02",
		"impossible plan": "[gpu.\"" + string(uuid(0)) + "\"]\nshares = 40\n",
		"other run path":  "",
	} {
		t.Run(name, func(t *testing.T) {
			ta := newTestAgent(t, 2, "[sharing]\nshares = 4\n")
			before := ta.files()
			conf := filepath.Join(ta.dir, "gpuslot.toml")
			if name == "other run path" {
				text = strings.ReplaceAll(ta.read(conf), "/r\"", "/q\"")
				if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			} else {
				ta.writeConfig(text)
			}
			v := ta.apply(true)
			if v.configError == "" || v.configOK {
				t.Fatal("the broken configuration was accepted")
			}
			if g, _ := v.plan.GPU(uuid(0)); g.Shares != 4 {
				t.Errorf("shares = %d, want the old plan's 4", g.Shares)
			}
			if s := ta.status(); s.ConfigError == "" {
				t.Error("status does not tell")
			}
			if why := ta.reason(0); why != "" {
				t.Errorf("a broken configuration closed the GPU: %s", why)
			}
			v = ta.apply(false)
			if v.configError == "" {
				t.Error("the error was forgotten by the next round")
			}
			delete(before, conf)
			for path, at := range before {
				if !ta.files()[path].Equal(at) {
					t.Errorf("%s was written", path)
				}
			}
			ta.writeConfig("[sharing]\nshares = 3\n")
			v = ta.apply(true)
			if g, _ := v.plan.GPU(uuid(0)); g.Shares != 3 || v.configError != "" {
				t.Errorf("after mending: shares = %d, error %q", g.Shares, v.configError)
			}
		})
	}
}

func TestDriverAppearsLater(t *testing.T) {
	ta := bareTestAgent(t, 2, "")
	ta.hw.set(gpu.Inventory{}, errors.New("the NVIDIA kernel driver is not loaded"))
	ta.restart()
	if v := ta.view.Load(); v.planned || len(ta.answers.acceptances()) != 0 {
		t.Error("a node without inventory offers GPUs")
	}
	if s := ta.status(); !strings.Contains(strings.Join(s.Warnings, "\n"), "driver is not loaded") {
		t.Errorf("status does not tell: %q", s.Warnings)
	}
	ta.hw.set(inventoryOf(2), nil)
	ta.apply(false)
	if why := ta.reason(1); why != "" {
		t.Errorf("with the driver there the GPU is closed: %s", why)
	}
	// And it goes away again: nothing is torn down, everything is closed.
	ta.hw.set(gpu.Inventory{}, errors.New("NVML has not returned"))
	before := ta.files()
	ta.apply(false)
	if why := ta.reason(1); !strings.Contains(why, "NVML has not returned") {
		t.Errorf("reason = %q", why)
	}
	if len(ta.daemons.running) != 2 || len(before) != len(ta.files()) {
		t.Error("a driver that does not answer tore something down")
	}
}

// TestReloadWithoutDriver: a good configuration that comes while the hardware
// cannot be read is applied when it can.
func TestReloadWithoutDriver(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	ta.hw.set(gpu.Inventory{}, errors.New("NVML has not returned"))
	ta.writeConfig("[sharing]\nshares = 2\n")
	if v := ta.apply(true); v.configError != "" || v.plan.GPUs[0].Shares == 2 {
		t.Errorf("error %q, shares %d", v.configError, v.plan.GPUs[0].Shares)
	}
	ta.hw.set(inventoryOf(1), nil)
	if v := ta.apply(false); v.plan.GPUs[0].Shares != 2 {
		t.Errorf("shares = %d", v.plan.GPUs[0].Shares)
	}
	// One that turns out to be impossible is rejected then.
	ta.hw.set(gpu.Inventory{}, errors.New("NVML has not returned"))
	ta.writeConfig("[gpu.\"" + string(uuid(0)) + "\"]\nshares = 40\n")
	ta.apply(true)
	ta.hw.set(inventoryOf(1), nil)
	for range 2 {
		if v := ta.apply(false); v.configError == "" || v.configOK || v.plan.GPUs[0].Shares != 2 {
			t.Errorf("error %q, shares %d", v.configError, v.plan.GPUs[0].Shares)
		}
	}
}

// TestRestartWithoutDriver: a new agent that cannot make a plan still says why
// the GPUs of the old one take no jobs.
func TestRestartWithoutDriver(t *testing.T) {
	ta := newTestAgent(t, 2, "")
	ta.hw.set(gpu.Inventory{}, errors.New("the NVIDIA kernel driver is not loaded"))
	ta.restart()
	if why := ta.reason(1); !strings.Contains(why, "driver is not loaded") {
		t.Errorf("START is told %q", why)
	}
	r := ta.refuse(ta.proc.starter(100, "slot1_1"), 1000, "alice", uuid(0), 4096)
	if r.Code != api.CodeClosed || !strings.Contains(r.Reason, "driver is not loaded") {
		t.Errorf("refusal = %+v", r)
	}
	if len(ta.daemons.running) != 2 {
		t.Error("control daemons were stopped without a plan")
	}
}

func TestUpgradedHTCondorIsNoticed(t *testing.T) {
	ta := bareTestAgent(t, 1, "")
	ta.startd.version = condor.Version{Major: 23, Minor: 9, Patch: 6}
	ta.restart()
	ta.startd.version = condor.Version{Major: 25, Minor: 14, Patch: 1}
	ta.apply(false)
	if why := ta.reason(0); why != "" {
		t.Errorf("still closed: %s", why)
	}
}

func TestSevenOfEight(t *testing.T) {
	text := ""
	for i := range 8 {
		text += "[gpu.\"" + string(uuid(i)) + "\"]\nmode = \"mps\"\n"
	}
	ta := newTestAgent(t, 8, text)
	inv := inventoryOf(8)
	inv.GPUs = slices.Delete(inv.GPUs, 3, 4)
	ta.hw.set(inv, nil)
	v := ta.apply(false)
	if len(v.plan.GPUs) != 7 || !slices.Equal(v.plan.Absent, []gpu.UUID{uuid(3)}) {
		t.Errorf("%d GPUs, absent %v", len(v.plan.GPUs), v.plan.Absent)
	}
	if len(ta.daemons.running) != 7 {
		t.Errorf("%d control daemons run, want 7", len(ta.daemons.running))
	}
	for _, g := range ta.answers.acceptances() {
		if !g.Accept {
			t.Errorf("%s is closed: %s", g.UUID, g.Reason)
		}
	}
	// A swapped card: another UUID at the same address.
	inv = inventoryOf(8)
	inv.GPUs[3].UUID = uuid(33)
	ta.hw.set(inv, nil)
	ta.apply(false)
	if why := ta.reason(33); why != "" {
		t.Errorf("the new card is closed: %s", why)
	}
}

// TestLeavingGPU: a GPU with running jobs keeps its control daemon and its
// compute mode until they end.
func TestLeavingGPU(t *testing.T) {
	ta := newTestAgent(t, 2, "")
	ta.hw.inv.GPUs[0].ComputeMode = gpu.ComputeModeExclusiveProcess
	s := ta.proc.starter(100, "slot1_1")
	ta.grant(s, 1000, "alice", uuid(0), 4096)
	ta.writeConfig("[gpu.\"" + string(uuid(0)) + "\"]\nmode = \"whole\"\n")
	ta.apply(true)
	if ta.daemons.running[uuid(0)] == nil {
		t.Fatal("the control daemon was stopped under its job")
	}
	if r := ta.refuse(ta.proc.starter(101, "slot9_1"), 1000, "alice", uuid(0), 4096); r != nil && !strings.Contains(r.Reason, "still held") {
		t.Errorf("reason = %q", r.Reason)
	}
	ta.proc.End(100)
	ta.proc.End(101)
	ta.sweeper.now()
	ta.apply(false)
	if ta.daemons.running[uuid(0)] != nil {
		t.Error("the control daemon outlives the last job of a GPU that is no longer shared")
	}
	if ta.hw.inv.GPUs[0].ComputeMode != gpu.ComputeModeDefault {
		t.Errorf("compute mode = %s, want what it was", ta.hw.inv.GPUs[0].ComputeMode)
	}
}

// TestLeavingGPUAfterRestart: the same, when the jobs are from before the agent
// and the startd has not told yet where they run.
func TestLeavingGPUAfterRestart(t *testing.T) {
	ta := newTestAgent(t, 2, "")
	ta.proc.starter(100, "slot1_1")
	ta.startd.set(nil, errors.New("the startd is busy"))
	ta.writeConfig("[gpu.\"" + string(uuid(0)) + "\"]\nmode = \"whole\"\n")
	ta.restart()
	if ta.daemons.running[uuid(0)] == nil {
		t.Fatal("the control daemon was stopped under a job that nobody has placed yet")
	}
	ta.startd.set([]condor.Slot{slotAd("slot1_1", "1.0", "alice", 4096, uuid(1))}, nil)
	ta.startds.Ask(t.Context())
	ta.apply(false)
	if ta.daemons.running[uuid(0)] != nil {
		t.Error("the control daemon runs on though no job is on its GPU")
	}
}

func TestOldHTCondorIsRefused(t *testing.T) {
	ta := bareTestAgent(t, 1, "")
	ta.startd.version = condor.Version{Major: 23, Minor: 9, Patch: 6}
	ta.restart()
	if why := ta.reason(0); !strings.Contains(why, "23.9.6") || !strings.Contains(why, "upgrade") {
		t.Errorf("reason = %q", why)
	}
	if _, err := os.Stat(filepath.Join(ta.dir, "r/condor/execution-point.conf")); err == nil {
		t.Error("a configuration was written for it")
	}
	if mode := ta.hw.inv.GPUs[0].ComputeMode; mode != gpu.ComputeModeDefault || len(ta.daemons.running) > 0 {
		t.Errorf("compute mode %s, %d control daemons: the node did not stay as it was", mode, len(ta.daemons.running))
	}
	for file := range ta.files() {
		if filepath.Base(file) != "gpuslot.toml" {
			t.Errorf("%s was written", file)
		}
	}
	// Upgraded it is set up, and then keeps its control daemons whatever comes: jobs may run.
	ta.startd.version = condor.Version{Major: 25, Minor: 14, Patch: 1}
	ta.apply(false)
	if len(ta.daemons.running) != 1 || ta.reason(0) != "" {
		t.Errorf("after the upgrade: %d control daemons, closed because %q", len(ta.daemons.running), ta.reason(0))
	}
	ta.startd.version = condor.Version{Major: 23, Minor: 9, Patch: 6}
	ta.apply(true)
	if len(ta.daemons.running) != 1 || !strings.Contains(ta.reason(0), "23.9.6") {
		t.Errorf("after a downgrade: %d control daemons, closed because %q", len(ta.daemons.running), ta.reason(0))
	}
}

func TestManageFalseWritesNoConfiguration(t *testing.T) {
	ta := newTestAgent(t, 1, "[htcondor]\nmanage = false\n")
	if _, err := os.Stat(filepath.Join(ta.dir, "r/condor/execution-point.conf")); err == nil {
		t.Error("a configuration was written")
	}
	ta.read(filepath.Join(ta.dir, "r/condor/inventory.ad"))
}

// TestToldToEnd: what is not answered because the agent was told to end closes no GPU.
func TestToldToEnd(t *testing.T) {
	for name, at := range map[string]func(ta *testAgent, end func()){
		"before it reads the hardware": func(_ *testAgent, end func()) { end() },
		"while it asks the daemons": func(ta *testAgent, end func()) {
			ta.daemons.asked = func() error { end(); return context.Canceled }
		},
	} {
		ta := newTestAgent(t, 2, "")
		ctx, end := context.WithCancel(t.Context())
		at(ta, end)
		ta.Agent.apply(ctx, false)
		end()
		if v := ta.view.Load(); v.daemons[uuid(0)].Err != nil || len(v.problems) > 0 || ta.reason(0) != "" {
			t.Errorf("%s: %v, %v, %s", name, v.daemons[uuid(0)].Err, v.problems, ta.reason(0))
		}
	}
}
