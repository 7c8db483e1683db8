package faults

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// brokenAgent is an agent in which one text of one source file was replaced.
type brokenAgent struct {
	name, file, text, by string
	// rule is what it must break.
	rule string
}

var brokenAgents = []brokenAgent{
	{
		name: "kills first", file: "agent/ending/end.go", rule: othersRun,
		text: "	step, err := e.Clients.EndClients(ctx, u, pids, mps.DefaultEndRules)\n",
		by:   "	for _, pid := range pids {\n		_ = unix.Kill(pid, unix.SIGKILL)\n	}\n	step, err := e.Clients.EndClients(ctx, u, pids, mps.DefaultEndRules)\n",
	},
	{
		name: "ignores read-back", file: "mps/daemon.go", rule: limitsStand,
		text: "if differs := compare(w, back[0], back[1]); len(differs) > 0 {",
		by:   "if differs := compare(w, back[0], back[1]); len(differs) > 99 {",
	},
	{
		name: "double-books VRAM", file: "agent/admission/decide.go", rule: notDoubled,
		text: "	case fits && used <= g.Pool-s.Health.Unlisted:\n",
		by:   "	case fits || jobs > 0:\n",
	},
}

// script is what each agent goes through: enough to find every broken one. The
// first injection meets a GPU without jobs.
var script = []injection{
	{"limits that do not stick", deafDaemon},
	{"busy job told to end", busyTold},
	{"a share promised twice", doubleBooked},
}

// TestBrokenAgents: a suite that lets a broken agent pass proves nothing.
func TestBrokenAgents(t *testing.T) {
	beside(t)
	t.Run("honest", func(t *testing.T) {
		if elsewhere(t) {
			return
		}
		c, b := runScript(t, plain())
		if b != nil {
			t.Fatalf("does not hold: %s\n%s", b.rule, b.text)
		}
		for _, inj := range script {
			if len(c.rows[inj.name].took) == 0 {
				t.Errorf("%s was left out", inj.name)
			}
		}
	})
	for _, a := range brokenAgents {
		t.Run(a.name, func(t *testing.T) {
			if elsewhere(t) {
				return
			}
			c, b := runScript(t, a.build(t))
			switch {
			case b == nil:
				t.Errorf("the agent that %s passes:\n%s", a.name, strings.Join(c.history, "\n"))
			case b.rule != a.rule:
				t.Errorf("the agent that %s breaks %q, want %q:\n%s", a.name, b.rule, a.rule, b.text)
			default:
				where, _, _ := strings.Cut(b.text, "\n")
				t.Logf("found: %s: %s", b.rule, where)
			}
		})
	}
}

func runScript(t *testing.T, daemon string) (*campaign, *broken) {
	c := newCampaign(newNode(t, "550.163.01", daemon), 1)
	c.idleFirst = true
	if daemon == plain() {
		return c, c.run(script)
	}
	c.heals = 10 * time.Second
	// A kill harms neighbours only while a kernel runs: it may miss that, so there are more of it.
	return c, c.run(append(slices.Clone(script), script[1], script[1], script[1]))
}

// build makes the broken agent from this repository and one patched file.
func (a brokenAgent) build(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(strings.TrimSpace(string(out)), a.file)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(b), a.text); n != 1 {
		t.Fatalf("%s has %d times what the agent that %s replaces; write the new text into this test:\n%s", a.file, n, a.name, a.text)
	}
	dir := t.TempDir()
	patched := filepath.Join(dir, filepath.Base(a.file))
	if err := os.WriteFile(patched, []byte(strings.Replace(string(b), a.text, a.by, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {file: patched}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o644); err != nil {
		t.Fatal(err)
	}
	daemon := filepath.Join(dir, "gpuslotd")
	if err := goBuild(daemon, []string{"-overlay", filepath.Join(dir, "overlay.json")}, "cmd/gpuslotd"); err != nil {
		t.Fatal(err)
	}
	return daemon
}
