package agent

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
	"github.com/gpuslot/gpuslot/test/instances"
)

func newFakeMIG(t *testing.T, hw *fakeHardware) *instances.GPU {
	t.Helper()
	chip, err := mig.Model("A100-40GB", 550)
	if err != nil {
		t.Fatal(err)
	}
	g := &hw.inv.GPUs[0]
	g.Name, g.Memory, g.Capability, g.Multiprocessors, g.MIGCapable =
		"NVIDIA A100-SXM4-40GB", 40960, chip.Capability, 108, true
	f := instances.New(g.UUID, chip)
	f.Changed = func(enabled bool, devices []gpu.MIGDevice) {
		hw.mu.Lock()
		defer hw.mu.Unlock()
		hw.inv.GPUs[0].MIGEnabled, hw.inv.GPUs[0].MIGDevices = enabled, devices
	}
	return f
}

// migAgent is a node of two GPUs, of which the first is divided.
func migAgent(t *testing.T, layout, more string) (*testAgent, *instances.GPU) {
	t.Helper()
	ta := bareTestAgent(t, 2, migConfig(layout, more))
	f := newFakeMIG(t, ta.hw)
	ta.mig = f
	return ta, f
}

func migConfig(layout, more string) string {
	if !strings.HasPrefix(layout, "[") {
		layout = strconv.Quote(layout)
	}
	return fmt.Sprintf("[gpu.%q]\nmode = \"mig\"\nmig_layout = %s\n%s", uuid(0), layout, more)
}

// profiles are those of the plan's MIG devices, in its order.
func (ta *testAgent) profiles() string {
	var all []string
	for _, g := range ta.view.Load().plan.GPUs {
		if g.MIGDevice() && g.Device != "" {
			all = append(all, g.Profile)
		}
	}
	return strings.Join(all, " ")
}

// The first round turns MIG mode on and makes the layout before any control
// daemon starts, and HTCondor hears of the devices in the same round.
func TestLayoutIsMadeFirst(t *testing.T) {
	ta, f := migAgent(t, "3g.20gb, 1g.5gb*2", "")
	var order []string
	log := func(what string) { order = append(order, what) }
	f.Happens, ta.daemons.happens = log, log
	ta.restart()
	if want := []string{"MIG mode", "create", "create", "create", "start " + string(uuid(1))}; !slices.Equal(order, want) {
		t.Errorf("%q happened, want %q", order, want)
	}
	if got := ta.profiles(); got != "1g.5gb 1g.5gb 3g.20gb" {
		t.Errorf("the plan has %s", got)
	}
	if text := ta.read(ta.view.Load().config.Paths.InventoryAds()); strings.Count(text, `MIGProfile="1g.5gb"`) != 2 {
		t.Errorf("the ads do not tell of the devices:\n%s", text)
	}
	if got := ta.reader.Take(time.Now()).LaidOut; !maps.Equal(got, map[gpu.UUID]bool{uuid(0): true}) {
		t.Errorf("the metrics tell of the layout: %v", got)
	}
	order = nil
	ta.apply(false)
	ta.apply(false)
	if len(order) > 0 {
		t.Errorf("rounds without a change did %q", order)
	}
}

// A job holds a device that has to go: it is closed with its idle neighbours that
// have to go, nothing is touched, and when the job ends the layout is made.
func TestLayoutWaitsForJobs(t *testing.T) {
	ta, f := migAgent(t, `["1g.5gb*7", "7g.40gb"]`, "")
	ta.restart()
	running := condor.ConfigOf([]byte(ta.read(ta.view.Load().config.Paths.CondorConfig())))
	places := slices.DeleteFunc(slices.Clone(ta.view.Load().plan.GPUs), func(g plan.GPU) bool { return g.Device == "" })
	first := ta.grant(ta.proc.starter(100, "slot1_1"), 1000, "alice", places[0].UUID, 2048)
	if d := string(places[0].Device); d == "" || first.Environment["CUDA_VISIBLE_DEVICES"] != d || first.Environment["NVIDIA_VISIBLE_DEVICES"] != d || first.EnforcedBy != jobs.EnforcedByMIG {
		t.Fatalf("the job on %+v got %+v", places[0], first)
	}
	var order []string
	f.Happens = func(what string) { order = append(order, what) }
	ta.writeConfig(migConfig(`["7g.40gb", "1g.5gb*7"]`, ""))
	v := ta.apply(true)
	if len(order) > 0 || len(v.problems) != 1 || !strings.Contains(v.problems[0], "1g.5gb@0 is used by slot1_1") {
		t.Fatalf("with a job there happened %q, problems %q", order, v.problems)
	}
	if got := ta.reader.Take(time.Now()).LaidOut; !maps.Equal(got, map[gpu.UUID]bool{uuid(0): false}) {
		t.Errorf("the metrics tell of the layout that waits: %v", got)
	}
	for _, a := range ta.answers.acceptances() {
		g, _ := v.plan.GPU(gpu.UUID(a.UUID))
		want := jobs.IsLeaving
		if g.Profile == "7g.40gb" {
			want = "there is no MIG device 7g.40gb@0 now: its GPU has another layout"
		}
		if g.MIGDevice() && (a.Accept || a.Reason != want) {
			t.Errorf("%s: %+v", g.Place, a)
		}
	}
	if r := ta.refuse(ta.proc.starter(101, "slot2_1"), 1000, "alice", places[1].UUID, 2048); r.Code != api.CodeClosed {
		t.Errorf("a job on a device that goes got %+v", r)
	}
	ta.proc.End(100)
	ta.apply(false)
	if got := ta.reader.Take(time.Now()).LaidOut; !maps.Equal(got, map[gpu.UUID]bool{uuid(0): true}) {
		t.Errorf("the metrics tell of the layout after the job: %v", got)
	}
	if got := ta.profiles(); got != "7g.40gb" {
		t.Errorf("when the job has ended the plan has %s", got)
	}
	for _, a := range ta.answers.acceptances() {
		if place, _ := ta.view.Load().plan.GPU(gpu.UUID(a.UUID)); place.MIGDevice() && a.Accept != (place.Profile == "7g.40gb") {
			t.Errorf("%s: %+v", place.Place, a)
		}
	}
	if now := ta.read(ta.view.Load().config.Paths.CondorConfig()); condor.ConfigOf([]byte(now)) != running {
		t.Error("the startd would have to be restarted for a layout whose places it knows")
	}
}

// The control daemon of a MIG device is stopped before the device goes.
func TestLayoutStopsOwnDaemon(t *testing.T) {
	ta, f := migAgent(t, "3g.20gb", "mig_mps = true\n")
	ta.restart()
	device := ta.hw.inv.GPUs[0].MIGDevices[0].UUID
	if ta.daemons.running[device] == nil {
		t.Fatalf("no control daemon for %s", device)
	}
	var order []string
	log := func(what string) { order = append(order, what) }
	f.Happens, ta.daemons.happens = log, log
	ta.writeConfig(migConfig("7g.40gb", "mig_mps = true\n"))
	ta.apply(true)
	if want := []string{"stop " + string(device), "destroy", "create"}; len(order) < 3 || !slices.Equal(order[:3], want) {
		t.Errorf("%q happened, want first %q", order, want)
	}
}

// TestLayoutThatIsKept: where somebody keeps a layout from being made, users' processes outside of jobs are looked for.
func TestLayoutThatIsKept(t *testing.T) {
	ta, f := migAgent(t, "3g.20gb", "")
	f.S.Holders = []gpu.Holder{{PID: 4711}}
	ta.restart()
	ta.ender.Wait()
	var log strings.Builder
	ta.ender.Log = slog.New(slog.NewTextHandler(&log, nil))
	v := ta.apply(false)
	// The fake /proc does not list the GPU, so that the look fails.
	if ta.ender.Wait(); !strings.Contains(log.String(), "who keeps a MIG layout from being changed") {
		t.Errorf("gpuslotd does not look for who keeps the layout: %s, problems %q", &log, v.problems)
	}
}

// What somebody else made stays, and is offered as it is.
func TestLayoutLeavesForeignInstances(t *testing.T) {
	ta, f := migAgent(t, "7g.40gb", "")
	ctx := t.Context()
	small, _ := mig.ProfileNamed(f.S.Chip, "1g.5gb")
	if err := f.SetMode(ctx, uuid(0), true); err != nil {
		t.Fatal(err)
	}
	if err := f.Create(ctx, uuid(0), gpu.Place{Profile: small.ID, Start: 0}, 1); err != nil {
		t.Fatal(err)
	}
	ta.restart()
	v := ta.view.Load()
	warned := strings.Join(v.plan.Warnings, "\n")
	if ta.profiles() != "1g.5gb" || len(v.problems) > 0 || !strings.Contains(warned, "7g.40gb@0 has no room beside 1g.5gb@0, which gpuslot did not make") ||
		!strings.Contains(warned, "nvidia-smi mig -dgi -i "+string(uuid(0))+" -gi ") {
		t.Errorf("plan %q, warnings %q, problems %q", ta.profiles(), v.plan.Warnings, v.problems)
	}
	for _, a := range ta.answers.acceptances() {
		if g, _ := v.plan.GPU(gpu.UUID(a.UUID)); g.MIGDevice() && a.Accept != (g.Profile == "1g.5gb") {
			t.Errorf("%s: %+v", g.Profile, a)
		}
	}
}
