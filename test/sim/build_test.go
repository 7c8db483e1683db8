package sim

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestBuildsInUseStay: a build that nobody used for a day goes when another one
// is made; one in use stays.
func TestBuildsInUseStay(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("GPUSLOT_CACHE", cache)
	fill := func(dir string) error { return os.WriteFile(filepath.Join(dir, "x"), nil, 0o600) }
	build := func(name string) string {
		t.Helper()
		dir, err := once(name, fill)
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	old, used := build("sim-old"), build("sim-used")
	yesterday := time.Now().Add(-keep - time.Minute)
	if err := errors.Join(os.Chtimes(old, yesterday, yesterday), os.Chtimes(used, yesterday, yesterday)); err != nil {
		t.Fatal(err)
	}
	build("sim-used")
	if build("sim-new"); exists(old) || !exists(used) {
		t.Errorf("an unused build is there: %t, a used one is there: %t", exists(old), exists(used))
	}
}

// TestFailedBuildLeavesNothing: the next call tries again.
func TestFailedBuildLeavesNothing(t *testing.T) {
	t.Setenv("GPUSLOT_CACHE", t.TempDir())
	broken := errors.New("no compiler today")
	if _, err := once("sim-x", func(string) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("error %v, want the compiler's", err)
	}
	if dir, err := once("sim-x", func(string) error { return nil }); err != nil || !exists(dir) {
		t.Errorf("the second try: %q, %v", dir, err)
	}
}

// TestCompilerErrorIsShown: what gcc says reaches the reader.
func TestCompilerErrorIsShown(t *testing.T) {
	Dir(t) // skips without gcc
	file := filepath.Join(t.TempDir(), "wrong.c")
	if err := os.WriteFile(file, []byte("int f(void) { return g; }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := cc(context.Background(), []string{"-o", os.DevNull, "-c", file}); err == nil || !strings.Contains(err.Error(), "wrong.c:1") {
		t.Errorf("error %v does not name the line", err)
	}
}

// TestStubs: names come from prototypes, not from comments; what is defined
// gets no stub.
func TestStubs(t *testing.T) {
	names := prototypes([]byte("/* nvmlReturn_t DECLDIR nvmlNot(void); */\nnvmlReturn_t DECLDIR nvmlB(int a,\n int b);\n// nvmlReturn_t DECLDIR nvmlNor(void);\nnvmlReturn_t DECLDIR nvmlA(void);\n"))
	if got := strings.Join(names, " "); got != "nvmlA nvmlB" {
		t.Errorf("prototypes %q, want nvmlA nvmlB", got)
	}
	if got := string(stubSource(names, map[string]bool{"nvmlA": true})); strings.Contains(got, "nvmlA") || !strings.Contains(got, "int nvmlB(void)") {
		t.Errorf("stubs:\n%s", got)
	}
}
