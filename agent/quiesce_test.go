package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/closures"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/release"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

func (ta *testAgent) order(verb string) api.NodeStatus {
	ta.t.Helper()
	s, err := ta.answers.askNode(api.Request{Verb: verb, Reason: "driver 580"})
	if err != nil {
		ta.t.Fatal(err)
	}
	return s
}

// settled lets the time pass that jobs have to tell of themselves.
func (ta *testAgent) settled() {
	ta.t.Helper()
	n := ta.closures.Node()
	n.Since = n.Since.Add(-time.Minute)
	if err := ta.closures.SetNode(n); err != nil {
		ta.t.Fatal(err)
	}
}

// again starts as Run does after ErrStartAgain.
func (ta *testAgent) again() {
	ta.t.Helper()
	o := ta.options()
	cfg, err := config.Load(o.ConfigFile)
	if err != nil {
		ta.t.Fatal(err)
	}
	quiet := closures.IsQuiet(cfg.Paths.ClosuresFile())
	if quiet {
		o = o.withoutDriver(cfg.Paths)
	}
	a, err := newAgent(o, cfg)
	if err != nil {
		ta.t.Fatal(err)
	}
	a.quiescer.Quiet = quiet
	if err := a.recall(ta.t.Context(), cfg.Paths); err != nil {
		ta.t.Fatal(err)
	}
	ta.Agent = a
	a.apply(ta.t.Context(), true)
}

// TestQuiesce: out of service and back, with a job in the way, restarts and a
// reboot.
func TestQuiesce(t *testing.T) {
	ta := newTestAgent(t, 2, "")
	ctx := t.Context()
	if ta.hw.inv.GPUs[0].ComputeMode != gpu.ComputeModeExclusiveProcess {
		t.Fatal("the test has no compute mode to restore")
	}
	job := ta.proc.starter(100, "slot1_1")
	ta.grant(job, 1000, "alice", uuid(0), 4096)
	ta.order(api.VerbQuiesce)
	if why := ta.reason(1); !strings.Contains(why, "closed by node since") || !strings.Contains(why, "the node is quiescing: driver 580") {
		t.Errorf("START hears %q", why)
	}
	// What opens a GPU does not open the node, and does not say so.
	for _, override := range []bool{false, true} {
		if said, err := ta.open("1", "", override); err != nil || strings.HasSuffix(said, "is open") || !strings.Contains(said, "the node is quiescing: driver 580: gpuslot node resume") || ta.reason(1) == "" {
			t.Errorf("opened, override %v: %q, %v, %q", override, said, err, ta.reason(1))
		}
	}
	ta.settled()
	ta.apply(false)
	if ta.quiescer.Leave(ctx) || len(ta.daemons.running) != 2 {
		t.Fatal("it did not wait for the job")
	}
	if s := ta.quiescer.Status(); len(s.Jobs) != 1 || !strings.Contains(s.Waits, "slot1_1 (alice on "+string(uuid(0))) {
		t.Errorf("status: %+v", s)
	}
	ta.restart() // on the way
	if ta.closures.Node().Phase != closures.Quiescing {
		t.Error("a restart forgot it")
	}
	ta.startd.mu.Lock()
	ta.startd.slots = nil
	ta.startd.mu.Unlock()
	ta.proc.End(100)
	ta.sweeper.now()
	for range jobs.MostAsked {
		ta.startds.Ask(ctx)
	}
	if !ta.quiescer.Leave(ctx) {
		t.Fatalf("it waits: %q", ta.quiescer.Status().Waits)
	}
	if len(ta.daemons.running) != 0 || ta.hw.inv.GPUs[0].ComputeMode != gpu.ComputeModeDefault || ta.hw.inv.GPUs[1].ComputeMode != gpu.ComputeModeDefault {
		t.Errorf("daemons %v, modes %v", ta.daemons.running, ta.hw.modes)
	}
	modes := len(ta.hw.modes)
	ta.hw.set(gpu.Inventory{}, errors.New("the driver is touched"))
	for _, reboot := range []bool{false, true} {
		if reboot {
			if err := os.RemoveAll(filepath.Join(ta.dir, "r")); err != nil {
				t.Fatal(err)
			}
		}
		ta.again()
		ta.apply(false)
		if v := ta.view.Load(); !v.planned || len(v.problems) > 0 || v.closed != "" {
			t.Errorf("reboot %v: planned %v, %q, %q", reboot, v.planned, v.problems, v.closed)
		}
		if why := ta.reason(0); !strings.HasPrefix(why, "closed by node since") || strings.Contains(why, "control daemon") {
			t.Errorf("reboot %v: %q", reboot, why)
		}
		if strings.Contains(scrapeOf(t, ta.Agent), "gpuslot_control_daemon_up{") {
			t.Errorf("reboot %v: GpuslotControlDaemonDown fires where none is to run", reboot)
		}
		if _, err := os.Stat(filepath.Join(ta.dir, "r/condor/execution-point.conf")); err != nil {
			t.Errorf("reboot %v: HTCondor would see other GPUs: %v", reboot, err)
		}
		if len(ta.daemons.running) != 0 || len(ta.hw.modes) != modes || ta.quiescer.Leave(ctx) {
			t.Errorf("reboot %v: a quiesced node was touched", reboot)
		}
	}
	ta.order(api.VerbResume)
	if !ta.quiescer.Leave(ctx) {
		t.Fatal("it does not start again")
	}
	ta.hw.set(inventoryOf(2), nil)
	ta.again()
	if ta.quiescer.Leave(ctx) || ta.reason(0) == "" {
		t.Error("it is open before it is proven")
	}
	if why := ta.quiescer.Status().Waits; why != "" {
		t.Errorf("not back: %q", why)
	}
	if why := ta.quiescer.TryResume(ctx); why != "" || ta.reason(0) != "" || ta.quiescer.Status().Phase != "" {
		t.Errorf("%q, %q, %+v", why, ta.reason(0), ta.quiescer.Status())
	}
	if _, err := os.Stat(release.Inventory(ta.config())); err == nil {
		t.Error("a file stays behind")
	}
}

// TestResumeVerifies: a GPU that does not keep its limits stays closed.
func TestResumeVerifies(t *testing.T) {
	ta, f := verifying(t, 2, "")
	back := closures.Node{Phase: closures.Resuming, Reason: "driver 580"}
	if err := ta.closures.SetNode(back); err != nil {
		t.Fatal(err)
	}
	f.unlimited = true
	if why := ta.quiescer.TryResume(t.Context()); why != "" || len(f.orders) != 2 {
		t.Fatalf("%q, %d clients", why, len(f.orders))
	}
	for n := range 2 {
		if why := ta.reason(n); !strings.Contains(why, "closed by node since") || !strings.Contains(why, "verification after the node resumed failed") {
			t.Errorf("GPU %d: %q", n, why)
		}
	}
	if _, err := ta.open("1", "", true); err != nil || ta.reason(1) != "" {
		t.Errorf("%v, %q", err, ta.reason(1))
	}
	f.mend()
	if err := ta.closures.SetNode(back); err != nil {
		t.Fatal(err)
	}
	if why := ta.quiescer.TryResume(t.Context()); why != "" || ta.reason(0) != "" || ta.reason(1) != "" {
		t.Errorf("mended: %q, %q, %q", why, ta.reason(0), ta.reason(1))
	}
	ta.nothingLeft(f)
}

// TestResumeWithABrokenGPU: the others open; it stays closed, by its own reason
// and because nobody could verify it.
func TestResumeWithABrokenGPU(t *testing.T) {
	ta, f := verifying(t, 2, "")
	ta.faults.Event(gpu.Event{GPU: uuid(1), Kind: gpu.EventXID, XID: 79, Time: time.Now()})
	back := closures.Node{Phase: closures.Resuming, Reason: "driver 580", Since: time.Now()}
	if err := ta.closures.SetNode(back); err != nil {
		t.Fatal(err)
	}
	if why := ta.quiescer.Status().Waits; !strings.HasPrefix(why, "GPU 1: Xid 79") {
		t.Errorf("it waits for %q", why)
	}
	back.Since = back.Since.Add(-time.Hour)
	if err := ta.closures.SetNode(back); err != nil {
		t.Fatal(err)
	}
	if why := ta.quiescer.Status().Waits; why != "" {
		t.Errorf("it waits for ever: %q", why)
	}
	if why := ta.quiescer.TryResume(t.Context()); why != "" || ta.reason(0) != "" || len(f.orders) != 1 {
		t.Errorf("%q, %q, %d clients", why, ta.reason(0), len(f.orders))
	}
	if why := ta.reason(1); !strings.Contains(why, "was not well when the node resumed (Xid 79") {
		t.Errorf("%q", why)
	}
}

// TestRevert withdraws what HTCondor reads.
func TestRevert(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	conf := filepath.Join(ta.dir, "r/condor/execution-point.conf")
	if _, err := os.Stat(conf); err != nil {
		t.Fatal(err)
	}
	ta.order(api.VerbRevert)
	ta.settled()
	if !ta.quiescer.Leave(t.Context()) || ta.closures.Node().Phase != closures.Reverted {
		t.Fatalf("%+v", ta.quiescer.Status())
	}
	ta.again()
	ta.apply(true)
	if _, err := os.Stat(conf); err == nil {
		t.Error("HTCondor's configuration is back")
	}
	if s := ta.status(); !s.PlanApplied.IsZero() {
		t.Errorf("a plan is in force since %s", s.PlanApplied)
	}
	ta.answers.feedback.Note(api.OpMonitor, true, time.Now()) // of the startd that is about to restart without us
	if strings.Contains(scrapeOf(t, ta.Agent), "gpuslot_condor_feedback_timestamp") {
		t.Error("GpuslotCondorFeedbackStale waits for a monitor that was taken away")
	}
	ta.startd.slots = []condor.Slot{{Name: "slot1@wn1.example.org", Type: "Partitionable", AssignedGPUs: []string{string(uuid(0))}, Plan: "of the time before"}}
	if ta.startds.Ask(t.Context()); len(ta.startds.Said().Changes) > 0 {
		t.Errorf("startds are to take up a plan that was withdrawn: %+v", ta.startds.Said().Changes)
	}
	ta.order(api.VerbResume)
	ta.again()
	if _, err := os.Stat(conf); err != nil {
		t.Errorf("resumed: %v", err)
	}
}

// TestMismatch: what a fresh process could not use closes all GPUs and stops
// nothing; when it can again, this process makes way for one that can too.
func TestMismatch(t *testing.T) {
	ta := newTestAgent(t, 2, "")
	why := "the module has another version: gpuslot node quiesce"
	ta.hardware.Mismatch = func(context.Context) (string, error) { return why, nil }
	for range 4 { // a fresh process is asked in one of four rounds
		ta.apply(false)
	}
	if ta.reason(0) != why || ta.reason(1) != why || len(ta.daemons.running) != 2 || ta.hardware.Healed() {
		t.Errorf("%q, daemons %d", ta.reason(0), len(ta.daemons.running))
	}
	ta.hardware.Mismatch = func(context.Context) (string, error) { return "", errors.New("no processes left") }
	if ta.apply(false); ta.reason(0) != why {
		t.Error("what is not known opened it")
	}
	ta.hardware.Mismatch = func(context.Context) (string, error) { return "", nil }
	if ta.apply(false); !ta.hardware.Healed() || ta.reason(0) != "" {
		t.Errorf("healed %v, %q", ta.hardware.Healed(), ta.reason(0))
	}
}
