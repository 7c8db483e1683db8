package layouts

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/modes"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

func problems(out Outcome) string {
	if err := errors.Join(out.Problems...); err != nil {
		return err.Error()
	}
	return ""
}

// Rounds without a change do nothing, and the mode that was found is noted first.
func TestMade(t *testing.T) {
	n := newNode(t, `"3g.20gb@4, 1g.5gb@0"`, "")
	if n.has() != "1g.5gb@0 3g.20gb@4" || !maps.Equal(n.out.Made, map[gpu.UUID]bool{testGPU: true}) {
		t.Fatalf("there is %s, %+v", n.has(), n.out)
	}
	if j, err := modes.Read(modes.File(n.paths)); err != nil || !maps.Equal(j.MIGModes, map[gpu.UUID]bool{testGPU: false}) {
		t.Errorf("%+v, %v", j, err)
	}
	n.gpu.Happens = func(what string) { t.Error(what) }
	if out := n.round(); out.Changed || len(out.Problems) > 0 {
		t.Errorf("%+v", out)
	}
}

// Nothing changes while it is not known which devices jobs have, nor without hardware.
func TestStill(t *testing.T) {
	n := newNode(t, `"3g.20gb@4, 1g.5gb@0"`, "")
	n.gpu.Happens = func(what string) { t.Error(what) }
	n.divide(`"7g.40gb"`, "")
	at := n.now()
	at.Still = true
	if out := n.Round(t.Context(), at); out.Made != nil || out.Changed {
		t.Errorf("%+v", out)
	}
	n.unknown = "the job in slot1_1 is not known"
	if out := n.round(); !strings.Contains(problems(out), "waits: the job in slot1_1 is not known") {
		t.Errorf("%q", out.Problems)
	}
	n.executor.Hardware = nil
	if out := n.Round(t.Context(), at); out.Made != nil {
		t.Errorf("%+v", out)
	}
}

// A job's device stays, what must go takes no new jobs, and goes when the job has ended.
func TestWaitsForJobs(t *testing.T) {
	n := newNode(t, `["1g.5gb*7", "7g.40gb"]`, "")
	n.job("slot1_1", "1g.5gb@0")
	idle := n.place("1g.5gb@3")
	n.gpu.Happens = func(what string) { t.Error(what) }
	n.divide(`["7g.40gb", "1g.5gb*7"]`, "")
	out := n.round()
	if !strings.Contains(problems(out), "1g.5gb@0 is used by slot1_1") || out.Made[testGPU] {
		t.Errorf("%+v", out)
	}
	if got := n.Leaving(); got[idle.UUID] != jobs.IsLeaving || got[idle.Device] != jobs.IsLeaving {
		t.Errorf("new jobs come to what has to go: %v", got)
	}
	// The plan of an agent before this one has the device of a job, too.
	n.running[0].Device = ""
	if out := n.round(); !strings.Contains(problems(out), "slot1_1") {
		t.Errorf("%q", out.Problems)
	}
	n.gpu.Happens = func(string) {}
	n.running = nil
	if out := n.round(); !out.Changed || n.has() != "7g.40gb@0" || len(n.reserved) == 0 {
		t.Errorf("there is %s, %+v", n.has(), out)
	}
	if n.round(); len(n.Leaving()) > 0 || !n.out.Made[testGPU] {
		t.Errorf("%v leaves, %+v", n.Leaving(), n.out)
	}
}

// A GPU is divided only when no job has it whole or shared, also one that has opened nothing yet. Meanwhile none comes.
func TestDividedAfterJobs(t *testing.T) {
	n := newNode(t, "", "")
	n.gpu.Happens = func(what string) { t.Error(what) }
	n.divide(`"3g.20gb@4"`, "")
	n.unknown = "the job in slot1_1 is not known"
	if out := n.round(); !strings.Contains(problems(out), n.unknown) {
		t.Errorf("%q", out.Problems)
	}
	n.unknown, n.running = "", []jobs.Job{{Starter: starter.Starter{Slot: "slot1_1"}, GPU: testGPU}}
	if out := n.round(); !strings.Contains(problems(out), "waits: slot1_1 has a job there") || out.Made[testGPU] {
		t.Errorf("%+v", out)
	}
	n.running = nil
	n.gpu.Happens = func(what string) {
		if !slices.Contains(n.reserved, testGPU) {
			t.Errorf("%s, while jobs may come", what)
		}
	}
	if out := n.round(); n.has() != "3g.20gb@4" {
		t.Errorf("there is %s, %+v", n.has(), out)
	}
}

// The control daemon of a device is stopped before the device goes; one that does not stop
// keeps it.
func TestStopsDaemons(t *testing.T) {
	n := newNode(t, `"3g.20gb@4"`, "mig_mps = true\n")
	device := n.gpu.Devices()[0].UUID
	n.owned = 77
	n.gpu.S.Instances[0].Holders = []gpu.Holder{{PID: 77}}
	n.divide(`"7g.40gb"`, "mig_mps = true\n")
	n.err = errNo
	if out := n.round(); out.Made[testGPU] || n.has() != "3g.20gb@4" || !strings.Contains(problems(out), "stop our own holders") {
		t.Errorf("there is %s, %+v", n.has(), out)
	}
	n.err = nil
	n.gpu.Happens = func(what string) {
		if what == "destroy" && len(n.stopped) == 0 {
			t.Error("the device goes before its control daemon")
		}
	}
	n.gpu.S.Instances[0].Holders = nil
	if n.round(); n.has() != "7g.40gb@0" || len(n.stopped) != 1 || n.stopped[0] != device {
		t.Errorf("there is %s, stopped %v", n.has(), n.stopped)
	}
}

// What gpuslot made goes when the GPU is not to be divided any more; foreign instances
// stay, and MIG mode with them.
func TestLeaves(t *testing.T) {
	n := newNode(t, `"3g.20gb@4, 1g.5gb@0"`, "")
	small, _ := mig.ProfileNamed(n.gpu.S.Chip, "1g.5gb")
	if err := n.gpu.Create(t.Context(), testGPU, gpu.Place{Profile: small.ID, Start: 2}, 1); err != nil {
		t.Fatal(err)
	}
	n.divide("", "")
	for range 2 {
		if n.round(); n.has() != "1g.5gb@2" || !n.gpu.S.Enabled {
			t.Errorf("there is %s, MIG mode %t", n.has(), n.gpu.S.Enabled)
		}
	}
}

// A job keeps its device and MIG mode until it ends; then the GPU is as it was found.
func TestLeavesAfterJobs(t *testing.T) {
	for _, all := range []bool{false, true} {
		n := newNode(t, `"3g.20gb@4, 1g.5gb@0"`, "")
		n.job("slot1_1", "1g.5gb@0")
		at := n.now()
		go1 := func() string {
			if all {
				if err := n.Leave(t.Context(), at); err != nil {
					return err.Error()
				}
				return ""
			}
			return problems(n.round())
		}
		n.divide("", "")
		if why := go1(); n.has() != "1g.5gb@0" || !n.gpu.S.Enabled || !strings.Contains(why, "until their users end: [1g.5gb@0]") {
			t.Errorf("there is %s, %q", n.has(), why)
		}
		n.running = nil
		if why := go1(); n.has() != "" || n.gpu.S.Enabled || why != "" {
			t.Errorf("there is %s, MIG mode %t, %q", n.has(), n.gpu.S.Enabled, why)
		}
		if j, err := modes.Read(modes.File(n.paths)); err != nil || len(j.MIGModes) > 0 {
			t.Errorf("%+v, %v", j, err)
		}
	}
}

// A device takes no new jobs, by its names of the plan in force, before it goes. One that got a job stays.
func TestLeavesReserved(t *testing.T) {
	n := newNode(t, `"3g.20gb@4, 1g.5gb@0"`, "")
	big, small := n.place("3g.20gb@4"), n.place("1g.5gb@0")
	n.job("slot1_1", "1g.5gb@0")
	n.divide("", "")
	n.gpu.Happens = func(what string) {
		for u, want := range map[gpu.UUID]bool{big.UUID: true, big.Device: true, small.UUID: false, small.Device: false} {
			if slices.Contains(n.reserved, u) != want {
				t.Errorf("%s: %v is reserved", what, n.reserved)
			}
		}
	}
	if n.round(); n.has() != "1g.5gb@0" {
		t.Errorf("there is %s", n.has())
	}

	n = newNode(t, `"3g.20gb@4"`, "")
	n.divide("", "")
	n.jobs = begun{n}
	n.gpu.Happens = func(what string) { t.Error(what) }
	if out := n.round(); !strings.Contains(problems(out), "stay for now: slot1_7 has a job there") {
		t.Errorf("%q", out.Problems)
	}
}

// The loop beats while a change takes long, and the other GPUs' daemons are probed.
func TestTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, `"3g.20gb@4"`, "")
		beats, probes := n.beats, n.probes
		n.gpu.Happens = func(string) { time.Sleep(2 * time.Minute) }
		n.divide(`"7g.40gb"`, "")
		if n.round(); n.has() != "7g.40gb@0" || n.beats-beats < 200 || n.probes-probes < 10 || n.probes-probes > 20 {
			t.Errorf("there is %s, %d beats, %d probes", n.has(), n.beats-beats, n.probes-probes)
		}
	})
}

// A change that never ends is left alone, and not begun a second time.
func TestHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, `"3g.20gb@4"`, "")
		var begun atomic.Int32
		hangs := make(chan struct{})
		n.gpu.Happens = func(string) {
			begun.Add(1)
			<-hangs
		}
		n.divide(`"7g.40gb"`, "")
		for range 2 {
			if out := n.round(); !strings.Contains(problems(out), "see the kernel log") || begun.Load() != 1 {
				t.Errorf("%d steps were begun, %q", begun.Load(), out.Problems)
			}
		}
		close(hangs)
		synctest.Wait()
		for _, layout := range []string{"7g.40gb@0", "3g.20gb@4"} { // it has ended once and for all
			n.divide(`"`+layout+`"`, "")
			if out := n.round(); len(out.Problems) > 0 || n.has() != layout {
				t.Errorf("there is %s, %q", n.has(), out.Problems)
			}
		}
	})
}

// While a journal cannot be read, for want of descriptors, whose devices are is as it was, and so is the plan.
func TestJournalNotRead(t *testing.T) {
	n := newNode(t, `["1g.5gb*7", "7g.40gb"]`, "")
	n.job("slot1_1", "1g.5gb@0")
	n.divide(`"7g.40gb"`, "")
	n.round()
	before, inv := n.plan, n.now().Inventory
	file := mig.JournalFile(n.paths.State, testGPU)
	if err := errors.Join(os.Rename(file, file+".old"), os.Mkdir(file, 0o755)); err != nil {
		t.Fatal(err)
	}
	n.round()
	if d := plan.Diff(before, n.plan); len(d) > 0 || !slices.Equal(before.Warnings, n.plan.Warnings) {
		t.Errorf("the plan changes: %v, %q", d, n.plan.Warnings)
	}
	if got := n.Owned(inv).GPUs[0].MIGDevices[0]; got.Owner != gpu.Ours || inv.GPUs[0].MIGDevices[0].Owner != "" {
		t.Errorf("%+v", got)
	}
	inv.GPUs[0].MIGDevices[0].UUID = "MIG-99999999-0000-5000-8000-000000000000"
	if got := n.Owned(inv).GPUs[0].MIGDevices[0]; got.Owner != "" {
		t.Errorf("a new device: %+v", got)
	}
}
