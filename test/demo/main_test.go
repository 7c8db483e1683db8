package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/test/scenes"
)

// TestDemoSaysItsTime: the demo prints the time to expect before anything else, and its own time and whether
// caches were warm at its end.
func TestDemoSaysItsTime(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("GPUSLOT_CACHE", cache)
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(filepath.Join(cache, "node-before"), 0o755))
	began := time.Date(2026, 11, 1, 10, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name, makes, end string
		failed           []string
		err              error
		compiled         time.Duration
	}{
		{name: "warm", end: "\nAll checks of 2 scenes held. It took 1m2s, of which 2s to compile the demo. The caches were warm.\n", compiled: 2 * time.Second},
		{name: "cold", makes: "node-new", end: "\nAll checks of 2 scenes held. It took 1m40s, of which 40s to compile the demo. " +
			"The caches were cold (made now: node-new).\n", compiled: 40 * time.Second},
		{name: "another file", makes: "driver-550", end: "It took 1m0s, of which 0s to compile the demo. The caches were warm.\n"},
		{name: "a check", failed: []string{"no job was held"}},
		{name: "an error", err: errors.New("no node")},
	} {
		var out strings.Builder
		s := show{out: &out, began: began, compiled: c.compiled, now: func() time.Time { return began.Add(time.Minute) }}
		s.play = func(_ context.Context, a act, before int, at time.Time) ([]string, error) {
			if !strings.Contains(out.String(), "It takes about a minute") || before != 0 || at != began || len(a.scenes) != 2 {
				t.Errorf("%s: the first act begins after %q, scene %d of %d", c.name, out.String(), before, len(a.scenes))
			}
			if c.makes != "" {
				must(os.Mkdir(filepath.Join(cache, c.makes), 0o755))
			}
			return c.failed, c.err
		}
		err := s.run(t.Context(), intro, []act{{scenes: scenes.Demo(100)}, {}})
		if (c.failed != nil || c.err != nil) != (err != nil) || c.end == "" && strings.Contains(out.String(), "All checks") {
			t.Errorf("%s: %v\n%s", c.name, err, &out)
		}
		if !strings.HasSuffix(out.String(), c.end) {
			t.Errorf("%s ends with\n%s\nwant\n%s", c.name, &out, c.end)
		}
	}
}

// TestMakeSaysTheTimeFirst: make demo prints the time to expect before it compiles.
func TestMakeSaysTheTimeFirst(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "make", "-n", "-C", "../..", "demo")
	cmd.Env = append(os.Environ(), "MAKEFLAGS=", "MFLAGS=")
	out, err := cmd.CombinedOutput()
	said, compiles := strings.Index(string(out), "make demo: about a minute"), strings.Index(string(out), "run ./test/demo")
	if err != nil || said < 0 || compiles < said || !strings.Contains(string(out), "GPUSLOT_DEMO_BEGAN=$(date +%s)") {
		t.Errorf("%v\n%s", err, out)
	}
}
