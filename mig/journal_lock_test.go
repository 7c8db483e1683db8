package mig

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/test/lock"
)

// TestLockOfAnother: whoever has the lock is named.
func TestLockOfAnother(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "mig"), 0o755); err != nil {
		t.Fatal(err)
	}
	by := lock.By(t, filepath.Join(dir, "mig", testGPU.String()+".lock"))
	unlock, err := lockGPU(dir, testGPU)
	if err == nil {
		unlock()
		t.Fatal("two hold the lock")
	}
	if want := fmt.Sprintf("process %d (\"flock\") runs (state", by); !strings.Contains(err.Error(), want) {
		t.Errorf("%v; want %q in it", err, want)
	}
}

// TestLockRefused: without the lock file there is no lock.
func TestLockRefused(t *testing.T) {
	for name, make := range map[string]func(dir string) error{
		"no directory": func(dir string) error { return os.WriteFile(filepath.Join(dir, "mig"), nil, 0o600) },
		"a link": func(dir string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, "mig"), 0o755),
				os.Symlink("elsewhere", filepath.Join(dir, "mig", testGPU.String()+".lock")))
		},
	} {
		dir := t.TempDir()
		if err := make(dir); err != nil {
			t.Fatal(err)
		}
		if unlock, err := lockGPU(dir, testGPU); err == nil || unlock != nil {
			t.Errorf("%s: a lock", name)
		}
		if _, err := os.Stat(filepath.Join(dir, "mig", "elsewhere")); err == nil {
			t.Errorf("%s: it was followed", name)
		}
	}
}
