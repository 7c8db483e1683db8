package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// startVerbs are the verbs that gpuslot-start has.
var startVerbs = []string{"prepare", "supervise"}

// TestStartScripts: gpuslot-start does what gpuslot-condor does. The scripts are the same.
func TestStartScripts(t *testing.T) {
	programs := buildStart(t)
	condor, err := exec.LookPath("gpuslot-condor")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(condor, filepath.Join(programs, "gpuslot-condor")); err != nil {
		t.Fatal(err)
	}
	runWithStart(t, programs, "*")
}

// TestStartAlone: most jobs need gpuslot-start alone.
func TestStartAlone(t *testing.T) {
	programs := buildStart(t)
	for _, script := range []string{"prepare", "prepare-both", "prepare-refused", "prepare-undecided", "supervise-hold",
		"supervise-shared", "supervise-site", "supervise-start"} {
		t.Run(script, func(t *testing.T) { runWithStart(t, programs, script) })
	}
}

// runWithStart runs scripts with gpuslot-start in the place of gpuslot-condor, for its verbs.
func runWithStart(t *testing.T, programs, names string) {
	dir := t.TempDir()
	scripts, err := filepath.Glob("testdata/" + names + ".txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range scripts {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		changed := string(text)
		for _, verb := range startVerbs {
			changed = strings.ReplaceAll(changed, "gpuslot-condor "+verb, "gpuslot-start "+verb)
		}
		if changed == string(text) {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(path)), []byte(changed), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p := scriptParams()
	p.Dir = dir
	setup := p.Setup
	p.Setup = func(e *testscript.Env) error {
		e.Setenv("PATH", programs+string(filepath.ListSeparator)+e.Getenv("PATH"))
		e.Setenv("ASAN_OPTIONS", "detect_leaks=0")
		return setup(e)
	}
	testscript.Run(t, p)
}

// buildStart compiles gpuslot-start into a directory, and returns that.
func buildStart(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	sources, err := filepath.Glob("../gpuslot-start/*.c")
	if err != nil || len(sources) == 0 {
		t.Fatalf("no sources of gpuslot-start: %v", err)
	}
	args := []string{"-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-Wall", "-Wextra", "-Werror",
		"-o", filepath.Join(dir, "gpuslot-start")}
	if out, err := exec.CommandContext(t.Context(), "gcc", append(args, sources...)...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return dir
}
