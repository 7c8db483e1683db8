package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// module writes a module with one test file and goes there.
func module(t *testing.T, tests string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module example.org/gpuslot/test/scenes\n\ngo 1.24\n",
		"x_test.go": "package scenes\n\nimport \"testing\"\n\n" + tests} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	t.Setenv("GOFLAGS", "-mod=mod")
}

// printed runs tally and returns what it printed.
func printed(t *testing.T, args ...string) (code int, text string) {
	t.Helper()
	old := os.Stdout
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	os.Stdout = f
	code, err = run(args)
	os.Stdout = old
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return code, string(b)
}

const (
	passes  = "func TestPasses(t *testing.T) { t.Log(\"chatter\"); t.Run(\"sub\", func(*testing.T) {}) }\n"
	figures = "func TestFigure(t *testing.T) { t.Logf(\"figure: %d lines (at most 9)\", 7); t.Log(\"no figure: 3\") }\n"
	within  = "func TestOuter(t *testing.T) { t.Run(\"sub\", func(t *testing.T) { t.Error(\"this is it\") }) }\n"
	fails   = "func TestFails(t *testing.T) { t.Error(\"awaited this, saw that\") }\n"
	noRoot  = "func TestNode(t *testing.T) { t.Skip(\"needs root\") }\n"
	long    = "func TestLong(t *testing.T) { t.Skip(\"part of make campaign\") }\n"
	broken  = "func TestBroken(t *testing.T) { return 1 }\n"
	stopped = "func TestStops(t *testing.T) { t.Log(\"half way\"); panic(\"gone\") }\n"
)

// saidFailed begins the line of a test that failed.
const saidFailed = "failed: example.org/gpuslot/test/scenes "

func TestTally(t *testing.T) {
	for _, tt := range []struct {
		name, tests, ci string
		code            int
		sum             string
		has             []string
		hasNot          string
	}{
		{"all pass", passes, "true", 0, "2 ran, 0 skipped", []string{"ok  \texample.org/gpuslot/test/scenes"}, "chatter"},
		{"a figure", passes + figures, "true", 0, "7 lines (at most 9)\n3 ran, 0 skipped", []string{"ok  \t"}, "figure"},
		{"one fails", passes + fails, "", 1, saidFailed + "TestFails\n    x_test.go:6: awaited this, saw that\n3 ran, 0 skipped", []string{"--- FAIL: TestFails", "awaited this, saw that", "FAIL\texample.org"}, "chatter"},
		{"one within another fails", within, "", 1, saidFailed + "TestOuter/sub\n    x_test.go:5: this is it\n2 ran, 0 skipped", []string{"--- FAIL: TestOuter/sub"}, "ok  \t"},
		{"a skip is counted", passes + noRoot, "", 0, "2 ran, 1 skipped: 1 needs root", []string{"ok  \t"}, "FAIL"},
		{"a skip fails CI", passes + noRoot, "true", 1, saidFailed + "TestNode\n    skipped, and CI has to run it: needs root\n2 ran, 1 skipped: 1 needs root", []string{saidFailed + "TestNode"}, "chatter"},
		{"what takes long may be left to the campaign", passes + long, "true", 0, "2 ran, 1 skipped: 1 part of make campaign", []string{"ok  \t"}, "FAIL"},
		{"no build", broken, "", 1, "failed: example.org/gpuslot/test/scenes, its output is above\n0 ran, 0 skipped", []string{"too many return values", "[build failed]"}, "ok  \t"},
		{"a panic", passes + stopped, "", 1, saidFailed + "TestStops\n    x_test.go:6: half way\n3 ran, 0 skipped", []string{"half way", "panic: gone", "FAIL\t"}, "chatter"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			module(t, tt.tests)
			t.Setenv("CI", tt.ci)
			code, text := printed(t, "-into", "counts", "go", "test", ".")
			for _, want := range tt.has {
				if !strings.Contains(text, want) {
					t.Errorf("no %q in\n%s", want, text)
				}
			}
			if code != tt.code || strings.Contains(text, tt.hasNot) {
				t.Errorf("code %d, want %d, and no %q in\n%s", code, tt.code, tt.hasNot, text)
			}
			if _, sum := printed(t, "-sum", "counts"); sum != tt.sum+"\n" {
				t.Errorf("sum %q, want %q", sum, tt.sum)
			}
		})
	}
}
