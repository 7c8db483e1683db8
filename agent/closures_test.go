package agent

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/closures"
)

func (ta *testAgent) close(name, owner, reason string) error {
	_, err := ta.answers.closeGPU(api.Request{GPU: name, Owner: owner, Reason: reason})
	return err
}

func (ta *testAgent) open(name, owner string, override bool) (string, error) {
	c, err := ta.answers.openGPU(api.Request{GPU: name, Owner: owner, Force: override})
	return strings.Join(c.Text, "\n"), err
}

// TestCloseAndOpen: START, the hook and status follow at once, running jobs
// stay, and only its owners open it.
func TestCloseAndOpen(t *testing.T) {
	ta := newTestAgent(t, 2, "")
	running := ta.proc.starter(100, "slot1_1")
	ta.grant(running, 1000, "alice", uuid(0), 4096)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(ta.close("0", "", "riser to be replaced"))
	must(ta.close("0000:10:00.0", "node-health", "too hot"))
	const both = "closed by node-health"
	if why := ta.reason(0); !strings.Contains(why, both) || !strings.Contains(why, "riser to be replaced") {
		t.Errorf("START hears %q", why)
	}
	// A starter of before the close has a running job, one of after it a new one.
	ta.grant(ta.proc.starter(101, "slot1_2"), 1000, "alice", uuid(0), 4096)
	later := ta.proc.starter(102, "slot1_3")
	later.Started = 1 << 60
	if r := ta.refuse(later, 1000, "alice", uuid(0), 4096); r.Code != api.CodeClosed || !strings.Contains(r.Reason, "too hot") {
		t.Errorf("the hook says %+v", r)
	}
	g := ta.status().GPUs[0]
	if len(g.Holds) != 2 || g.Holds[0].Owner != "node-health" || g.Holds[1].Owner != closures.OwnerOperator || len(g.Jobs) != 2 || g.Jobs[0].Hold != "" {
		t.Errorf("status: %+v", g)
	}
	if a := ta.answers.acceptances()[0]; !slices.Equal(a.ClosedBy, []string{"node-health", closures.OwnerOperator}) {
		t.Errorf("closed by %v", a.ClosedBy)
	}
	if ta.reason(1) != "" {
		t.Error("the other GPU is closed")
	}
	ta.apply(false)
	if n := ta.daemons.running[uuid(0)]; n == nil {
		t.Error("a closed GPU lost its control daemon")
	}
	if _, err := ta.open("0", "burn-in", false); err == nil || !strings.HasPrefix(err.Error(), "GPU 0 ("+string(uuid(0))+") is closed by ") || !strings.Contains(err.Error(), "only its owner") {
		t.Errorf("a stranger opens it: %v", err)
	}
	said, err := ta.open("0", "", false)
	if err != nil || !strings.Contains(said, "no longer closed by operator, but stays closed by node-health") {
		t.Errorf("%q, %v", said, err)
	}
	if ta.reason(0) == "" {
		t.Error("it opened with one owner left")
	}
	if said, err = ta.open("0", "node-health", false); err != nil || !strings.Contains(said, "GPU 0 ("+string(uuid(0))+") is opened") || ta.reason(0) != "" {
		t.Errorf("%q, %v, %q", said, err, ta.reason(0))
	}
	if said, err = ta.open("0", "", false); err != nil || !strings.HasSuffix(said, "is open") {
		t.Errorf("again: %q, %v", said, err)
	}
	must(ta.close("all", "burn-in", "week 12"))
	if ta.reason(0) == "" || ta.reason(1) == "" {
		t.Error("all are not closed")
	}
	if _, err := ta.open("all", "", true); err != nil || ta.reason(0) != "" || ta.reason(1) != "" {
		t.Errorf("an override opens: %v", err)
	}
}

// TestOpeningThatCannotBeKept: the GPU stays closed, and the operator reads why.
func TestOpeningThatCannotBeKept(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	if err := ta.close("0", "", "x"); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(ta.config().ClosuresFile())
	if err := errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	_, err := ta.open("0", "", false)
	if err == nil || !strings.HasPrefix(err.Error(), "GPU 0 ("+string(uuid(0))+") stays closed, because its opening cannot be kept: ") || ta.reason(0) == "" {
		t.Errorf("%v, and START hears %q", err, ta.reason(0))
	}
}

// TestClosuresOutliveAgents, and what cannot be read closes everything.
func TestClosuresOutliveAgents(t *testing.T) {
	ta := newTestAgent(t, 2, "")
	if err := ta.close(string(uuid(1)), "node-health", "too hot"); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(ta.dir, "r")); err != nil { // a reboot
		t.Fatal(err)
	}
	ta.restart()
	if why := ta.reason(1); !strings.Contains(why, "closed by node-health since "+time.Now().Format("2006-01-02")) || ta.reason(0) != "" {
		t.Errorf("after a reboot: %q, %q", why, ta.reason(0))
	}
	file := ta.config().ClosuresFile()
	for _, text := range []string{"{", `{"schema":"gpuslot-holds/9","holds":[]}`, `{"schema":"gpuslot-holds/1","holds":[],"more":1}`, "", "[]"} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		ta.restart()
		if why := ta.reason(0); !strings.Contains(why, "which GPUs are held closed is not known") {
			t.Errorf("%q: %q", text, why)
		}
		if _, err := ta.open("0", "", false); err == nil || !strings.HasPrefix(err.Error(), "GPU 0 ("+string(uuid(0))+") stays closed: which GPUs are held closed") {
			t.Errorf("%q: without an override: %v", text, err)
		}
	}
	if err := os.WriteFile(file, []byte(`{"schema":"gpuslot-holds/1","holds":[]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if ta.apply(true); ta.reason(0) != "" {
		t.Errorf("a mended file, reloaded: %q", ta.reason(0))
	}
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	ta.restart()
	if _, err := ta.open("all", "", true); err != nil || ta.reason(0) != "" {
		t.Errorf("override: %v, %q", err, ta.reason(0))
	}
	ta.restart()
	if ta.reason(1) != "" {
		t.Error("what was opened is closed again")
	}
}

// TestClosureNotKept: a GPU is closed also where the disk is full, and says so; it
// is not opened then.
func TestClosureNotKept(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	dir := filepath.Dir(ta.config().ClosuresFile())
	if err := errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	if err := ta.close("0", "", "x"); err == nil || !strings.Contains(err.Error(), "closed until gpuslotd ends") || ta.reason(0) == "" {
		t.Errorf("%v, %q", err, ta.reason(0))
	}
	if _, err := ta.open("0", "", false); err == nil || ta.reason(0) == "" {
		t.Errorf("%v, %q", err, ta.reason(0))
	}
}
