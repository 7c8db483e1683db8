package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/gpu"
)

// TestHoldsModel: after any row of closings and openings a GPU is held by
// exactly those who closed it and neither opened it nor were overridden.
func TestHoldsModel(t *testing.T) {
	owners, gpus := []string{"operator", "node-health", "burn-in"}, []gpu.UUID{uuid(0), uuid(1)}
	rapid.Check(t, func(t *rapid.T) {
		model := map[gpu.UUID]map[string]string{uuid(0): {}, uuid(1): {}}
		var h Holds
		for n := range rapid.IntRange(0, 40).Draw(t, "steps") {
			u, owner := rapid.SampledFrom(gpus).Draw(t, "gpu"), rapid.SampledFrom(owners).Draw(t, "owner")
			before := slices.Clone(h)
			switch rapid.IntRange(0, 3).Draw(t, "do") {
			case 0, 1:
				reason := fmt.Sprintf("reason %d", n)
				h = h.With(Hold{GPU: u, Owner: owner, Reason: reason})
				model[u][owner] = reason
			case 2:
				_, had := model[u][owner]
				others := len(model[u]) > 0 && !had
				rest, lifted, err := h.Lift(u, owner, false)
				if (err != nil) != others || had != (len(lifted) == 1) {
					t.Fatalf("%s lifts %s of %v: lifted %v, %v", owner, u, model[u], lifted, err)
				}
				h = rest
				delete(model[u], owner)
			case 3:
				rest, lifted, err := h.Lift(u, owner, true)
				if err != nil || len(lifted) != len(model[u]) {
					t.Fatalf("override lifts %v of %v: %v", lifted, model[u], err)
				}
				h, model[u] = rest, map[string]string{}
			}
			if len(before) > 0 && len(h) > 0 && &before[0] == &h[0] {
				t.Fatal("a value was changed")
			}
			for _, u := range gpus {
				on := h.On(u)
				if len(on) != len(model[u]) || (on.Reason() == "") != (len(model[u]) == 0) {
					t.Fatalf("%s is held by %v, want %v", u, on, model[u])
				}
				for _, o := range on {
					if model[u][o.Owner] != o.Reason || !strings.Contains(on.Reason(), o.Reason) {
						t.Fatalf("%v of %s, want %v", o, u, model[u])
					}
				}
			}
		}
	})
}

func TestCheckHold(t *testing.T) {
	for _, c := range []struct{ owner, reason, want, says string }{
		{"operator", "  riser\tto be\nreplaced ", "riser to be replaced", ""},
		{"node-health", "x\x1b[31m\x00y", "x [31m y", ""},
		{"operator", " \n", "", "needs a reason"},
		{"operator", strings.Repeat("é", maxReason), strings.Repeat("é", maxReason), ""},
		{"operator", strings.Repeat("é", maxReason+1), "", "say it shorter"},
		{"agent", "x", "", "gpuslot's own"},
		{"node", "x", "", "gpuslot's own"},
		{"Health", "x", "", "is no name"},
		{strings.Repeat("a", 33), "x", "", "is no name"},
	} {
		got, err := checkHold(c.owner, c.reason)
		if got != c.want || (err != nil) != (c.says != "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q, %q: %q, %v", c.owner, c.reason, got, err)
		}
	}
}

func (ta *testAgent) close(name, owner, reason string) error {
	_, err := ta.closeGPU(api.Request{GPU: name, Owner: owner, Reason: reason})
	return err
}

func (ta *testAgent) open(name, owner string, override bool) (string, error) {
	c, err := ta.openGPU(api.Request{GPU: name, Owner: owner, Force: override})
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
	if len(g.Holds) != 2 || g.Holds[0].Owner != "node-health" || g.Holds[1].Owner != OwnerOperator || len(g.Jobs) != 2 || g.Jobs[0].Hold != "" {
		t.Errorf("status: %+v", g)
	}
	if a := ta.acceptances()[0]; !slices.Equal(a.ClosedBy, []string{"node-health", OwnerOperator}) {
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

// TestHoldsOutliveAgents, and what cannot be read closes everything.
func TestHoldsOutliveAgents(t *testing.T) {
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

// TestHoldNotKept: a GPU is closed also where the disk is full, and says so; it
// is not opened then.
func TestHoldNotKept(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	dir := filepath.Dir(ta.config().ClosuresFile())
	ta.holds.path = filepath.Join(dir, "undo.json", "holds.json") // below a file
	if err := os.WriteFile(filepath.Join(dir, "undo.json"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := ta.close("0", "", "x"); err == nil || !strings.Contains(err.Error(), "closed until gpuslotd ends") || ta.reason(0) == "" {
		t.Errorf("%v, %q", err, ta.reason(0))
	}
	if _, err := ta.open("0", "", false); err == nil || ta.reason(0) == "" {
		t.Errorf("%v, %q", err, ta.reason(0))
	}
}

func TestGPUsNamed(t *testing.T) {
	ta := newTestAgent(t, 2, "")
	p := &ta.view.Load().plan
	for name, want := range map[string]int{
		"0": 0, "1": 1, string(uuid(1)): 1, "0000:11:00.0": 1, "00000000:11:00.0": 1, uuid(0).Bare(): 0,
	} {
		found, err := gpusNamed(p, name)
		if err != nil || len(found) != 1 || found[0].uuid != uuid(want) {
			t.Errorf("%q: %v, %v", name, found, err)
		}
	}
	for name, says := range map[string]string{"": "there is no GPU", "7": "there is no GPU", "GPU-0": "begins the UUIDs of 2", "00000": "begins the UUIDs of 2", "0000:12:00.0": "there is no GPU"} {
		if _, err := gpusNamed(p, name); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if found, err := gpusNamed(p, "all"); err != nil || len(found) != 2 {
		t.Errorf("all: %v, %v", found, err)
	}
}

// FuzzReadHolds: what is accepted reads back as it was written.
func FuzzReadHolds(f *testing.F) {
	f.Add([]byte(`{"schema":"gpuslot-holds/1","holds":[{"gpu":"GPU-00000000-0000-4000-8000-000000000000","owner":"operator","reason":"x","since":"2026-11-21T09:42:50Z"}]}`))
	f.Add([]byte(`{"schema":"gpuslot-holds/1","holds":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "holds.json")
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		file, err := readHolds(path)
		if err != nil {
			return
		}
		s := newHoldStore(path)
		s.file = file
		if err := s.write(file); err != nil {
			t.Fatal(err)
		}
		again, err := readHolds(path)
		if err != nil || again.Holds.Reason() != file.Holds.Reason() || len(again.Holds) != len(file.Holds) {
			t.Fatalf("%v became %v, %v", file, again, err)
		}
	})
}
