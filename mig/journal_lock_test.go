package mig

import (
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
